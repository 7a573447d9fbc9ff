"""Probes for tests: declarations, standings, and time that a test travels through."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import anyio

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.owner import Owner
from claudeops.domain.probes.machine import heard
from claudeops.domain.probes.probe import (
    HeartbeatLook,
    HttpLook,
    Observation,
    Pings,
    PingVerb,
    Probe,
    ProbeState,
    Saw,
    Standing,
    kind_of,
)
from claudeops.domain.probes.record import FAILING, KeptProbe, Observed, Stretch, Telling, fingerprint_of
from claudeops.domain.sessions import NewSession, Session, Suppressed
from claudeops.errors import DatabaseUnavailableError
from support.store_values import NOW, running


def probe(name: str = "web", **changes: object) -> Probe:
    """Return a probe of a service of the same name, unless told otherwise."""
    look = HttpLook(url=f"http://{name}.test/")
    values: dict[str, object] = {"name": name, "look": look, "service": name, "origin": "probes.toml:1", **changes}
    return Probe(**values)  # type: ignore[arg-type]


def heartbeat(name: str = "backup", *, every: float = 60.0, **changes: object) -> Probe:
    return probe(name, look=HeartbeatLook(every=every, grace=10.0), **changes)


def standing(state: ProbeState = ProbeState.UP, *, at: datetime = NOW, **changes: object) -> Standing:
    """Return how a probe stands after three looks of the same kind."""
    up = state is ProbeState.UP
    values: dict[str, object] = {
        "state": state,
        "since": at,
        "last_checked_at": at,
        "failures": 0 if up else 3,
        "successes": 3 if up else 0,
        "ups": 3 if up else 0,
        "beneath": state,
        **changes,
    }
    return Standing(**values)  # type: ignore[arg-type]


def observed(of: Probe, state: ProbeState = ProbeState.UP, *, at: datetime = NOW, **changes: object) -> Observed:
    """Return what a look leaves that changed nothing."""
    stands = standing(state, at=at)
    values: dict[str, object] = {
        "probe": of,
        "standing": stands,
        "healthy_since": at if state is ProbeState.UP else None,
        **changes,
    }
    return Observed(**values)  # type: ignore[arg-type]


def turned(of: Probe, state: ProbeState, *, at: datetime = NOW, **changes: object) -> Observed:
    """Return what a look leaves that changed the probe's state."""
    name = fingerprint_of(of.name)
    if state is ProbeState.UP:
        told = Telling(at=at, detail="200", over=(name,))
    else:
        message = f"{of.name} is {state.value}"
        event = NewEvent(level=EventLevel.CRITICAL, message=message, service=of.service, fingerprint=name)
        told = Telling(at=at, detail="no answer", events=(event,))
    return observed(of, state, at=at, **{"tellings": (told,), **changes})


# --- time ---------------------------------------------------------------------------------------------


async def settled() -> None:
    """Return once nobody else can go on; `anyio.wait_all_tasks_blocked` takes a tenth of a second for that."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    while ready:  # noqa: ASYNC110 - what is waited for is that nothing happens any more
        await asyncio.sleep(0)


@dataclass
class Journey(Clock):
    """A clock that stands until a test moves it, and those who sleep by it."""

    at: datetime = NOW
    passed: float = 1_000.0  # of the clock that never goes back
    _sleepers: list[tuple[float, int, anyio.Event]] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        """Sleep until the test has travelled so far."""
        woken = anyio.Event()
        heapq.heappush(self._sleepers, (self.passed + max(0.0, seconds), next(self._count), woken))
        await woken.wait()

    async def travel(self, seconds: float) -> None:
        """Move time on, from one sleeper's waking to the next; everybody finishes what is due first."""
        goal = self.passed + seconds
        await settled()
        while self._sleepers and self._sleepers[0][0] <= goal:
            due, _, woken = heapq.heappop(self._sleepers)
            self._move(due)
            woken.set()
            await settled()
        self._move(goal)
        await settled()

    async def pause(self, stirred: anyio.Event, seconds: float) -> None:
        """Wait for an event, or until the test has travelled so far."""
        async with anyio.create_task_group() as both:

            async def wait() -> None:
                await stirred.wait()
                both.cancel_scope.cancel()

            both.start_soon(wait)
            await self.sleep(seconds)
            both.cancel_scope.cancel()

    def _move(self, to: float) -> None:
        self.at += timedelta(seconds=max(0.0, to - self.passed))
        self.passed = max(self.passed, to)


