"""The watch: looks at every probe when it is due, for as long as the daemon lives.

A heap holds the due times, by the clock that never goes back. Looks run beside each other, as many at a time as there
are slots; one that comes late is counted. A probe keeps its phase: looks that took long do not push the next ones back.
`WatchedProbes` decides what a look makes of a probe, `ProbeWriter` writes it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import EventLevel, NewEvent, of_node
from claudeops.domain.owner import Owner
from claudeops.domain.probes.probe import HeartbeatLook, Observation, Probe, Saw
from claudeops.domain.probes.record import StoredProbe
from claudeops.domain.probes.state_machine import due
from claudeops.engine.probes.declared import DeclaredNow, DeclaredReader
from claudeops.engine.probes.watched import WatchedProbe, WatchedProbes, spread
from claudeops.engine.probes.writer import Pause, ProbeWriter, pause
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.probes import Probes
from claudeops.tasks import DatabaseTrouble, until_tick

AT_ONCE: Final = 200
"""Looks at the same time. Most of them wait for a network; a thousand services that hang take a minute a round."""

RELOAD_SECONDS: Final = 5.0
"""Between two looks at what is declared."""

LISTEN_SECONDS: Final = 1.0
"""Between two looks for pings."""

LATE_SECONDS: Final = 1.0
"""A look that begins later than this after its due time is late."""

_GRACE_SECONDS: Final = 2.0  # beyond a probe's timeout, in which a look ends by itself
_TELL_LATE_SECONDS: Final = 300.0  # between two lines about late looks
_SKEW_SECONDS: Final = 5.0  # between the two clocks, from which the wall clock counts as set
_REMEMBERED: Final = 10_000  # looks whose lateness is known
_FILE_EVENT: Final = "probes:file"


class Lateness(msgspec.Struct, kw_only=True):
    """By how much looks began after their due times, in seconds."""

    latest: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    late: int = 0  # looks since the last line in the log
    worst: float = 0.0  # of these

    def add(self, seconds: float) -> None:
        """Count one look."""
        self.latest.append(max(0.0, seconds))
        if seconds > LATE_SECONDS:
            self.late += 1
            self.worst = max(self.worst, seconds)

    def quantile(self, share: float) -> float:
        """Return the lateness that this share of the latest looks stayed at or below."""
        known = sorted(self.latest)
        return known[min(len(known) - 1, int(share * len(known)))] if known else 0.0


Look: TypeAlias = Callable[[Probe], Awaitable[Observation]]
"""Looks once, within the probe's timeout and a little more; raises nothing of its own."""


