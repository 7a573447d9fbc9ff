"""Writes the lines of the daemon's log, so that who logs never waits for who reads.

A pipe whose reader stands still takes no more than 64 KiB; a write to it then waits for ever, and with it the event
loop and every session. So a thread of its own writes, in order, and what waits for it is bounded. What found no room or
could not be written is lost; a line in its place says how many, as soon as somebody reads again.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
"""So much waits for a reader that stands still; of a busy daemon at level ``info`` that is an hour."""


class Stream(Protocol):
    """Where the log goes; a text file is one, and one with a descriptor is written without it."""

    def write(self, text: str, /) -> object:
        """Take text; may raise `OSError` or `ValueError`."""

    def flush(self) -> object:
        """Pass on what is buffered; may raise the same."""

    def isatty(self) -> bool:
        """Tell a terminal from a file."""


def descriptor_of(stream: Stream | None) -> int | None:
    """Return a descriptor of our own for what a stream writes to; ``None`` for one in memory, or closed.

    Our own: the stream may be closed while we write, and its number be given to a file that is no log.
    """
    try:
        return os.dup(stream.fileno()) if stream is not None else None  # type: ignore[attr-defined]  # see below
    except (AttributeError, OSError, ValueError):  # what has none says so in different ways
        return None


class StreamWriter:
    """Writes to a stream in memory, at once; one that fails costs the line, never the daemon."""

    def __init__(self, stream: Stream | None, line_start: str = "") -> None:
        self._stream = stream
        self._line_start = line_start
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Write one line."""
        if self._stream is None:
            return
        # OSError: a full disk, a reader that is gone. ValueError: a closed stream.
        with self._lock, suppress(OSError, ValueError):
            self._stream.write(f"{self._line_start}{line}\n")
            self._stream.flush()

    def flush(self, _seconds: float) -> bool:
        """Return ``True``: nothing waits."""
        return True

    def close(self) -> None:
        """Write no more."""
        self._stream = None


class FileWriter:
    """Writes to a descriptor from a thread, which begins with the first line. Safe from any thread."""

    def __init__(self, descriptor: int, encoding: str, line_start: str, lost: Callable[[int], str]) -> None:
        """Write to ``descriptor``, which is the writer's to close; ``lost`` makes the line that so many are missing."""
        self._descriptor = descriptor
        self._encoding = encoding
        self._line_start = line_start
        self._lost_line = lost
        self._changed = threading.Condition()  # held for a few instructions: the event loop takes it too
        self._waiting: deque[bytes | int] = deque()  # lines, and how many are missing between them
        self._waiting_bytes = 0
        self._no_room = 0  # lines that found none, behind the last one that waits
        self._writing = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._failed = 0  # lines that could not be written; this and the next are the thread's own
        self._torn = False  # a part of a line was written

    def write(self, line: str) -> None:
        """Take one line. Never blocks, never raises."""
        content = self._encoded(line)
        with self._changed:
            if self._closed:
                return
            if self._waiting and self._waiting_bytes + len(content) > MOST_WAITING_BYTES:
                self._no_room += 1
                return
            self._close_gap()
            self._waiting.append(content)
            self._waiting_bytes += len(content)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():  # after a fork only the caller's thread is there
                self._start()

    def flush(self, seconds: float) -> bool:
        """Wait until nothing waits any more, at most ``seconds``; tell whether that is so."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._waiting or self._writing or self._no_room:
                if self._thread is None or not self._thread.is_alive():
                    return False
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return False
        return True

    def close(self) -> None:
        """Take no more; what waits is still written. Does not wait for that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._thread is None:
                os.close(self._descriptor)

    def _start(self) -> None:
        # A daemon thread: a reader that stands still must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        with suppress(RuntimeError):  # no thread is left on this machine: the next line tries again
            self._thread.start()

    def _close_gap(self) -> None:
        if self._no_room:
            self._waiting.append(self._no_room)
            self._no_room = 0

    def _encoded(self, line: str) -> bytes:
        return f"{self._line_start}{line}\n".encode(self._encoding, "backslashreplace")

    # --- on the thread ------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, int):
                self._failed += item
                self._tell_lost()
            elif self._failed and not self._tell_lost():
                self._failed += 1  # nor would this line be
            elif not self._written(item):
                self._failed += 1
        os.close(self._descriptor)

    def _next(self) -> bytes | int | None:
        """Return what is to be written next, once there is something; ``None`` when nothing comes any more."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            while not self._waiting and not self._no_room:
                if self._closed:
                    return None
                self._changed.wait()
            if not self._waiting:
                self._close_gap()
            item = self._waiting.popleft()
            self._waiting_bytes -= 0 if isinstance(item, int) else len(item)
            self._writing = True
            return item

    def _tell_lost(self) -> bool:
        """Write how many lines are missing here, if somebody reads that."""
        if not self._written(self._encoded(self._lost_line(self._failed))):
            return False
        self._failed = 0
        return True

    def _written(self, content: bytes) -> bool:
        rest = memoryview(b"\n" + content if self._torn else content)
        while rest:
            try:
                done = os.write(self._descriptor, rest)
            except BlockingIOError:  # somebody else who has it open made it so
                self._await_room()
            except OSError:  # a full disk, a reader that is gone
                return False
            else:
                rest = rest[done:]
                self._torn = bool(rest)
        return True

    def _await_room(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll()
