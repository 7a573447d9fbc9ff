"""Writes the lines of the daemon's log without ever making the logging code wait for the log's reader.

A pipe holds 64 KiB. When its reader stands still, the next write blocks for ever, and with it the event loop and every
session. So a thread of its own writes the lines in order, and the queue in front of it is bounded. Lines that find no
room, or cannot be written, are lost; as soon as writing works again, a line in their place says how many.
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
"""Bound of the queue for a reader that stands still: about an hour of a busy daemon at level ``info``."""


class Stream(Protocol):
    """Where the log goes, such as a text file. One that has a descriptor is written through a copy of that."""

    def write(self, text: str, /) -> object:
        """Take text; may raise `OSError` or `ValueError`."""

    def flush(self) -> object:
        """Pass on what is buffered; may raise `OSError` or `ValueError`."""

    def isatty(self) -> bool:
        """Return whether this is a terminal."""


def descriptor_of(stream: Stream | None) -> int | None:
    """Return a duplicate of a stream's descriptor; ``None`` for a stream in memory, or a closed one.

    A duplicate, because the stream may be closed while we write, and its number reused for a file that is no log.
    """
    try:
        return os.dup(stream.fileno()) if stream is not None else None  # type: ignore[attr-defined]  # see below
    except (AttributeError, OSError, ValueError):  # streams without a descriptor say so in different ways
        return None


class StreamWriter:
    """Writes to a stream in memory, at once. A write that fails costs the line, never the daemon."""

    def __init__(self, stream: Stream | None, line_start: str = "") -> None:
        self._stream = stream
        self._line_start = line_start
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """Write one line."""
        if self._stream is None:
            return
        # OSError: a full disk, or a reader that is gone. ValueError: a closed stream.
        with self._lock, suppress(OSError, ValueError):
            self._stream.write(f"{self._line_start}{line}\n")
            self._stream.flush()

    def flush(self, _seconds: float) -> bool:
        """Return ``True``: nothing is ever queued."""
        return True

    def close(self) -> None:
        """Drop every later line."""
        self._stream = None


class FileWriter:
    """Writes to a descriptor from a thread of its own, started by the first line. Safe from any thread."""

    def __init__(self, descriptor: int, encoding: str, line_start: str, lost: Callable[[int], str]) -> None:
        """Own ``descriptor`` and write to it; ``lost`` returns the line that says how many lines are missing."""
        self._descriptor = descriptor
        self._encoding = encoding
        self._line_start = line_start
        self._lost_line = lost
        self._changed = threading.Condition()  # held for a few instructions only: the event loop takes it too
        self._waiting: deque[bytes | int] = deque()  # lines, and counts of lines missing between them
        self._waiting_bytes = 0
        self._no_room = 0  # lines dropped since the last one that was queued
        self._writing = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._failed = 0  # lines that could not be written; only the thread touches this and the next
        self._torn = False  # only a part of the last line was written

    def write(self, line: str) -> None:
        """Queue one line. Never blocks, never raises."""
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
            if self._thread is None or not self._thread.is_alive():  # a fork keeps only the caller's thread
                self._start()

    def flush(self, seconds: float) -> bool:
        """Wait until the queue is written, at most ``seconds``; return whether it is."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._waiting or self._writing or self._no_room:
                if self._thread is None or not self._thread.is_alive():
                    return False
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return False
        return True

    def close(self) -> None:
        """Drop every later line; what is queued is still written, without waiting for that here."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._thread is None:
                os.close(self._descriptor)

    def _start(self) -> None:
        # A daemon thread: a reader that stands still must not keep the process from exiting.
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        with suppress(RuntimeError):  # the machine has no thread left: the next line tries again
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
                self._report_lost()
            elif self._failed and not self._report_lost():
                self._failed += 1  # this line could not be written either
            elif not self._written(item):
                self._failed += 1
        os.close(self._descriptor)

    def _next(self) -> bytes | int | None:
        """Wait for the next item and return it; ``None`` once the writer is closed and the queue empty."""
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

    def _report_lost(self) -> bool:
        """Write how many lines are missing here; return whether that worked."""
        if not self._written(self._encoded(self._lost_line(self._failed))):
            return False
        self._failed = 0
        return True

    def _written(self, content: bytes) -> bool:
        rest = memoryview(b"\n" + content if self._torn else content)
        while rest:
            try:
                done = os.write(self._descriptor, rest)
            except BlockingIOError:  # another process that has it open made it non-blocking
                self._await_room()
            except OSError:  # a full disk, or a reader that is gone
                return False
            else:
                rest = rest[done:]
                self._torn = bool(rest)
        return True

    def _await_room(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll()
