"""Clocks in the hand of a test: a bound passes when the test says so, or not while it looks on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from claudeops.clock import Clock
from support.waiting import PATIENCE_SECONDS


class LoopTime:
    """What the event loop takes for the time; every `anyio` bound and every sleep of its tasks goes by it."""

    def __init__(self, real: Callable[[], float], slowness: float) -> None:
        self._real, self._began, self._slowness = real, real(), slowness
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._began + (self._real() - self._began) / self._slowness + self._ahead

    def leap(self, seconds: float) -> None:
        """Let so much time pass at once. Called on the event loop, which then looks for what is due."""
        self._ahead += seconds


@contextmanager
def loop_time(*, slowness: float = 1.0) -> Iterator[LoopTime]:
    """Give the clock of the event loop that runs, for the length of the block.

    With a ``slowness`` of forty a bound of ten seconds lasts longer than any test may: what ends in the block has ended
    for another reason.
    """
    loop = asyncio.get_running_loop()
    given = LoopTime(loop.time, slowness)
    loop.time = given  # type: ignore[method-assign]  # asyncio asks it again in every turn
    try:
        yield given
    finally:
        del loop.time  # the class has its own


class LeapingClock(Clock):
    """The machine's clock, set forward by the test; it knows when somebody has looked at it since."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._looked = anyio.Event()

    def monotonic(self) -> float:
        self._looked.set()
        return time.monotonic() + self._ahead

    async def leap(self, seconds: float, *, noticed: bool) -> None:
        """Let time pass; ``noticed``: until the session's clocks have looked, as they do every second of a silence."""
        self._ahead += seconds
        self._looked = anyio.Event()
        if noticed:
            with anyio.fail_after(PATIENCE_SECONDS):
                await self._looked.wait()
