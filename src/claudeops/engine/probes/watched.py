"""The probes that are watched, as they stand in memory: what a look makes of one, and what of it is still unwritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies, broken_services, is_broken
from claudeops.domain.probes.history import Bucket, start_of
from claudeops.domain.probes.news import effects_of
from claudeops.domain.probes.probe import Observation, Pings, Probe, ProbeState, Saw, Standing, kind_of
from claudeops.domain.probes.quorum import seen_in
from claudeops.domain.probes.record import Observed, StoredProbe, Stretch, Telling, healthy_since
from claudeops.domain.probes.state_machine import FLAPPING, ProbeStep, step, wavers
from claudeops.structs import replace

MOST_TELLINGS: Final = 20
"""Changes of one probe that are kept while the database is away; before that many it flaps."""

MOST_STRETCHES: Final = 20_000
"""Stretches of history that are kept while the database is away; the oldest go first."""


class WatchedProbe(msgspec.Struct, kw_only=True):
    """One probe that is watched."""

    probe: Probe
    standing: Standing
    view: Standing = msgspec.field(default_factory=Standing)  # of this site alone, if several look
    is_ours: bool = True  # this site looks
    healthy_since: datetime | None = None  # by the looks of this site
    handled_at: datetime | None = None  # when a failure was last left to a chain or a person, by its row
    handled_state: ProbeState | None = None  # its state then; None: not known
    pings: Pings = msgspec.field(default_factory=Pings)
    due: float = 0.0  # on the clock that never goes back; what the heap says otherwise is out of date
    looking: bool = False
    dirty: bool = False  # its row is behind
    wavered: bool = False  # and does not show that its looks have begun to disagree, or agree again
    tellings: list[Telling] = msgspec.field(default_factory=list)  # not written yet, oldest first
    stretch: datetime | None = None  # when the present stretch of history began
    bucket: Bucket = msgspec.field(default_factory=Bucket)

    def written(self, what: Observed) -> None:
        """Forget what is on record by now; a look may have come meanwhile."""
        del self.tellings[: len(what.tellings)]
        if self.here is what.standing:
            self.dirty = self.wavered = False

    @property
    def is_urgent(self) -> bool:
        """Whether it is to be written at once."""
        return bool(self.tellings) or self.wavered

    @property
    def here(self) -> Standing:
        """How it stands by the looks of this site."""
        return self.view if self.probe.sites else self.standing

    def recall(self, kept: StoredProbe) -> None:
        """Take from its row what was decided about its failures."""
        self.handled_at, self.handled_state = kept.handled_at, kept.handled_state

    def observed(self) -> Observed:
        """Return what is to be written."""
        return Observed(
            probe=self.probe,
            standing=self.here,
            healthy_since=self.healthy_since,
            tellings=tuple(self.tellings),
        )

    def pauses_until(self) -> datetime | None:
        """Return when it may start another chain; ``None``: at once.

        A service that comes and goes starts one chain and no more, until it is known whether it flaps.
        """
        if self.handled_at is None:
            return None
        if self.handled_state is ProbeState.DEGRADED and self.standing.state is ProbeState.DOWN:
            return None
        return self.handled_at + (FLAPPING.window if self.standing.state is ProbeState.FLAPPING else FLAPPING.quiet)


class WatchedProbes(msgspec.Struct, kw_only=True):
    """All probes that are watched."""

    by_name: dict[str, WatchedProbe] = msgspec.field(default_factory=dict)
    dependencies: Dependencies = NO_DEPENDENCIES
    stretches: list[Stretch] = msgspec.field(default_factory=list)  # that are over and not written yet
    dropped: int = 0  # changes that were not written before they were too many
    _broken: tuple[str, ...] | None = None  # services; None: to be looked up anew
    _numbered: int = 0  # the highest number of a telling, of any probe: none of this daemon's is used again

    def __iter__(self) -> Iterator[WatchedProbe]:
        return iter(self.by_name.values())

    @property
    def standings(self) -> Mapping[str, Standing]:
        """How every probe stands, by name."""
        return {name: each.standing for name, each in self.by_name.items()}

    def enrol(
        self, probes: Iterable[Probe], kept: Mapping[str, StoredProbe], dependencies: Dependencies, *, site: str = ""
    ) -> list[WatchedProbe]:
        """Watch these probes from now on, as they stand in memory, else on record; return those to be looked at anew.

        Those are the new ones, and those that ask something else or at other times: theirs may be a day away. What is
        not looked at from this ``site`` is known by its row.
        """
        before, new = self.by_name, list[WatchedProbe]()
        self._numbered = max([self._numbered, *(row.standing.tellings for row in kept.values())])
        self.by_name = {}
        for probe in probes:
            known, row = before.get(probe.name), kept.get(probe.name)
            if known is not None and kind_of(known.probe.look) == kind_of(probe.look):
                is_other = (known.probe.look, known.probe.interval) != (probe.look, probe.interval)
                known.probe, was_ours = probe, known.is_ours
                known.is_ours = not probe.sites or site in probe.sites
                self.by_name[probe.name] = known
                if known.is_ours and (is_other or not was_ours):
                    new.append(known)
                continue
            fresh = WatchedProbe(probe=probe, standing=row.standing if row else Standing())
            fresh.is_ours = not probe.sites or site in probe.sites
            if row is not None:
                fresh.healthy_since, fresh.pings = row.healthy_since, row.pings
                if row.view is not None:
                    fresh.view, fresh.healthy_since = row.view.standing, row.view.healthy_since
                fresh.recall(row)
            self.by_name[probe.name] = fresh
            if fresh.is_ours:
                new.append(fresh)
        self.dependencies, self._broken = dependencies, None
        return new

    def seen(self, watched: WatchedProbe, observation: Observation) -> float:
        """Take what a look saw; return for how many seconds to wait until the next one."""
        before, probe = watched.here, watched.probe
        cause = self.dependencies.explanation(probe.service, self._broken_services())
        following = step(before, observation, probe, explained_by=cause)
        watched.dirty = True
        watched.healthy_since = healthy_since(
            watched.healthy_since, observation, looked_at=before.last_checked_at, interval=probe.interval
        )
        if probe.sites:  # all of them together decide, in the transaction that writes this view
            watched.view = following.standing
            watched.wavered |= _weight(before) != _weight(watched.view)
        else:
            self._take(watched, following)
        self._count(watched, observation)
        return following.wait_seconds

    def _take(self, watched: WatchedProbe, following: ProbeStep) -> None:
        """Take how a probe stands after a look, where this site alone decides."""
        before, probe = watched.standing, watched.probe
        watched.standing = following.standing
        if before.state is following.standing.state is ProbeState.UP:  # the rows say whether a round can be left out
            watched.wavered |= wavers(before, probe) is not wavers(following.standing, probe)
        if is_broken(before) is not is_broken(following.standing):
            self._broken = None
        if (telling := effects_of(before, following, probe)) is not None:
            self._tell(watched, telling)

    def agreed(self, watched: WatchedProbe, standing: Standing) -> None:
        """Take from its row how a probe stands that several sites look at."""
        if is_broken(watched.standing) is not is_broken(standing):
            self._broken = None
        watched.standing = standing

    def joined(self, name: str, incident: str) -> None:
        """Note that a chain knows of a probe's failure, unless that is over by now."""
        watched = self.by_name.get(name)
        if watched is not None and watched.standing.state is not ProbeState.UP:
            watched.standing = replace(watched.standing, incident=incident)

    def _broken_services(self) -> tuple[str, ...]:
        if self._broken is None:
            self._broken = broken_services([each.probe for each in self], self.standings)
        return self._broken

    def _tell(self, watched: WatchedProbe, telling: Telling) -> None:
        self._numbered = number = self._numbered + 1
        watched.standing = replace(watched.standing, tellings=number)
        watched.tellings.append(replace(telling, number=number))
        if len(watched.tellings) > MOST_TELLINGS:
            del watched.tellings[0]
            self.dropped += 1

    def _count(self, watched: WatchedProbe, observation: Observation) -> None:
        """Count a look for the pictures; a stretch is written when the next one has begun."""
        start = start_of(observation.at)
        if watched.stretch is not None and watched.stretch != start:
            self.close_stretch(watched)
        watched.stretch = start
        watched.bucket = watched.bucket.with_look(observation)

    def close_stretch(self, watched: WatchedProbe) -> None:
        """End the present stretch of a probe's history."""
        if watched.stretch is not None and watched.bucket.checks:
            self.stretches.append(Stretch(probe=watched.probe.name, start=watched.stretch, bucket=watched.bucket))
            del self.stretches[:-MOST_STRETCHES]
        watched.stretch, watched.bucket = None, Bucket()


def _weight(view: Standing) -> tuple[Saw, str]:
    """Return what counts of a view where all sites decide."""
    return seen_in(view), view.explained_by


def spread(count: int, number: int, longest: float) -> float:
    """Return after how many seconds the first look of one of ``count`` probes begins, so that not all begin at once.

    Few probes begin within a moment; many spread over their interval, or half a minute where that is longer.
    """
    return min(longest, timedelta(seconds=30).total_seconds(), count * _APART_SECONDS) * number / max(1, count)


_APART_SECONDS: Final = 0.03
