"""A session's log files, and the reader of the CLI's output that fills them.

`SessionLog` writes raw redacted NDJSON, an arrival index beside it, and stderr. It writes on a thread of its own, so
that the reader of the child's output waits for the disk only when that falls far behind; then the reader waits, and
with it the CLI, whose output stays in the kernel's buffers. Order of writes: the lines' bytes before their index
entries, so that an index entry never points at nothing.

`OutputReader` takes the CLI's output from bytes to frames: bytes → lines → redacted → log → frames. Lines that arrived
together stay together: one scan for secrets, one write. Lines are handed to the log before anybody acts on them.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.to_thread
import msgspec

from claudeops.clock import Clock
from claudeops.formats.stream import LONG_BYTES, LineSplitter, Malformed, StreamFrame, decode_abridged
from claudeops.tasks import Threads
from claudeops.text.redact import Redactor

Decoded = list[StreamFrame | Malformed | None]

FLUSH_SECONDS: Final = 30.0
"""How long a session waits for its own lines to reach the disk before it goes on without."""

_STDERR_LIMIT_BYTES: Final = 16 * 1024 * 1024
_UNSYNCED_BYTES: Final = 8 * 1024 * 1024
"""Bytes between two calls of fdatasync; this bounds what the last `SessionLog.sync` waits for."""

MOST_WAITING_BYTES: Final = 8 * 1024 * 1024
"""How much may wait for a disk before reading from the CLI pauses; after a longer line nothing may."""

STALL_SECONDS: Final = 60.0
"""A disk that takes nothing for this long, while the CLI waits for it, has failed."""

_LOOK_SECONDS: Final = 0.01
_PIECE_BYTES: Final = 4 * 1024 * 1024
"""Size of one write: each one that ends shows that the disk still works."""

_ENTRIES: Final = 4096
"""Entries of the index that are made at once: of a flood of empty lines they are longer than the lines."""

_NEW_FILE: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READABLE: Final = 0o666  # what the umask leaves of it

CHUNK_BYTES: Final = 256 * 1024
"""The best size of one read: large enough to do the work per chunk seldom, small enough for the CPU's cache."""

_WORTH_A_THREAD_BYTES: Final = 64 * 1024
"""From this size on it pays to decode on a second core; ordinary sessions stay below and start no thread."""

_WORTH_AHEAD_BYTES: Final = 1024
"""Shorter lines, on average, are decoded one by one when they are taken. Decoded together they take four times as
long: thousands of objects at once do not fit the CPU's cache, and keep the garbage collector at work."""

_JOIN_SECONDS: Final = 5.0


