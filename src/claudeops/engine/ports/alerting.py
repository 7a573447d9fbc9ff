"""Alerts: how bodies come in, what becomes of them, and how people deal with incidents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from claudeops.domain.alerts.alert import AlertState, Incident, Silence
from claudeops.domain.alerts.register import Done, Kept, NewChain, Posted
from claudeops.domain.alerts.situation import Circumstances


class Alerts(Protocol):
    """Alerts on record, and the decisions about them.

    A body is on record before anything is decided about it, and waits in a queue of rows. Whatever a round decides is
    one transaction: alerts, decisions, incidents with their events, queued chains, and that the body waits no longer.
    Nothing of a round that fails is kept.
    """

    async def receive(self, posted: Sequence[Posted], *, now: datetime) -> Sequence[Kept]:
        """Write some bodies before all else that waits for the database; the answers are in their order.

        A body that was written within the last ten minutes is counted, not written again; its alerts are decided about
        all the same. What is dealt with is a `duplicate` then, and changes nothing: a sender that has no times, and
        means that it fires anew, is heard. The decision about a body that cannot be read is written with it.
        """

    async def decide(
        self, about: Circumstances, new_chain: NewChain, *, now: datetime, most: int | None = None
    ) -> Done | None:
        """Decide about some of the bodies that have waited longest: as many as a moment allows, at most ``most``.

        ``None``: nothing waits.
        """

    async def set_aside(self, why: str, *, now: datetime) -> str | None:
        """Have the first body wait no longer, with the reason as its decision; return its key."""

    async def tick(self, about: Circumstances, new_chain: NewChain, *, now: datetime) -> Done:
        """Write what follows from the time that has passed, and from probes that see their services up.

        That may be much at once: then it is several transactions, the first of which has all that others refer to.
        """

    async def probes_failed(
        self, names: Sequence[str], incident: str, about: Circumstances, new_chain: NewChain, *, now: datetime
    ) -> Done:
        """Take the failures of some probes as one group of alerts, and note that they are told.

        Nothing is decided if all of them belong to something already (`Probes.start_chain`).
        """

    async def acknowledge(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person is on an incident; return it as it is then, ``None`` if there is none."""

    async def resolve(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person says that an incident is over; return it as it is then, ``None`` if there is none."""

    async def lately(self, since: datetime) -> Sequence[AlertState]:
        """Return the alerts that fire, or were heard of since a moment."""

    async def silence(self, silence: Silence) -> Silence:
        """Write a silence; return it with its number."""

    async def end_silence(self, number: int, *, by: str, now: datetime) -> Silence | None:
        """End a silence before its time; return it as it is then, ``None`` if there is none.

        One that is over already stays as it was.
        """
