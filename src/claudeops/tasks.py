"""Task groups, threads for work that may hang, and how a loop waits: for a wake-up, or for a database that fails."""

from __future__ import annotations

import asyncio
import errno
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.logs import LogEvent, Logger

T = TypeVar("T")

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
"""Between two tries of a loop whose database fails; the pause doubles from the first value up to the longest."""

POLL_SECONDS: Final = 1.0
"""Between two looks of whoever has nothing that wakes it."""

_FREE_SECONDS: Final = 0.05
"""Between two looks for a free thread while all of them are busy."""


@asynccontextmanager
async def open_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that raises a single exception bare, so that callers can catch it by its own type.

    Nested groups of one are unwrapped too; a group of several is raised as it is.
    """
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        failure = group.exceptions[0]
        while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
    if failure is not None:
        raise failure


def until_tick(every: float, now: float) -> float:
    """Return how many seconds are left until a clock that shows ``now`` shows a multiple of ``every`` seconds.

    Loops that rest so long by the monotonic clock wake the process at the same moments, once for all of them. Without
    seconds there is nothing left.
    """
    return (math.floor(now / every) + 1) * every - now if every else 0.0


class AbandonedError(BaseException):
    """The caller of this thread's work has given up. Not an `Exception`, so that no handler in the work catches it."""


class Threads:
    """Threads for work that may hang, as any access to a file does once its file server is gone.

    A thread that hangs in the kernel cannot be ended. Each piece of work therefore gets a daemon thread of its own,
    which is abandoned on timeout or when the caller is cancelled: neither a task nor the exit of the process waits for
    it. Abandoned threads still count against ``most``, so a disk that stays away never takes more threads than that.
    Use one instance for each kind of place: a place that hangs must not block work on the others.
    """

    def __init__(self, *, most: int) -> None:
        """Allow ``most`` pieces of work at once."""
        self._most = most
        self._busy = 0
        self._lock = threading.Lock()

    async def run(
        self, work: Callable[[], T], *, seconds: float, what: str, undo: Callable[[T], object] | None = None
    ) -> T:
        """Return what ``work`` returns, and raise what it raises.

        Raises `TimeoutError`, which is an `OSError`, when that takes longer than ``seconds``, including the wait for a
        free thread; ``what`` names the work in the message. On timeout or cancellation the work is abandoned: it goes
        on until it calls `check_abandoned`, and if it returns a result after all, ``undo`` receives it. Both happen on
        the work's thread.
        """
        job: _Job[T] | None = None
        try:
            with anyio.move_on_after(seconds):
                while not self._enter():  # noqa: ASYNC110 - the thread that leaves may belong to another event loop
                    await anyio.sleep(_FREE_SECONDS)
                job = _Job(work, undo, self._leave)
                job.start()
                await job.done.wait()
                return job.outcome()
            raise TimeoutError(errno.ETIMEDOUT, f"{what} took longer than {seconds:g} s")
        finally:
            if job is not None:
                job.abandon()

    def _enter(self) -> bool:
        with self._lock:
            if self._busy >= self._most:
                return False
            self._busy += 1
            return True

    def _leave(self) -> None:
        with self._lock:
            self._busy -= 1


def check_abandoned() -> None:
    """Raise `AbandonedError` if the caller of this thread's work has given up; do nothing on any other thread."""
    if (job := getattr(_here, "job", None)) is not None:
        job.check()


class Waiter:
    """One that waits for changes. A wake-up that comes before the wait ends it at once.

    ``longest_seconds`` bounds every wait: it is short where nothing wakes, which is polling, and long where a wake-up
    is sure to come.
    """

    def __init__(self, *, longest_seconds: float = POLL_SECONDS) -> None:
        self._longest_seconds = longest_seconds
        self._woken = anyio.Event()

    def wake(self) -> None:
        """End the wait, or the next one."""
        self._woken.set()

    async def pause(self, seconds: float = math.inf) -> None:
        """Return after a wake-up, and at the latest after some seconds."""
        with anyio.move_on_after(min(seconds, self._longest_seconds)):
            await self._woken.wait()
        self._woken = anyio.Event()


class DatabaseTrouble:
    """The failures of one loop's database calls: logs them and says how long to wait before the next try.

    Every loop of the daemon treats every database error in this one way: it logs the error, waits longer each time and
    goes on. A database that is locked or away comes back; one that refuses a statement may have a damaged index, a full
    sequence or a bug of ours that concerns this loop alone. None of these is worth the running sessions, and a
    restarted daemon would find the same database. A loop whose own interval is longer than the pause keeps to its
    interval.
    """

    def __init__(self, log: Logger, while_doing: str, *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._log = log
        self._while_doing = while_doing
        self._longest_seconds = longest_seconds
        self._pause = 0.0  # seconds after the last failure; 0: the last call succeeded

    def failed(self, error: StoreError) -> float:
        """Log a failed call; return how many seconds to wait before the next try."""
        if isinstance(error, DatabaseUnavailableError):
            self._log.error(LogEvent.DATABASE_UNAVAILABLE, while_doing=self._while_doing, error=str(error))
        else:
            self._log.critical(LogEvent.DATABASE_REFUSED, while_doing=self._while_doing, error=str(error))
        self._pause = min(self._pause * 2 or FIRST_SECONDS, self._longest_seconds)
        return self._pause

    def over(self) -> None:
        """Note a call that succeeded; log the recovery if the one before had failed."""
        if self._pause:
            self._pause = 0.0
            self._log.info(LogEvent.DATABASE_RECOVERED, while_doing=self._while_doing)


_here: Final = threading.local()  # ``job``: what this thread was started for


class _Job(Generic[T]):
    """One piece of work and the thread that does it."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] | None, leave: Callable[[], None]) -> None:
        self.done = anyio.Event()
        self._work = work
        self._undo = undo
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # the work may end at the moment in which its caller gives up
        self._abandoned = False
        self._ended = False
        self._taken = False  # the caller has the outcome
        self._result: T | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the thread; raises `RuntimeError` when the machine has none left."""
        try:
            threading.Thread(target=self._run, name="work", daemon=True).start()
        except RuntimeError:
            self._leave()
            raise

    def outcome(self) -> T:
        """Return what the work returned, or raise what it raised; call this only once it has ended."""
        self._taken = True
        if self._error is not None:
            raise self._error
        return cast("T", self._result)

    def abandon(self) -> None:
        """Give up waiting. Has no effect once the outcome was taken."""
        with self._lock:
            self._abandoned = True
            too_late = self._ended and not self._taken
        if too_late:  # it ended just as its caller gave up; undoing may hang as well
            threading.Thread(target=self._take_back, name="work", daemon=True).start()

    def check(self) -> None:
        """Raise `AbandonedError` when the caller has given up."""
        if self._abandoned:
            raise AbandonedError

    def _run(self) -> None:
        _here.job = self
        try:
            try:
                self._result = self._work()
            except BaseException as error:  # noqa: BLE001 - raised in the task that waits for it
                self._error = error
            with self._lock:
                self._ended, abandoned = True, self._abandoned
            if abandoned:
                self._take_back()
        finally:
            self._leave()
            with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self.done.set)

    def _take_back(self) -> None:
        if self._error is None and self._undo is not None:
            self._undo(cast("T", self._result))
