"""The watch over probes on a real database, in time that a test travels through."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import anyio

from claudeops.clock import Clock
from claudeops.domain.probes.probe import Observation, Probe, Saw
from claudeops.engine.probes.declared import NOTHING_DECLARED, DeclaredNow, DeclaredReader
from claudeops.errors import DatabaseUnavailableError
from support.store_values import NOW


@dataclass
class Journey(Clock):
    """A clock that stands until a test moves it, and not before the database has answered everybody."""

    at: datetime = NOW
    passed: float = 1_000.0  # of the clock that never goes back
    waiting: int = 0  # calls of the database that have not been answered
    answered: anyio.Event = field(default_factory=anyio.Event)  # one of them has been since
    _sleepers: list[tuple[float, int, anyio.Event]] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=itertools.count)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        """Sleep until the test has travelled so far."""
        await self.pause(anyio.Event(), seconds)

    async def pause(self, stirred: anyio.Event, seconds: float) -> None:
        """Wait for an event, or until the test has travelled so far."""
        heapq.heappush(self._sleepers, (self.passed + max(0.0, seconds), next(self._count), stirred))
        await stirred.wait()

    async def travel(self, seconds: float) -> None:
        """Move time on, from one sleeper's waking to the next; everybody finishes what is due first."""
        goal = self.passed + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= goal:
            due, _, woken = heapq.heappop(self._sleepers)
            if not woken.is_set():
                self._move(due)
                woken.set()
                await self.settle()
        self._move(goal)
        await self.settle()

    async def settle(self) -> None:
        """Return once no task can go on; `anyio.wait_all_tasks_blocked` takes a tenth of a second for that."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        while ready or self.waiting:
            if ready:
                await asyncio.sleep(0)
            else:
                await self.answered.wait()

    def _move(self, to: float) -> None:
        self.at += timedelta(seconds=max(0.0, to - self.passed))
        self.passed = max(self.passed, to)


class CountedStore:
    """A part of the store that counts its calls, so that time waits for them, and that can be away."""

    def __init__(self, port: object, clock: Journey) -> None:
        self._port, self._clock = port, clock
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []  # that were answered
        self.is_away = False
        self.never_returns = ""  # the call that is done, and whose caller never learns of it

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        call = getattr(self._port, name)

        async def counted(*given: Any, **named: Any) -> object:
            if self.is_away:
                raise DatabaseUnavailableError("the database is locked")
            self._clock.waiting += 1
            try:
                result = await call(*given, **named)
            finally:
                self._clock.waiting -= 1
                self._clock.answered.set()
                self._clock.answered = anyio.Event()
            self.calls.append((name, given, named))
            if name == self.never_returns:
                self.never_returns = ""
                await anyio.sleep_forever()
            return result

        return counted

    def given(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of the calls of one method, oldest first."""
        return [given for called, given, _ in self.calls if called == name]


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


class DeclaredByTest(DeclaredReader, kw_only=True):
    """What a test declares; each declaration is read once."""

    declared: DeclaredNow | None = None
    latest: DeclaredNow = NOTHING_DECLARED

    async def changed(self) -> DeclaredNow | None:
        declared, self.declared = self.declared, None
        self.latest = declared or self.latest
        return declared

    async def now(self) -> DeclaredNow:
        return self.latest
