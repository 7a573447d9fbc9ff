"""Task groups, threads for work that may hang, and how a loop waits: for a wake-up, or for a database that fails."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Generic, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from claudeops.errors import DatabaseFullError, DatabaseUnavailableError, StoreError
from claudeops.logs import LogEvent, Logger

T = TypeVar("T")

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
"""Between two tries of a loop whose database fails; the pause doubles from the first value up to the longest."""

POLL_SECONDS: Final = 1.0
"""Between two looks of whoever has nothing that wakes it."""

_FREE_SECONDS: Final = 0.05
"""Between two looks for a free thread while all of them are busy."""

_TURN_SECONDS: Final = 1.0
"""For which work that has joined other work waits for its turn and its end, before it has a thread to itself;
half of its time where that is short."""

_IDLE_SECONDS: Final = 15.0
"""For which a thread waits for other work: looks that come every few seconds begin no thread each."""


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

    A thread that hangs in the kernel cannot be ended. Each piece of work therefore has a daemon thread to itself, which
    is abandoned on timeout or when the caller is cancelled: neither a task nor the exit of the process waits for it.
    One whose work has ended waits a while for other work, of whichever instance. Abandoned threads still count against
    ``most``, so a disk that stays away never takes more threads than that.
    Use one instance for each kind of place: a place that hangs must not block work on the others.
    """

    def __init__(self, *, most: int, joins: bool = False) -> None:
        """Allow ``most`` pieces of work at once.

        ``joins``: the work takes no time as a rule, so what begins in one moment, of whichever instance, is done by one
        thread, and wakes the process once. What cannot begin there within a second has a thread to itself.
        """
        self._most = most
        self._joins = joins
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
                if self._joins:
                    await job.join(min(_TURN_SECONDS, seconds / 2))
                if not job.is_over():
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
    goes on. A full disk of the database's server is one condition of all loops of the process: the first that meets it
    and the last that is over it log it, each other one in its details (debug). A database that is locked or away comes
    back; one that refuses a statement may have a damaged index, a full sequence or a bug of ours that concerns this
    loop alone. None of these is worth the running sessions, and a restarted daemon would find the same database. A loop
    whose own interval is longer than the pause keeps to its interval.
    """

    def __init__(self, log: Logger, while_doing: str, *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._log = log
        self._while_doing = while_doing
        self._longest_seconds = longest_seconds
        self._pause = 0.0  # seconds after the last failure; 0: the last call succeeded

    def failed(self, error: StoreError) -> float:
        """Log a failed call; return how many seconds to wait before the next try."""
        if isinstance(error, DatabaseFullError):
            if not _without_room:
                self._log.error(LogEvent.DATABASE_FULL, error=str(error))
            _without_room.add(self)
            self._log.debug(LogEvent.DATABASE_UNAVAILABLE, while_doing=self._while_doing, error=str(error))
        elif isinstance(error, DatabaseUnavailableError):
            self._log.error(LogEvent.DATABASE_UNAVAILABLE, while_doing=self._while_doing, error=str(error))
        else:
            self._log.critical(LogEvent.DATABASE_REFUSED, while_doing=self._while_doing, error=str(error))
        self._pause = min(self._pause * 2 or FIRST_SECONDS, self._longest_seconds)
        return self._pause

    def over(self) -> None:
        """Note a call that succeeded; log the recovery if the one before had failed."""
        if not self._pause:
            return
        self._pause = 0.0
        if self not in _without_room:
            self._log.info(LogEvent.DATABASE_RECOVERED, while_doing=self._while_doing)
            return
        _without_room.discard(self)
        self._log.debug(LogEvent.DATABASE_RECOVERED, while_doing=self._while_doing)
        if not _without_room:
            self._log.info(LogEvent.DATABASE_HAS_ROOM)


def log_unavailable(log: Logger, while_doing: str, error: DatabaseUnavailableError) -> None:
    """Log a call that is not tried again; in the details (debug) where a loop has logged that the disk is full."""
    level = log.debug if isinstance(error, DatabaseFullError) and _without_room else log.error
    level(LogEvent.DATABASE_UNAVAILABLE, while_doing=while_doing, error=str(error))


_without_room: Final = weakref.WeakSet[DatabaseTrouble]()  # whose last calls found the disk of the server full
_here: Final = threading.local()  # ``job``: what this thread does
_idle: Final = list["_WorkThread"]()  # the last to end is the first to be used again, so that the others may go
os.register_at_fork(after_in_child=_idle.clear)  # a child has none of these threads
_joined: Final = dict[asyncio.AbstractEventLoop, list["_Job[Any]"]]()  # what begins in this moment


class _WorkThread:
    """A thread that does one piece of work after the other, and ends when there has been none for a while."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Sequence[_Job[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="work", daemon=True).start()

    @staticmethod
    def give(jobs: Sequence[_Job[Any]]) -> None:
        """Have an idle thread do some jobs; raises `RuntimeError` when there is none, and the machine has none left."""
        try:
            thread = _idle.pop()
        except IndexError:
            thread = _WorkThread()
        thread._jobs.put(jobs)

    def _serve(self) -> None:
        while True:
            try:
                jobs = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                try:
                    _idle.remove(self)
                except ValueError:  # it is being given jobs at this moment
                    continue
                return
            over = [job for job in jobs if job.run()]
            _idle.append(self)  # before a caller may have more work
            if over:
                over[0].wake(over)
            del jobs, over  # and with them all that they were given, until there are others