@dataclass(kw_only=True, slots=True)
class ProbeWatch:
    """The watch of one node."""

    database: Probes
    look: Look
    reading: DeclaredReader
    rules: Callable[[], EscalationRules]
    alerts: Alerts
    queued: Callable[[], None]  # wakes whoever decides about alerts in this process
    owner: Owner
    clock: Clock
    log: Logger
    pause: Pause = pause
    at_once: int = AT_ONCE
    watched: WatchedProbes = field(default_factory=WatchedProbes)
    lateness: Lateness = field(default_factory=Lateness)
    _writer: ProbeWriter = field(init=False)
    _heap: list[tuple[float, int, str]] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=itertools.count)
    _under_way: int = 0
    _stirred: anyio.Event = field(default_factory=anyio.Event)
    _listening_since: datetime | None = None
    _deaf_since: datetime | None = None  # when nobody could listen any more, before that
    _heard_at: datetime | None = None  # the last time that somebody could
    _skew: float | None = None
    _fault: str | None = None  # in what is declared, as it was last told; None: an earlier daemon may have told one

    def __post_init__(self) -> None:
        self._writer = ProbeWriter(
            watched=self.watched,
            database=self.database,
            owner=self.owner,
            clock=self.clock,
            rules=self.rules,
            alerts=self.alerts,
            queued=self.queued,
            look_now=self.look_now,
            log=self.log,
            pause=self.pause,
        )

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled; started once the declared probes are on record."""
        self._listening_since = self.clock.now()
        await self._reload_once()
        task_status.started()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._writer.run)
            tasks.start_soon(self._keep_declared)
            tasks.start_soon(self._listen)
            tasks.start_soon(self._tell_late)
            await self._keep_looking(tasks)

    def forget(self) -> None:
        """Watch nothing any more, and begin anew by what is on record."""
        self.reading.forget()
        self.watched = WatchedProbes()
        self.__post_init__()
        self._heap.clear()
        self._listening_since = self._deaf_since = self._heard_at = self._skew = self._fault = None

    def look_now(self, names: Sequence[str]) -> None:
        """Look at some probes at once, instead of when they are due."""
        for name in names:
            watched = self.watched.by_name.get(name)
            if watched is not None and watched.is_ours and not watched.looking:
                self._plan(watched, self.clock.monotonic())

    async def _until_tick(self, every: float) -> None:
        await self.pause(anyio.Event(), until_tick(every, self.clock.monotonic()))

    # --- due times ------------------------------------------------------------------------------------

    async def _keep_looking(self, tasks: TaskGroup) -> None:
        while True:
            self._stirred = anyio.Event()
            now = self.clock.monotonic()
            while self._heap and self._under_way < self.at_once and self._heap[0][0] <= now:
                due_at, _, name = heapq.heappop(self._heap)
                watched = self.watched.by_name.get(name)
                if watched is not None and watched.is_ours and watched.due == due_at and not watched.looking:
                    self.lateness.add(now - due_at)
                    watched.looking = True
                    self._under_way += 1
                    tasks.start_soon(self._look, watched)
            full = self._under_way >= self.at_once or not self._heap
            # What ends a look, and what is declared anew, stirs it.
            await self.pause(self._stirred, math.inf if full else max(0.0, self._heap[0][0] - now))

    def _plan(self, watched: WatchedProbe, due_at: float) -> None:
        watched.due = due_at
        is_first = not self._heap or due_at < self._heap[0][0]
        heapq.heappush(self._heap, (due_at, next(self._count), watched.probe.name))
        if is_first or self._under_way >= self.at_once - 1:
            self._stirred.set()

    async def _look(self, watched: WatchedProbe) -> None:
        name = watched.probe.name
        try:
            observation = await self._observed(watched)
        finally:
            watched.looking = False
            self._under_way -= 1
        if self.watched.by_name.get(name) is not watched:
            self._stirred.set()  # it is no longer declared, and its slot may be waited for
            return
        before = watched.standing.state
        wait = self.watched.seen(watched, observation)
        now = self.clock.monotonic()
        kept = watched.due + wait  # its phase
        self._plan(watched, kept if wait >= watched.probe.interval and kept > now else now + wait)
        if watched.tellings:
            after = watched.standing.state
            self.log.info(LogEvent.PROBE_CHANGED, probe=name, service=watched.probe.service, before=before, after=after)
        if watched.is_urgent:
            self._writer.stir()

    async def _observed(self, watched: WatchedProbe) -> Observation:
        probe = watched.probe
        if isinstance(probe.look, HeartbeatLook):
            return due(
                watched.pings,
                every=probe.look.every,
                grace=probe.look.grace,
                now=self.clock.now(),
                listening_since=self._listening_since,
                deaf_since=self._deaf_since,
            )
        with anyio.move_on_after(probe.timeout + _GRACE_SECONDS):
            return await self.look(probe)
        return Observation(saw=Saw.NOTHING, at=self.clock.now(), detail="the look did not end in its time")

    async def _tell_late(self) -> None:
        while True:
            await self.pause(anyio.Event(), _TELL_LATE_SECONDS)
            if self.lateness.late:
                late, worst = self.lateness.late, round(self.lateness.worst, 1)
                self.log.warning(
                    LogEvent.PROBES_LATE, count=late, worst_s=worst, p99_s=round(self.lateness.quantile(0.99), 2)
                )
                self.lateness.late, self.lateness.worst = 0, 0.0

    # --- what is declared -----------------------------------------------------------------------------

    async def _keep_declared(self) -> None:
        while True:
            await self._until_tick(RELOAD_SECONDS)
            await self._reload_once()

    async def _reload_once(self) -> None:
        """Watch what is declared by now; tries until the database has taken it."""
        declared = await self.reading.changed()
        if declared is None:
            return
        trouble = DatabaseTrouble(self.log, "declared probes")
        while True:
            try:
                await self._enrol(declared)
            except StoreError as error:
                await self.pause(anyio.Event(), trouble.failed(error))
            else:
                trouble.over()
                return

    async def _enrol(self, declared: DeclaredNow) -> None:
        now = self.clock.now()
        if declared.fault != self._fault:
            event = NewEvent(
                level=EventLevel.WARNING,
                message=f"{declared.fault}; what the file said before serves",
                fingerprint=_FILE_EVENT,
            )
            await self.database.note(of_node(event, self.owner.node), over=not declared.fault, now=now)
            self._fault = declared.fault
        if declared.fault:
            self.log.error(LogEvent.PROBES_REFUSED, error=declared.fault)
        kept = await self._kept(declared, now)
        probes = declared.watchable(kept)
        if self._heard_at is None:  # at the start: as long as a daemon looked, one listened as well
            looked = [each.standing.last_checked_at for each in kept.values()]
            self._deaf_since = max((at for at in looked if at is not None and at <= now), default=None)
            self._heard_at = now
        new = self.watched.enrol(probes, kept, declared.dependencies, site=self.owner.site)
        for number, watched in enumerate(new):
            self._plan(watched, self.clock.monotonic() + spread(len(new), number, watched.probe.interval))
        self._writer.stir()  # a failure on record may have no chain yet
        self.log.info(LogEvent.PROBES_WATCHED, probes=len(probes), new=len(new))

    async def _kept(self, declared: DeclaredNow, now: datetime) -> Mapping[str, StoredProbe]:
        """Return how the declared probes stand on record.

        As long as a manifest may still declare what is on record nothing is taken from there, or its failure would be
        told a second time once it is back. What is new in the operator's file waits for that too.
        """
        if declared.is_whole:
            return await self.database.enrol(declared.probes, self.owner, now=now)
        return await self.database.kept()

    # --- heartbeats -----------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear of pings. While nobody could listen, or the clock was set, silence proves nothing."""
        trouble = DatabaseTrouble(self.log, "pings", longest_seconds=RELOAD_SECONDS)
        while True:
            beating = [each for each in self.watched if isinstance(each.probe.look, HeartbeatLook)]
            await self._until_tick(LISTEN_SECONDS if beating else RELOAD_SECONDS)
            skew = self.clock.now().timestamp() - self.clock.monotonic()
            if self._skew is not None and abs(skew - self._skew) > _SKEW_SECONDS:
                self._listening_since = self._heard_at = self.clock.now()
                # By the clock as it is set now, nobody can have been heard in the time that it leapt over.
                self._deaf_since = self._listening_since - timedelta(seconds=max(0.0, skew - self._skew))
            self._skew = skew
            beating = [each for each in self.watched if isinstance(each.probe.look, HeartbeatLook)]
            if not beating:
                continue
            try:
                pings = await self.database.pings()
            except StoreError as error:
                wait = trouble.failed(error)
                self._listening_since, self._deaf_since = self.clock.now(), self._heard_at
                await self.pause(anyio.Event(), wait)
                continue
            trouble.over()
            self._heard_at = self.clock.now()
            for each in beating:
                heard = pings.get(each.probe.name, each.pings)
                if heard != each.pings:
                    each.pings = heard
                    self.look_now([each.probe.name])
