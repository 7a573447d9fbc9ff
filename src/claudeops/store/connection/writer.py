"""One thread for everything that writes: jobs run one after the other and are never cut short.

And a second one beside it, which writes SQLite's log back into the file. SQLite itself does so within the commit that
makes the log too long, which takes ten times as long as the others, and all writes behind it wait. The second thread
has a connection of its own, waits for nothing, and makes nothing wait. What is durable, and when, commits alone decide.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import sqlite3
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import anyio
import msgspec

from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.logs import LogEvent, get_logger

T = TypeVar("T")

UNDO_TRIES: Final = 20
UNDO_PAUSE_SECONDS: Final = 1.0
"""The pause after the first failure of an undo. It doubles after each failure, so all tries together take an hour."""

_LONGEST_PAUSE_SECONDS: Final = 300.0

FIRST_PAGES: Final = 750
"""How long the log grows before it is written back. What is added meanwhile still fits into its usual length."""

AGAIN_PAGES: Final = 100
"""How much longer it grows before the next checkpoint, where a reader or a commit kept SQLite from starting it over."""

_TRIES: Final = 5  # of one checkpoint, while commits go on
_HEADER: Final = struct.Struct(">8xI4x8s8x")  # of the log: the size of a page, and the salts of its frames
_FRAME: Final = struct.Struct(">8x8s8x")  # before each page in the log: the salts, older ones behind its last frame

_CLOSED: Final = "the database is closed: the daemon is shutting down."

_TOGETHER: Final = 0.02
"""The part of the time between two looks for news by which one waits for a job that comes in the same moment, such as
a sign of life: it looks then, and the thread is woken once for both."""

_URGENT: Final = 0
_USUAL: Final = 1
_LAST: Final = 2  # the order to stop: after everything that was submitted before


class Writer:
    """A thread that runs jobs by urgency, then in their order of arrival.

    A job that has begun runs to its end, whether or not its caller still waits. A job whose caller stops waiting before
    it has begun does not run at all. A job that was done too late for its caller can be undone.
    """

    def __init__(
        self,
        *,
        wait_seconds: float,
        undo_pause_seconds: float = UNDO_PAUSE_SECONDS,
        at_last: Callable[[], None] | None = None,
    ) -> None:
        """Start the thread; ``at_last`` runs in it after all jobs."""
        self._wait_seconds = wait_seconds
        self._at_last = at_last
        self._undo_pause_seconds = undo_pause_seconds
        self._jobs: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._closing = threading.Lock()  # no job may be queued behind the order to stop
        self._closed = False
        self._owed: deque[_Owed] = deque()
        self._watch: _Watch | None = None
        # A daemon thread: a disk that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[], T], *, urgent: bool = False, undo: Callable[[T], None] | None = None) -> T:
        """Run ``job`` in the thread and return its result; urgent jobs overtake those that wait.

        ``undo`` runs in the thread, with the job's result, when the job was done after its caller had stopped waiting
        (out of time, or cancelled): a result that nobody got must not stand. While the database is unavailable the undo
        is tried again, after some later job and at most `UNDO_TRIES` times; after any other failure it is not.

        Raises what the job raises, `DatabaseUnavailableError` when the job did not end in time, and `StoreError` after
        `close`.
        """
        future: Future[T] = Future()
        turn = _Turn()
        self._submit(future, job, _URGENT if urgent else _USUAL, turn, undo)
        try:
            with anyio.move_on_after(self._wait_seconds):
                # Cancelling this wait cancels the future, which withdraws a job that has not begun.
                result = await asyncio.wrap_future(future)
                turn.taken = True
                return result
            if future.cancel():
                message = f"the database was busy for {self._wait_seconds:g} s; nothing was written."
                raise DatabaseUnavailableError(message)
            if future.done():  # it ended at the very moment the wait did
                turn.taken = True
                return future.result()
            raise DatabaseUnavailableError(
                f"the database did not finish within {self._wait_seconds:g} s; the write may still arrive."
            )
        finally:
            self._give_up(future, turn, undo)

    async def watch(self, look: Callable[[], T], is_news: Callable[[T], bool], *, seconds: float) -> T:
        """Look in the thread at every tick of so many seconds, also between jobs; return the first result that is news.

        A look that finds none wakes this thread alone, in a moment in which other loops are woken anyway. There is one
        watch at a time. Raises what a look raises, and `StoreError` after `close`.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # a caller who goes takes the watch away, below

        def try_once() -> None:
            with _Delivery(future):
                if is_news(found := look()):
                    future.set_result(found)

        with self._closing:
            if self._closed:
                raise StoreError(_CLOSED)
            self._watch = _Watch(future=future, look=try_once, seconds=seconds, at=_next_look(seconds))
            self._jobs.put(_Job(priority=_URGENT, number=next(self._numbers), run=_wake_up))
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._watch = None

    def is_awaited(self) -> bool:
        """Tell whether something urgent waits for its turn; for jobs that can be done in parts."""
        with self._jobs.mutex:
            return bool(self._jobs.queue) and self._jobs.queue[0].priority == _URGENT  # a heap: the first comes next

    def leave(self) -> None:
        """Take no more jobs, and let the thread end by itself after those that were submitted."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(_Job(priority=_LAST, number=next(self._numbers), run=None))

    async def close(self) -> None:
        """Run what was submitted before, then end the thread; bounded, and safe to call twice."""
        self.leave()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join, self._wait_seconds)

    def _submit(
        self,
        future: Future[T],
        job: Callable[[], T],
        priority: int,
        turn: _Turn,
        undo: Callable[[T], None] | None,
    ) -> None:
        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            with _Delivery(future):
                result = job()
                with turn.lock:
                    too_late = turn.given_up
                    if not too_late:
                        future.set_result(result)
                if too_late and undo is not None:
                    self._owe(partial(undo, result))

        with self._closing:
            if self._closed:
                raise StoreError(_CLOSED)
            self._jobs.put(_Job(priority=priority, number=next(self._numbers), run=run))

    def _give_up(self, future: Future[T], turn: _Turn, undo: Callable[[T], None] | None) -> None:
        """Note that the caller has stopped waiting; if a result is there unread, have it undone."""
        with turn.lock:
            turn.given_up = True
            unread = not turn.taken and future.done() and not future.cancelled() and future.exception() is None
        if unread and undo is not None:
            self._owe(partial(undo, future.result()))
            with self._closing:
                if not self._closed:
                    self._jobs.put(_Job(priority=_URGENT, number=next(self._numbers), run=_wake_up))

    def _owe(self, undo: Callable[[], None]) -> None:
        self._owed.append(_Owed(undo, pause=self._undo_pause_seconds))

    def _work(self) -> None:
        while (run := self._next()) is not None:
            run()
            del run  # and with it all that the job was given, until there is another one
            self._settle()
        if (watch := self._watch) is not None and not watch.future.done():
            watch.future.set_exception(StoreError(_CLOSED))
        self._settle(at_last=True)
        if self._at_last is not None:
            self._at_last()

    def _next(self) -> Callable[[], None] | None:
        """Return the next job, and look for news when it is time, whether or not jobs wait."""
        while (watch := self._watch) is not None and not watch.future.done():
            if time.monotonic() >= watch.at:
                watch.at = _next_look(watch.seconds)
                watch.look()
            left = max(0.0, watch.at + _TOGETHER * watch.seconds - time.monotonic())
            with suppress(queue.Empty):
                return self._jobs.get(timeout=left).run
        return self._jobs.get().run

    def _settle(self, *, at_last: bool = False) -> None:
        """Run the undos that are due. While the database is unavailable they stay owed, for a while."""
        for _ in range(len(self._owed)):
            owed = self._owed.popleft()
            if at_last or owed.not_before <= time.monotonic():
                self._try(owed)
            else:
                self._owed.append(owed)

    def _try(self, owed: _Owed) -> None:
        owed.tries += 1
        try:
            owed.undo()
        except DatabaseUnavailableError as error:
            if owed.tries >= UNDO_TRIES:
                _log_abandoned(error, owed)
                return
            owed.not_before = time.monotonic() + owed.pause
            owed.pause = min(owed.pause * 2, _LONGEST_PAUSE_SECONDS)
            self._owed.append(owed)
        except Exception as error:  # noqa: BLE001 - without its thread no later write could happen
            _log_abandoned(error, owed)


class Checkpoints:
    """Writes the log of a SQLite file back whenever it has grown; does nothing for PostgreSQL, which has no file.

    There is no thread while the log is short, and none that looks how long it is: whoever commits does.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._thread: threading.Thread | None = None
        self._turn = threading.Lock()
        self._salts, self._due = b"", FIRST_PAGES  # of the log last written back, and the frame to begin again at

    def look(self) -> None:
        """Begin a checkpoint if the log has become long; called after each commit, by one thread."""
        if self._file is None or (self._thread is not None and self._thread.is_alive()):
            return
        due = self._due if _log_salts(self._file) == self._salts else FIRST_PAGES
        if _log_has(self._file, due):
            # A daemon thread: a disk that never answers must not keep the process from ending.
            self._thread = threading.Thread(target=self._try, args=(self._file,), name="store-checkpoint", daemon=True)
            with suppress(RuntimeError):  # no thread can be started: a later commit tries again
                self._thread.start()

    def run(self) -> bool:
        """Write the log back now; ``False`` if a reader was in the way. Raises `sqlite3.Error`."""
        return self._file is None or self._write_back(self._file)

    def wait(self, seconds: float) -> None:
        """Wait for a checkpoint that is under way; bounded."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(seconds)

    def _try(self, file: Path) -> None:
        with suppress(sqlite3.Error):  # commits meet the same disk, and report what is wrong with it
            self._write_back(file)

    def _write_back(self, file: Path) -> bool:
        length = written = before = 0
        with self._turn, closing(_connected(file)) as reader, closing(_connected(file)) as connection:
            for _ in range(_TRIES):
                self._salts = _log_salts(file)
                reader.execute("BEGIN")
                reader.execute("PRAGMA schema_version").fetchone()  # so that it has a snapshot
                length, written = self._copy(connection)
                reader.execute("COMMIT")
                self._due = length + AGAIN_PAGES
                # SQLite starts its log over only when a commit finds all of it written back.
                if written == before or (written == length and not _log_has(file, length + 1)):
                    break
                before = written
        return written == length

    def _copy(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Copy the log beside a reader; return how many pages it has, and how many are written back.

        Without that reader a commit might start the log over while a checkpoint begins, and SQLite before 3.51.3 might
        then take the first pages of the new log for written back: they would be lost. It does not start the log over
        while there is a reader of it, and copies nothing while there is one of the file alone.
        """
        _, length, written = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return length, written