@dataclass
class Scripted:
    """A looker whose services do what a test says."""

    clock: Journey
    saw: Callable[[Probe], Saw] = lambda _: Saw.UP
    down: set[str] = field(default_factory=set)  # names of probes
    hanging: set[str] = field(default_factory=set)
    looks: list[tuple[str, float]] = field(default_factory=list)  # name, and when
    under_way: int = 0
    most_under_way: int = 0
    latency_ms: float = 12.0

    async def look(self, probe: Probe) -> Observation:
        self.looks.append((probe.name, self.clock.monotonic()))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if probe.name in self.hanging:
                await self.clock.sleep(probe.timeout)
                return Observation(saw=Saw.DOWN, at=self.clock.now(), detail="no answer in time")
            if probe.name in self.down:
                return Observation(saw=Saw.DOWN, at=self.clock.now(), detail="connection refused")
            return Observation(saw=self.saw(probe), at=self.clock.now(), detail="200", latency_ms=self.latency_ms)
        finally:
            self.under_way -= 1


# --- a database in memory -----------------------------------------------------------------------------


@dataclass
class Memory:
    """`claudeops.store.probes.Probes` without a database; it can be away, and it outlives a watch."""

    rows: dict[str, KeptProbe] = field(default_factory=dict)
    written: list[Observed] = field(default_factory=list)
    tellings: list[Telling] = field(default_factory=list)
    transactions: int = 0
    chains: list[tuple[tuple[str, ...], NewSession]] = field(default_factory=list)
    running: set[int] = field(default_factory=set)  # chains that have not ended
    noted: list[tuple[str, bool]] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    heard: dict[str, Pings] = field(default_factory=dict)
    away: bool = False
    dies_before_chain: bool = False

    async def enrol(self, declared: Sequence[Probe], owner: Owner, *, now: datetime) -> Mapping[str, KeptProbe]:
        self._answer(owner)
        self.rows = {
            each.name: self.rows.get(each.name)
            or KeptProbe(
                name=each.name,
                service=each.service,
                kind=kind_of(each.look),
                standing=Standing(since=now),
                interval=each.interval,
            )
            for each in declared
        }
        return dict(self.rows)

    async def kept(self) -> Mapping[str, KeptProbe]:
        self._answer()
        return dict(self.rows)

    async def observed(self, batch: Sequence[Observed], *, owner: Owner, rules: EscalationRules, now: datetime) -> None:
        self._answer(owner, rules, now)
        self.transactions += 1
        for each in batch:
            self.written.append(each)
            self.tellings += each.tellings
            row = self.rows.get(each.probe.name)
            if row is not None:
                self.rows[row.name] = replace(row, standing=each.standing, healthy_since=each.healthy_since)

    async def start_chain(
        self, names: Sequence[str], incident: str, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | Suppressed | None:
        self._answer(rules)
        if self.dies_before_chain:
            await anyio.sleep_forever()
        untold = [
            self.rows[name]
            for name in names
            if self.rows[name].standing.state in FAILING and not self.rows[name].standing.incident
        ]
        starting = [row for row in untold if row.session_id not in self.running]
        if starting:
            self.chains.append((tuple(names), new))
            self.running.add(len(self.chains))
        for row in untold:
            stands = replace(row.standing, incident=incident)
            begun = {"session_id": len(self.chains), "chain_at": now} if row in starting else {}
            self.rows[row.name] = replace(row, standing=stands, **begun)  # type: ignore[arg-type]
        return running(id=len(self.chains)) if starting else None

    async def join(self, incidents: Mapping[str, str]) -> None:
        self._answer()
        for name, incident in incidents.items():
            row = self.rows[name]
            self.rows[name] = replace(row, standing=replace(row.standing, incident=incident))

    async def ping(self, name: str, verb: PingVerb | None, *, text: str = "", at: datetime, run: str = "") -> bool:
        self._answer(text)
        if verb is not None:
            self.heard[name] = heard(self.heard.get(name, Pings()), verb, at, run=run)
            if name in self.rows:
                self.rows[name] = replace(self.rows[name], pings=self.heard[name])
        return True

    async def pings(self) -> Mapping[str, Pings]:
        self._answer()
        return dict(self.heard)

    async def note(self, event: NewEvent, *, over: bool, now: datetime) -> None:
        self._answer(now)
        self.noted.append((event.message, over))

    async def add_history(self, stretches: Sequence[Stretch]) -> None:
        self._answer()
        self.stretches += stretches

    async def history(self, probe: str, *, width: timedelta, since: datetime) -> Sequence[Stretch]:
        self._answer(width)
        return [each for each in self.stretches if each.probe == probe and each.start >= since]

    def _answer(self, *_: object) -> None:
        if self.away:
            raise DatabaseUnavailableError("the database is locked")

    @property
    def messages(self) -> list[str]:
        """What was told, oldest first."""
        return [event.message for told in self.tellings for event in (*told.events, *told.notes)]
