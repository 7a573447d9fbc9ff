"""The way of a CLI's output into a session: bytes → lines → redacted → log → frames.

Whatever arrived together goes together: one scan for secrets, one write. Lines are with the log before anybody acts on
them.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final, Self

import anyio.to_thread
import msgspec

from claudeops.domain.stream import LineSplitter, decode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from claudeops.domain.redact import Redactor
    from claudeops.domain.stream import Frame, Malformed
    from claudeops.engine.logfile import SessionLog
    from claudeops.engine.ports import Clock

    Decoded = list[Frame | Malformed | None]

CHUNK_BYTES: Final = 256 * 1024
"""So much is best read at once: what is done for each chunk is done seldom, and the chunk stays in the CPU's cache."""

_WORTH_A_THREAD_BYTES: Final = 64 * 1024
"""From here on it pays to decode on one core and scan on another; ordinary sessions stay below and start no thread."""

_LONG_BYTES: Final = 1024 * 1024
"""A line from here on is taken on a thread: scanning and decoding 64 MiB would hold up every other session."""

_JOIN_SECONDS: Final = 5.0


class Taken(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line, as `decode` gives it."""

    asked: Frame | Malformed | None  # as the CLI printed it: for the gate alone
    kept: Frame | Malformed | None  # without its secrets: for everything else
    arrived_at: datetime


class Intake:
    """Takes a child's output in order. Use it as a context manager: it may have a thread to end."""

    def __init__(self, *, redactor: Redactor, sink: SessionLog, clock: Clock) -> None:
        self._redactor = redactor
        self._sink = sink
        self._clock = clock
        self._splitter = LineSplitter()
        self._decoder = _Decoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoder.close()

    async def take(self, chunk: bytes) -> list[Taken]:
        """Do what `push` does, without holding up the event loop for a long line. One caller at a time."""
        if self._splitter.pending + len(chunk) < _LONG_BYTES:
            return self.push(chunk)
        return await anyio.to_thread.run_sync(self.push, chunk)

    def push(self, chunk: bytes) -> list[Taken]:
        """Return the lines that ``chunk`` completes, in order. They are with the log already."""
        return self._take(self._splitter.push(chunk))

    def flush(self) -> list[Taken]:
        """Return the last line if the stream ended without a newline."""
        last = self._splitter.flush()
        return [] if last is None else self._take([last])

    def _take(self, lines: Sequence[bytes]) -> list[Taken]:
        if not lines:
            return []
        arrived_at = self._clock.now()
        joined = b"\n".join(lines)  # once for all: to scan, and to write if nothing was found
        redacted, asked = self._read(lines, joined)
        if redacted is lines:
            self._sink.extend(lines, arrived_at, joined=joined)
            return [Taken(asked=frame, kept=frame, arrived_at=arrived_at) for frame in asked]
        self._sink.extend(redacted, arrived_at)
        return [
            Taken(asked=frame, kept=frame if clean is line else decode(clean), arrived_at=arrived_at)
            for line, clean, frame in zip(lines, redacted, asked, strict=True)
        ]

    def _read(self, lines: Sequence[bytes], joined: bytes) -> tuple[Sequence[bytes], Decoded]:
        if len(joined) < _WORTH_A_THREAD_BYTES:
            return self._redactor.lines(lines, joined), _decoded(lines)
        # google-re2 lets go of the interpreter while it scans, so both are done in little more than the time of one.
        self._decoder.begin(lines)
        try:
            redacted = self._redactor.lines(lines, joined)
        finally:
            asked = self._decoder.result()
        return redacted, _decoded(lines) if asked is None else asked


class _Decoder:
    """A thread that decodes while its caller does something else; it is started when it is first needed.

    Two queues and no futures: those take as long as decoding ten lines.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._todo: queue.SimpleQueue[Sequence[bytes] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Decoded | None] = queue.SimpleQueue()

    def begin(self, lines: Sequence[bytes]) -> None:
        """Decode ``lines``; `result` is to be called before the next ones."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="decode", daemon=True)
            self._thread.start()
        self._todo.put(lines)

    def result(self) -> Decoded | None:
        """Wait for as long as decoding takes; ``None`` if the thread died of it, out of memory for instance."""
        decoded = self._done.get()
        if decoded is None:
            self._thread = None
        return decoded

    def close(self) -> None:
        """End the thread, if there is one."""
        if self._thread is not None:
            self._todo.put(None)
            self._thread.join(_JOIN_SECONDS)

    def _work(self) -> None:
        while (lines := self._todo.get()) is not None:
            decoded: Decoded | None = None
            try:
                decoded = _decoded(lines)
            finally:
                self._done.put(decoded)


def _decoded(lines: Sequence[bytes]) -> Decoded:
    return [decode(line) for line in lines]
