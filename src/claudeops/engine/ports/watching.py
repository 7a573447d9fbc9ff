"""What finds trouble and asks for looks: schedules, follow-ups and probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.follow_up import FollowedUp
from claudeops.domain.events import NewEvent
from claudeops.domain.owner import Owner
from claudeops.domain.probes.probe import Observation, Pings, Probe, Verb
from claudeops.domain.probes.record import KeptProbe, Observed, Stretch
from claudeops.domain.schedules.plan import Fire, LastFire, LastRound, Saved, SkipReason
from claudeops.domain.sessions import NewSession, Session, Suppressed


class Schedules(Protocol):
    """What became of the due times of schedules."""

    async def fire(
        self, fire: Fire, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | SkipReason | None:
        """Record that a schedule was due and queue its chain, in one transaction.

        Returns the queued session; or the reason why none was queued (``fire.skip``, or for instance a chain of this
        schedule has a session that has not ended), which is recorded; or ``None`` if this same fire (schedule and due
        time) was recorded before, in which case nothing is written. With `Overlap.QUEUE` one chain is queued beside an
        unfinished one, and is claimed only when that has ended.
        """

    async def last_fires(self) -> Mapping[str, LastFire]:
        """Return the latest recorded fires, by schedule."""

    async def last_round(self, schedule: str) -> LastRound | None:
        """Return the last chain that a schedule started; ``None`` if there is none, or it has not ended."""

    async def mean_cost(self, schedule: str) -> float | None:
        """Return what a chain of a schedule costs on average, in US dollars, by its last ones; ``None``: unknown."""

    async def saved(self, since: datetime) -> Saved:
        """Return how many fires have started nothing since a moment, and what that saved."""

    async def note(self, event: NewEvent, *, over: bool, now: datetime) -> None:
        """Raise an event about the schedules as a whole, or end the open one with the same fingerprint."""


class FollowUps(Protocol):
    """Looks at what actions have left."""

    async def answer_due(self, *, rules: EscalationRules, now: datetime) -> FollowedUp:
        """Have the daemon's probes answer the follow-ups that are due, and queue what follows, in one transaction.

        What the probes cannot tell a session of the lowest tier is asked; a relapse escalates at once.
        """


class Probes(Protocol):
    """How services are seen by the daemon's own probes, and what follows from that."""

    async def enrol(self, declared: Sequence[Probe], owner: Owner, *, now: datetime) -> Mapping[str, KeptProbe]:
        """Make the probes on record those that are ``declared``, and return how each stands, by name.

        A new one is unknown. One of another kind than before begins anew. One that is no longer declared goes, and its
        event is over; its history stays.
        """

    async def kept(self) -> Mapping[str, KeptProbe]:
        """Return every probe on record, by name."""

    async def observed(self, batch: Sequence[Observed], *, owner: Owner, rules: EscalationRules, now: datetime) -> None:
        """Write how some probes stand, with what its changes tell, in one transaction.

        A telling raises or ends its events and writes the state of the service, by all its probes, as a service check.
        The cooldown counters of a service clear once all its probes have seen it up since the last action, twice and
        for `HELD_SECONDS` without a break. A probe that is not on record is passed over.
        """

    async def start_chain(
        self, names: Sequence[str], incident: str, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | Suppressed | None:
        """Queue one chain because of the failures of some probes, as `Queue.enqueue` does, and note that they are told.

        ``None`` with nothing queued, if all of them belong to an incident already, or to a chain that the same probe
        has started and that has not ended. So however often this is called, a failure starts one chain.
        """

    async def join(self, incidents: Mapping[str, str]) -> None:
        """Note to which incidents, which others began, the failures of some probes belong."""

    async def ping(self, name: str, verb: Verb | None, *, text: str = "", at: datetime, run: str = "") -> bool:
        """Note what a heartbeat says; ``False``, with nothing written, if there is no heartbeat of this name.

        Without a verb it is a line for people, and says nothing about how it is.
        """

    async def pings(self) -> Mapping[str, Pings]:
        """Return when each heartbeat was last heard, by name."""

    async def note(self, event: NewEvent, *, over: bool, now: datetime) -> None:
        """Raise an event that concerns the probes as a whole, or end the open one with the same fingerprint."""

    async def add_history(self, stretches: Sequence[Stretch]) -> None:
        """Write stretches of five minutes, and what they add to their hours; one on record already grows."""

    async def history(self, probe: str, *, width: timedelta, since: datetime) -> Sequence[Stretch]:
        """Return the stretches of a probe that began at ``since`` or later, oldest first."""


class Looker(Protocol):
    """Looks once at what a probe is about."""

    async def look(self, probe: Probe) -> Observation:
        """Return what one look saw, within the probe's timeout and a little more; raises nothing of its own."""