def _connected(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _log_salts(file: Path) -> bytes:
    """Return the mark of the frames of the log, which older ones do not have; nothing if there is no log."""
    _, salts = _HEADER.unpack(_part(file, 0, _HEADER.size))
    return bytes(salts)


def _log_has(file: Path, number: int) -> bool:
    """Check whether the log has become so many pages long."""
    page, salts = _HEADER.unpack(_part(file, 0, _HEADER.size))
    place = _HEADER.size + (number - 1) * (_FRAME.size + page)
    return page > 0 and _FRAME.unpack(_part(file, place, _FRAME.size)) == (salts,)


def _part(file: Path, place: int, size: int) -> bytes:
    """Return bytes of the log; zeros where it has none. SQLite has no lock on it that would be lost by closing it."""
    with suppress(OSError):
        log = os.open(f"{file}-wal", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(log, size, place).ljust(size, b"\0")
        finally:
            os.close(log)
    return bytes(size)


@dataclass(order=True, slots=True)
class _Job:
    """An entry of the thread's queue; ``run`` is ``None`` for the order to stop."""

    priority: int
    number: int  # order of arrival within a priority
    run: Callable[[], None] | None = field(compare=False)


class _Delivery:
    """Hands whatever a job raises to its waiting caller, so that the thread lives on."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True


class _Turn(msgspec.Struct):
    """The race between the thread that has a result and the caller who stops waiting for it."""

    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    given_up: bool = False
    taken: bool = False


class _Watch(msgspec.Struct, kw_only=True):
    """What the thread looks for while it has nothing else to do."""

    future: Future[Any]
    look: Callable[[], None]
    seconds: float  # between two looks
    at: float  # monotonic seconds


def _next_look(seconds: float) -> float:
    from claudeops.tasks import until_tick  # noqa: PLC0415 - a command looks at nothing again

    now = time.monotonic()
    return now + until_tick(seconds, now)


class _Owed(msgspec.Struct):
    """An undo that is still to be done."""

    undo: Callable[[], None]
    pause: float  # seconds from the next failure to the try after it
    tries: int = 0
    not_before: float = 0.0  # monotonic seconds


def _log_abandoned(error: Exception, owed: _Owed) -> None:
    get_logger().critical(LogEvent.UNDO_GIVEN_UP, error=f"{type(error).__name__}: {error}", tries=owed.tries)


def _wake_up() -> None:
    """Do nothing: the job only wakes the thread, so that it runs what is owed."""