class SessionLog:
    """Append-only files of one session; opened exclusively, never over an existing file."""

    def __init__(self, path: Path, *, stall_seconds: float = STALL_SECONDS) -> None:
        """Open ``path``, ``path.index`` and ``path.stderr``; raises `OSError` (`FileExistsError` included). Blocks."""
        self.path = path
        self._stall_seconds = stall_seconds
        self.failed: OSError | None = None  # the first failure; nothing is taken after it
        self._todo: queue.SimpleQueue[_Lines | _Stderr | _Sync | None] = queue.SimpleQueue()
        self._files: list[int] = []
        try:
            for suffix in (".ndjson", ".index", ".stderr"):
                self._files.append(os.open(path.with_suffix(suffix), _NEW_FILE, _READABLE))
        except OSError:
            self._close_files()
            raise
        self._lines = 0
        self._offset = 0
        self._unsynced = 0  # bytes
        self._stderr_bytes = 0  # taken; counted by the reader alone
        self._taken = 0  # bytes of lines and stderr; counted by the reader alone
        self._alone_until = 0  # of what was taken: a long line, which is held until it is written, and no other beside
        self._written = 0  # the same, counted by the writer alone, so that neither needs a lock
        self._waits = Threads(most=2)
        self._thread = threading.Thread(target=self._work, name=f"log-{path.stem}", daemon=True)
        self._thread.start()

    def append(self, line: bytes, arrived_at: datetime) -> None:
        """Take one redacted line without its terminator. Never blocks, never raises."""
        self.extend((line,), arrived_at)

    def extend(self, lines: Sequence[bytes], arrived_at: datetime, *, joined: bytes | None = None) -> None:
        """Take redacted lines without their terminators; the caller must not change them. Never blocks, never raises.

        Pass lines that arrived together in one call: they cost one write, and one entry each. ``joined``: the same
        lines with LF between them, if the caller has joined them already.
        """
        if not lines or self.failed is not None:
            return
        text = b"\n".join(lines) if joined is None else joined  # a single line is not copied
        self._taken += len(text)
        if len(text) > MOST_WAITING_BYTES:
            self._alone_until = self._taken
        # Their lengths, and not the lines themselves: what waits for the disk is held once.
        self._todo.put(_Lines(text, tuple(map(len, lines)), arrived_at))

    def append_stderr(self, content: bytes) -> None:
        """Take redacted stderr, up to a bound. Never blocks, never raises."""
        if (room := _STDERR_LIMIT_BYTES - self._stderr_bytes) > 0 and self.failed is None:
            kept = content[:room]
            self._taken += len(kept)
            self._todo.put(_Stderr(kept))
            self._stderr_bytes += len(content)

    async def room(self) -> None:
        """Return once the disk has caught up with what was taken, to within `MOST_WAITING_BYTES`, or has failed.

        A longer line is written by then.

        The readers of the CLI's output and stderr call it before each read. A disk that takes nothing meanwhile fails
        after `STALL_SECONDS`.
        """
        seen, deadline = self._written, anyio.current_time() + self._stall_seconds
        while self.failed is None and (waiting := self._waiting()):
            await anyio.sleep(_LOOK_SECONDS)
            if self._written != seen:
                seen, deadline = self._written, anyio.current_time() + self._stall_seconds
            elif anyio.current_time() >= deadline:
                self.failed = OSError(errno.ETIMEDOUT, f"the disk takes nothing any more: {waiting} bytes wait for it")

    def _waiting(self) -> int:
        """Return how many bytes wait for the disk, if that is too much."""
        waiting = self._taken - self._written
        return waiting if waiting > MOST_WAITING_BYTES or self._written < self._alone_until else 0

    async def sync(self) -> None:
        """Wait until everything taken so far is on disk (fsync), or failed; at most `FLUSH_SECONDS`."""
        done = threading.Event()
        self._todo.put(_Sync(done))
        await self._waited_for(lambda: done.wait(FLUSH_SECONDS))

    async def aclose(self) -> None:
        """Write what is left, fsync, close. Bounded by `FLUSH_SECONDS`."""
        with anyio.CancelScope(shield=True):
            self.close_later()
            await self._waited_for(lambda: self._thread.join(FLUSH_SECONDS))

    def close_later(self) -> None:
        """Take no more lines, write what was taken and close the files, all without waiting for it."""
        self._todo.put(None)

    async def _waited_for(self, wait: Callable[[], object]) -> None:
        with suppress(TimeoutError):
            await self._waits.run(wait, seconds=FLUSH_SECONDS, what="writing the log")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- on the writer's thread -----------------------------------------------------------------------

    def _work(self) -> None:
        refused = False  # by the disk; nothing is written after a gap
        while (item := self._todo.get()) is not None:
            try:
                if isinstance(item, _Sync):
                    self._fsync()
                elif not refused:
                    self._write(item)
                    item = None  # it may be a long line, and a disk takes its time
                    self._sync_much()
            except OSError as error:
                refused = True
                self.failed = self.failed or error
            finally:
                if isinstance(item, _Sync):
                    item.done.set()
        with suppress(OSError):
            self._fsync()
        self._close_files()

    def _write(self, item: _Lines | _Stderr) -> None:
        if isinstance(item, _Lines):
            self._write_lines(item)
            return
        _write_all(self._files[2], item.content)
        self._written += len(item.content)

    def _write_lines(self, item: _Lines) -> None:
        ndjson, index, _ = self._files
        rest = memoryview(item.joined)
        while len(rest) > _PIECE_BYTES:
            _write_all(ndjson, rest[:_PIECE_BYTES])
            self._written += _PIECE_BYTES
            rest = rest[_PIECE_BYTES:]
        _write_all(ndjson, rest, b"\n")
        for entries in self._entries(item):
            _write_all(index, entries)
        self._written += len(rest)
        self._unsynced += len(item.joined) + 1

    def _sync_much(self) -> None:
        """Ask the disk for what was written, if it is much."""
        if self._unsynced >= _UNSYNCED_BYTES:
            os.fdatasync(self._files[0])
            self._unsynced = 0

    def _entries(self, item: _Lines) -> Iterator[bytes]:
        """Yield the index entries of lines, some thousand at a time, and count the lines."""
        arrived = item.arrived_at.isoformat(timespec="microseconds")
        lengths = iter(item.lengths)
        number, offset = self._lines, self._offset
        while some := tuple(islice(lengths, _ENTRIES)):
            entries: list[str] = []
            for length in some:
                number += 1
                entries.append(f"{number}\t{offset}\t{arrived}\n")
                offset += length + 1
            yield "".join(entries).encode()
        self._lines, self._offset = number, offset

    def _fsync(self) -> None:
        for file in self._files:
            os.fsync(file)
        self._unsynced = 0

    def _close_files(self) -> None:
        for file in self._files:
            with suppress(OSError):
                os.close(file)


class DecodedLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line, as `decode` gives it."""

    asked: StreamFrame | Malformed | None  # as the CLI printed it; only for the gate
    kept: StreamFrame | Malformed | None  # redacted; for everything else
    arrived_at: datetime


class OutputReader:
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

    async def take(self, chunk: bytes) -> Iterable[DecodedLine]:
        """Do the same as `push`, on a thread if a line is long. One caller at a time."""
        if self._splitter.pending + len(chunk) < LONG_BYTES or b"\n" not in chunk:
            return self.push(chunk)
        # Scanning and decoding 64 MiB would hold up every other session.
        return await anyio.to_thread.run_sync(lambda: list(self.push(chunk)))

    def push(self, chunk: bytes) -> Iterable[DecodedLine]:
        """Return the lines that ``chunk`` completes, in order; iterate once. The log has them already."""
        lines = self._splitter.push(chunk)
        if len(lines) > 1 and len(lines[0]) >= LONG_BYTES:  # not joined with others: that would copy it
            first, *others = lines
            del lines
            rest = chunk[chunk.index(b"\n") + 1 :]
            return chain(self._take([first], first), self._take(others, _joined(others, rest)))
        return self._take(lines, _joined(lines, chunk)) if lines else ()

    def flush(self) -> Iterable[DecodedLine]:
        """Return the last line if the stream ended without a newline."""
        last = self._splitter.flush()
        return () if last is None else self._take([last], last)

    def _take(self, lines: Sequence[bytes], joined: bytes) -> Iterable[DecodedLine]:
        arrived_at = self._clock.now()
        redacted, asked = self._read(lines, joined)
        if redacted is lines:
            self._sink.extend(lines, arrived_at, joined=joined)
            return (DecodedLine(asked=frame, kept=frame, arrived_at=arrived_at) for frame in asked)
        self._sink.extend(redacted, arrived_at)
        return (
            DecodedLine(asked=frame, kept=frame if clean is line else decode_abridged(clean), arrived_at=arrived_at)
            for line, clean, frame in zip(lines, redacted, asked, strict=True)
        )

    def _read(
        self, lines: Sequence[bytes], joined: bytes
    ) -> tuple[Sequence[bytes], Iterable[StreamFrame | Malformed | None]]:
        if len(joined) < max(_WORTH_A_THREAD_BYTES, _WORTH_AHEAD_BYTES * len(lines)):
            return self._redactor.lines(lines, joined), map(decode_abridged, lines)
        if len(joined) >= LONG_BYTES:  # one after the other: each may hold another line for a moment
            frames = [decode_abridged(line) for line in lines]
            return self._redactor.lines(lines, joined), frames
        # google-re2 lets go of the interpreter while it scans, so both are done in little more than the time of one.
        self._decoder.begin(lines)
        try:
            redacted = self._redactor.lines(lines, joined)
        finally:
            asked = self._decoder.result()
        return redacted, _decoded(lines) if asked is None else asked


def _joined(lines: Sequence[bytes], chunk: bytes) -> bytes:
    """Return the lines that a chunk has completed with LF between them: to scan, and to write if nothing is found.

    All but the first one stand in the chunk like that, unless they end with CR LF. To join them takes 80 bytes a line.
    """
    if len(lines) == 1:
        return lines[0]
    if b"\r" in chunk:
        return b"\n".join(lines)
    return b"".join((lines[0], chunk[chunk.index(b"\n") : chunk.rindex(b"\n")]))


class _Lines(msgspec.Struct, frozen=True):
    joined: bytes  # LF between them
    lengths: Sequence[int]  # bytes of each
    arrived_at: datetime


class _Stderr(msgspec.Struct, frozen=True):
    content: bytes


class _Sync(msgspec.Struct, frozen=True):
    done: threading.Event


def _write_all(file: int, *parts: bytes | memoryview) -> None:
    """Write parts one after the other; a disk that is nearly full may take less than it is given."""
    written = os.writev(file, parts)
    for part in parts:
        rest = memoryview(part)[written:]
        written = max(written - len(part), 0)
        while rest:
            rest = rest[os.write(file, rest) :]


class _Decoder:
    """A thread that decodes while its caller does something else; started when it is first needed.

    It uses two queues instead of futures, which take as long as decoding ten lines.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._todo: queue.SimpleQueue[Sequence[bytes] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Decoded | None] = queue.SimpleQueue()

    def begin(self, lines: Sequence[bytes]) -> None:
        """Start to decode ``lines``; call `result` before the next call of `begin`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="decode", daemon=True)
            self._thread.start()
        self._todo.put(lines)

    def result(self) -> Decoded | None:
        """Wait for the decoded lines, without a bound; ``None`` if the thread died, out of memory for instance."""
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
                del lines, decoded  # they may be long, and the next ones may be far away


def _decoded(lines: Sequence[bytes]) -> Decoded:
    return [decode_abridged(line) for line in lines]
