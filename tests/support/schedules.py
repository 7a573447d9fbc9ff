"""A scheduler on the real APScheduler, with clocks that a test sets and a record of what was fired."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import anyio
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from claudeops.clock import Clock
from claudeops.domain.schedules import Interval, Schedule
from claudeops.engine.schedules.scheduler import Scheduler
from claudeops.errors import DatabaseUnavailableError

DEADLINE_SECONDS = 20.0
YEAR = timedelta(days=365)
HOURLY = Schedule(name="watch", cadence=Interval(seconds=3600))
DAILY = Schedule(name="watch", cadence=Interval(seconds=86400))
OFTEN = Schedule(name="watch", cadence=Interval(seconds=0.05))
MOMENT = datetime(2020, 11, 21, 12, tzinfo=UTC)  # long over on APScheduler's own clock


class MachineClock(Clock):
    """The machine's clock, which APScheduler reads too, set forward or back by ``offset``."""

    def __init__(self) -> None:
        self.offset = timedelta(0)
        self.reads = 0
        self._read = anyio.Event()

    def now(self) -> datetime:
        self.reads += 1
        self._read.set()
        self._read = anyio.Event()
        return self._time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def until_read(self, times: int) -> None:
        """Wait for some rounds of the watchdog; it looks at the clock in each."""
        goal = self.reads + times
        while self.reads < goal:
            await self._read.wait()

    def _time(self) -> datetime:
        return datetime.now(UTC) + self.offset


class SetClock(MachineClock):
    """A clock that stands where it is put, in the past: the scheduler fires when this one says so."""

    def __init__(self) -> None:
        super().__init__()
        self.at = MOMENT

    def _time(self) -> datetime:
        return self.at


@dataclass
class Record:
    """What a scheduler did, with a way to wait for it."""

    fires: list[tuple[str, datetime]] = field(default_factory=list)
    errors: list[tuple[str, datetime, Exception]] = field(default_factory=list)
    failures_to_come: int = 0
    hold: anyio.Event | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def fire(self, name: str, due_at: datetime) -> None:
        if self.failures_to_come:
            self.failures_to_come -= 1
            raise DatabaseUnavailableError("the database is locked")
        self.fires.append((name, due_at))
        self._wake()
        if self.hold is not None:
            await self.hold.wait()

    def on_error(self, name: str, due_at: datetime, error: Exception) -> None:
        self.errors.append((name, due_at, error))
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def until(self, *, fires: int = 0, errors: int = 0) -> None:
        while len(self.fires) < fires or len(self.errors) < errors:
            await self.changed.wait()

    def due_times(self, name: str = "watch") -> list[datetime]:
        return [due_at for fired, due_at in self.fires if fired == name]

    def scheduler(
        self, clock: MachineClock, *schedules: Schedule, last_due: Mapping[str, datetime] | None = None
    ) -> Scheduler:
        """Return a scheduler that fires into this record, with a quick watchdog and quick retries."""
        return Scheduler(
            clock=clock,
            schedules=schedules,
            fire=self.fire,
            on_error=self.on_error,
            last_due=last_due,
            watch_seconds=0.01,
            retry_seconds=0.001,
        )


class HostileTrigger(BaseTrigger):  # type: ignore[misc]  # apscheduler has no types
    """Due at once; then makes APScheduler's main loop raise, ``times`` times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.raised = anyio.Event()

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        if previous is None:
            return now - YEAR  # before every honest job
        if self.left == 0:
            return None
        self.left -= 1
        self.raised.set()
        message = "raised inside the main loop"
        raise RuntimeError(message)


def timer_of(scheduler: Scheduler) -> AsyncIOScheduler:
    assert scheduler._timer is not None
    return scheduler._timer


@contextmanager
def callback_errors_collected() -> Iterator[list[object]]:
    """Take what the event loop would report: the exceptions of APScheduler's main loop."""
    found: list[object] = []
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: found.append(context.get("exception")))
    try:
        yield found
    finally:
        loop.set_exception_handler(handler)


@asynccontextmanager
async def running(scheduler: Scheduler) -> AsyncIterator[None]:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            await group.start(lambda *, task_status: scheduler.run(task_status=task_status))
            yield
            group.cancel_scope.cancel()
