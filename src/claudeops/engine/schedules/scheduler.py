"""The scheduler: fires schedules at their due times, for as long as the daemon lives.

APScheduler only keeps the time: there is one date job per schedule, which hands over its due time and is gone; the next
one is added when the fire is done. Everything that may fail or take long happens in tasks of our own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import ModuleType
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from claudeops.clock import Clock
from claudeops.domain.schedules import Schedule, fires_at, merged, next_due
from claudeops.errors import ClaudeopsError, ConfigurationError, StoreError
from claudeops.tasks import until_tick

_METADATA: Final = "importlib.metadata"


class _NotFoundError(LookupError):
    """Takes the place of `importlib.metadata.PackageNotFoundError`."""


def _unknown(name: str) -> str:
    raise _NotFoundError(name)


@contextmanager
def _no_metadata() -> Iterator[None]:
    """Let an import find no entry points, since nothing here names a plugin, and not what version it is of."""
    nothing = ModuleType(_METADATA)
    vars(nothing).update(entry_points=lambda **_: (), version=_unknown, PackageNotFoundError=_NotFoundError)
    real, attribute = sys.modules.get(_METADATA), vars(importlib).get("metadata")
    sys.modules[_METADATA] = vars(importlib)["metadata"] = nothing
    try:
        yield
    finally:
        del sys.modules[_METADATA], vars(importlib)["metadata"]
        if real is not None:
            sys.modules[_METADATA] = real
        if attribute is not None:
            vars(importlib)["metadata"] = attribute


# It reads the metadata of all installed packages for them, three times (15 ms of a start), and its own for its version,
# with a parser of mails (10 ms).
with _no_metadata():
    from apscheduler.events import EVENT_SCHEDULER_SHUTDOWN
    from apscheduler.schedulers.asyncio import AsyncIOScheduler
    from apscheduler.triggers.date import DateTrigger

_LONGEST_DELAY_SECONDS: Final = 30.0
_WAKEUPS_BEFORE_RENEWAL: Final = 3
_SHUTDOWN_SECONDS: Final = 1.0
_REMEMBERED_FIRES: Final = 256
_SKEW_SECONDS: Final = 0.5  # between the two clocks, from which the wall clock counts as set


WATCH_SECONDS: Final = 5.0
"""Between two looks at the timer and the wall clock."""

LATE_SECONDS: Final = 1.0
"""The same while a schedule is overdue."""


class Scheduler:
    """Calls ``fire(name, due_at)`` for every schedule, one call at a time for each.

    ``due_at`` is the due time without jitter, in UTC; no due time is fired twice. Due times that were missed (the
    machine slept, the clock was set forward, ``last_due`` lies far back) are made up for by a single fire. A fire
    that ends in `StoreError` is tried again after ``retry_seconds``, then after twice that, up to 30 s, until it
    succeeds; if the next due time comes first, it replaces the one that failed. Any other exception of ``fire`` is
    a bug and ends `run`.

    ``on_error(name, due_at, error)`` is called for every failed attempt, and for a timer loop that had to be
    renewed. ``last_due`` holds the latest recorded due time of the schedules that have one; a schedule
    without one waits for its next due time. While ``held_back()`` is true nothing fires, and due times wait.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        schedules: Sequence[Schedule],
        fire: Callable[[str, datetime], Awaitable[object]],
        on_error: Callable[[str, datetime, Exception], None],
        last_due: Mapping[str, datetime] | None = None,
        held_back: Callable[[], bool] = lambda: False,
        watch_seconds: float = WATCH_SECONDS,
        retry_seconds: float = 1.0,
    ) -> None:
        self._clock = clock
        self._schedules = {schedule.name: schedule for schedule in schedules}
        if len(self._schedules) < len(schedules):
            raise ConfigurationError("two schedules have the same name: give every schedule its own")
        self._fire = fire
        self._on_error = on_error
        self._held_back = held_back
        self._watch_seconds = watch_seconds
        self._retry_seconds = retry_seconds
        self._seen = clock.now()
        self._skew = self._seen.timestamp() - clock.monotonic()
        recorded = last_due or {}
        self._fired: dict[str, list[datetime]] = {
            name: [recorded[name].astimezone(UTC)] if name in recorded else [] for name in self._schedules
        }
        self._pending = {name: self._first(name) for name in self._schedules}
        self._firing: set[str] = set()
        self._paused = False
        self._late: dict[str, int] = {}  # wake-ups since a schedule became overdue
        self._timer: AsyncIOScheduler | None = None

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Fire the schedules until cancelled. A fire under way is cancelled too, and the timer is shut down."""
        async with anyio.create_task_group() as group:
            self._group: TaskGroup = group
            self._timer = self._started_timer()
            try:
                task_status.started()
                while True:
                    every = min(LATE_SECONDS, self._watch_seconds) if self._late else self._watch_seconds
                    await anyio.sleep(until_tick(every, anyio.current_time()))
                    await self._watch()
            finally:
                await _shut_down(self._timer)

    def next_fire(self, name: str) -> datetime:
        """Return when a schedule fires next, or began to fire; in UTC, and in the past if it is overdue."""
        schedule = self._schedules[name]
        return fires_at(schedule, merged(schedule, self._pending[name], self._clock.now()))

    def pause(self) -> None:
        """Start no more fires. A fire under way is not cut off, but it is not tried again either."""
        self._paused = True

    def _stands(self) -> bool:
        return self._paused or self._held_back()

    def _first(self, name: str) -> datetime:
        """Return the due time to begin with: the one after the last recorded one, even if it has passed."""
        recorded = max(self._fired[name], default=None)
        if recorded is None or recorded > self._seen:  # the clock was set back since
            return self._unfired(name, self._seen)
        return next_due(self._schedules[name].cadence, recorded)

    def _unfired(self, name: str, after: datetime) -> datetime:
        """Return the first due time after ``after`` that was not fired for."""
        due_at = next_due(self._schedules[name].cadence, after)
        while due_at in self._fired[name]:
            due_at = next_due(self._schedules[name].cadence, due_at)
        return due_at

    # --- the timer ------------------------------------------------------------------------------------

    def _started_timer(self) -> AsyncIOScheduler:
        timer = AsyncIOScheduler(timezone=UTC)
        timer.start()
        for name in self._idle():
            self._add_job(timer, name)
        return timer

    def _add_job(self, timer: AsyncIOScheduler, name: str) -> None:
        due_at = self._pending[name]
        timer.add_job(
            self._hand_over,
            DateTrigger(run_date=fires_at(self._schedules[name], due_at), timezone=UTC),
            args=(name, due_at),
            id=name,
            replace_existing=True,
            misfire_grace_time=None,  # however late, it is not dropped
        )

    async def _hand_over(self, name: str, due_at: datetime) -> None:
        """Start the fire in our own task group, because APScheduler cancels its tasks without waiting for them.

        If the timer check added a job once too often, its due time is no longer the pending one. If the clock was set
        back since APScheduler looked, the job is early, and the timer check adds it again.
        """
        if self._stands() or name in self._firing or self._pending[name] != due_at:
            return
        if fires_at(self._schedules[name], due_at) > self._clock.now():
            return
        self._firing.add(name)
        self._late.pop(name, None)
        self._group.start_soon(self._fire_until_done, name)

    def _idle(self) -> list[str]:
        return [name for name in self._schedules if name not in self._firing]

    # --- firing ---------------------------------------------------------------------------------------

    async def _fire_until_done(self, name: str) -> None:
        delay_seconds = self._retry_seconds
        try:
            while not self._stands() and not await self._attempt(name):
                await anyio.sleep(delay_seconds)
                delay_seconds = min(delay_seconds * 2, _LONGEST_DELAY_SECONDS)
        finally:
            self._firing.discard(name)
        if self._timer is not None:
            self._add_job(self._timer, name)

    async def _attempt(self, name: str) -> bool:
        due_at = merged(self._schedules[name], self._pending[name], self._clock.now())
        self._pending[name] = due_at
        try:
            await self._fire(name, due_at)
        except StoreError as error:
            self._on_error(name, due_at, error)
            return False
        self._fired[name] = [*self._fired[name][1 - _REMEMBERED_FIRES :], due_at]
        # Not after ``due_at``: the clock may have been set back during the fire, by years perhaps.
        self._pending[name] = self._unfired(name, min(due_at, self._clock.now()))
        return True

    # --- the timer check ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Repair what keeps the timer from handing over.

        In APScheduler 3.11 an exception out of the main loop ends it: the callback that raised was to set the
        next timer, and ``running`` stays true. A wake-up starts it again. It also notices a wall clock that
        was set, while the event loop's own timers run on a clock that is never set.
        """
        if self._stands():
            return
        now = self._clock.now()
        if now < self._seen:  # the clock was set back: the pending due times may lie years ahead
            self._realign(now)
        skew = now.timestamp() - self._clock.monotonic()
        was_set = abs(skew - self._skew) > _SKEW_SECONDS
        self._seen, self._skew = now, skew
        self._count_late(now)
        stuck = [name for name, wakeups in self._late.items() if wakeups > _WAKEUPS_BEFORE_RENEWAL]
        if stuck or self._timer is None or not self._timer.running:
            await self._renew_timer(stuck)
            return
        for name in self._idle():
            if self._timer.get_job(name) is None:
                self._add_job(self._timer, name)
        if was_set or self._late:  # else it wakes by itself, and a wake-up has it go through all jobs
            self._timer.resume()
            self._timer.wakeup()

    def _realign(self, now: datetime) -> None:
        for name in self._idle():
            pending = self._unfired(name, now)
            if pending < self._pending[name]:
                self._pending[name] = pending
                if self._timer is not None and self._timer.get_job(name) is not None:
                    self._timer.remove_job(name)

    def _count_late(self, now: datetime) -> None:
        for name in self._idle():
            if fires_at(self._schedules[name], self._pending[name]) <= now:
                self._late[name] = self._late.get(name, 0) + 1
            else:
                self._late.pop(name, None)

    async def _renew_timer(self, stuck: Sequence[str]) -> None:
        """Replace a timer that was shut down, or woke up several times and still did not hand over."""
        for name in stuck:
            error = ClaudeopsError("the timer loop did not run this schedule; it was started anew")
            self._on_error(name, self._pending[name], error)
        await _shut_down(self._timer)
        self._late.clear()
        self._timer = self._started_timer()


async def _shut_down(timer: AsyncIOScheduler | None) -> None:
    """Shut APScheduler down and wait for that; its own call only asks the event loop for it."""
    if timer is None or not timer.running:
        return
    done = anyio.Event()
    timer.add_listener(lambda _: done.set(), EVENT_SCHEDULER_SHUTDOWN)
    timer.shutdown(wait=False)
    with anyio.move_on_after(_SHUTDOWN_SECONDS, shield=True):
        await done.wait()