class _Job(Generic[T]):
    """One piece of work, and what comes of it."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] | None, leave: Callable[[], None]) -> None:
        self.done = anyio.Event()
        self._work = work
        self._undo = undo
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # the work may end at the moment in which its caller gives up
        self._made_at = time.monotonic()
        self._has_joined = False
        self._begun = False  # or withdrawn
        self._abandoned = False
        self._ended = False
        self._taken = False  # the caller has the outcome
        self._result: T | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Have a thread do the work, if none does; raises `RuntimeError` when the machine has none left."""
        try:
            _WorkThread.give([self])
        except RuntimeError:
            if self._begin():
                self._leave()
            raise

    async def join(self, seconds: float) -> None:
        """Have one thread do the work with what else begins in this moment, and wait for it, but not for long."""
        self._has_joined = True
        if (joined := _joined.get(self._loop)) is None:
            joined = _joined[self._loop] = []
            self._loop.call_soon(_begin_joined, self._loop)  # after all that has been woken in the same moment
        joined.append(self)
        with anyio.move_on_after(seconds):
            await self.done.wait()

    def is_over(self) -> bool:
        """Return whether the work has ended, also where its caller was not woken yet."""
        return self._ended

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
        elif self._has_joined and self._begin():  # it waits behind what hangs
            self._leave()

    def check(self) -> None:
        """Raise `AbandonedError` when the caller has given up."""
        if self._abandoned:
            raise AbandonedError

    def run(self) -> bool:
        """Do the work, on a thread, unless another one does; return whether its caller is still to be woken."""
        if not self._begin():
            return False
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
            _here.job = None
            self._leave()
        if time.monotonic() < self._made_at + _TURN_SECONDS / 4:  # else its caller may have looked already
            return True
        self.wake([self])
        return False

    def wake(self, jobs: Sequence[_Job[Any]]) -> None:
        """Wake the callers of some jobs, all of one event loop."""

        def done() -> None:
            for job in jobs:
                job.done.set()

        with suppress(RuntimeError):  # the event loop is closed, and no caller waits any more
            self._loop.call_soon_threadsafe(done)

    def _begin(self) -> bool:
        with self._lock:
            has_begun, self._begun = self._begun, True
        return not has_begun

    def _take_back(self) -> None:
        if self._error is None and self._undo is not None:
            self._undo(cast("T", self._result))


def _begin_joined(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # no thread is left: each caller tries once more by itself, and says so
        _WorkThread.give(_joined.pop(loop))
