"""Tasks and threads: a task group whose errors have a caller to read them, and threads for work that may hang.

How a loop of the daemon gets over a database that fails: it goes on, says so each time, and waits longer each time.

One way for all of them, whatever the database says. That it is locked or away passes; that it refuses a statement may
be a damaged index, a full sequence, a fault of ours that concerns this loop alone. None of these is worth the sessions
that run, and a daemon that is started again finds the same database.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.logs import LogEvent, Logger

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.05
"""Between two looks for room, while as many pieces of work are under way as may be."""


@asynccontextmanager
async def open_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that lets a single exception out as it is: what the caller's block raises is the caller's.

    Groups of one within groups of one are opened too.
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


class AbandonedError(BaseException):
    """Nobody waits for this thread's work any more. Not an `Exception`: no handler of the work itself shall take it."""


class Threads:
    """Threads for work that may hang, as every access to a file may whose server is gone.

    A thread that hangs in the kernel cannot be ended. So each piece of work gets a daemon thread of its own, which is
    left behind when its time is over or its caller is cancelled: neither a task nor the end of the process waits for
    it. Those left behind count, so that a disk that stays away takes ``most`` threads and no more. One instance for
    each kind of place: one that hangs must not keep work away from the others.
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

        Raises `TimeoutError`, which is an `OSError`, when that takes longer than ``seconds``, the wait for a thread
        included; ``what`` names the work in its sentence. On timeout and when cancelled the work is left to itself:
        `check_abandoned` ends it where it asks, and ``undo`` gets what it returns all the same. Both on its thread.
        """
        job: _Job[T] | None = None
        try:
            with anyio.move_on_after(seconds):
                while not self._enter():  # noqa: ASYNC110 - who makes room may be a thread of another event loop
                    await anyio.sleep(_LOOK_SECONDS)
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
    """End the work of this thread if nobody waits for it any more; does nothing on other threads."""
    if (job := getattr(_here, "job", None)) is not None:
        job.check()


_here: Final = threading.local()  # ``job``: what this thread was started for


class _Job(Generic[T]):
    """One piece of work and the thread that does it."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] | None, leave: Callable[[], None]) -> None:
        self.done = anyio.Event()
        self._work = work
        self._undo = undo
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # the work may end while its caller's patience does
        self._abandoned = False
        self._ended = False
        self._taken = False  # the outcome, by the caller
        self._result: T | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin; raises `RuntimeError` when the machine has no thread left."""
        try:
            threading.Thread(target=self._run, name="work", daemon=True).start()
        except RuntimeError:
            self._leave()
            raise

    def outcome(self) -> T:
        """Return or raise what the work did; it has ended."""
        self._taken = True
        if self._error is not None:
            raise self._error
        return cast("T", self._result)

    def abandon(self) -> None:
        """Wait no longer. Means nothing once the outcome was taken."""
        with self._lock:
            self._abandoned = True
            too_late = self._ended and not self._taken
        if too_late:  # it ended in the moment in which its caller gave up; undoing may hang as well
            threading.Thread(target=self._take_back, name="work", daemon=True).start()

    def check(self) -> None:
        """Raise `AbandonedError` when nobody waits."""
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
            with suppress(RuntimeError):  # the loop is closed: nobody is left to hear
                self._loop.call_soon_threadsafe(self.done.set)

    def _take_back(self) -> None:
        if self._error is None and self._undo is not None:
            self._undo(cast("T", self._result))


FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
"""Between two tries; it doubles from the first to the longest. A database that is back is noticed after this time."""


class DatabaseTrouble:
    """What one loop knows of the failures of its calls. A loop that has a longer beat of its own keeps to that."""

    def __init__(self, log: Logger, while_doing: str, *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._log = log
        self._while_doing = while_doing
        self._longest_seconds = longest_seconds
        self._pause = 0.0  # seconds after the last failure; 0: the last call was well

    def failed(self, error: StoreError) -> float:
        """Log a failure; return how many seconds to wait before the next try."""
        if isinstance(error, DatabaseUnavailableError):
            self._log.error(LogEvent.DATABASE_UNAVAILABLE, while_doing=self._while_doing, error=str(error))
        else:
            self._log.critical(LogEvent.DATABASE_REFUSED, while_doing=self._while_doing, error=str(error))
        self._pause = min(self._pause * 2 or FIRST_SECONDS, self._longest_seconds)
        return self._pause

    def over(self) -> None:
        """Note that a call was well; the end of a trouble is logged."""
        if self._pause:
            self._pause = 0.0
            self._log.info(LogEvent.DATABASE_RECOVERED, while_doing=self._while_doing)
