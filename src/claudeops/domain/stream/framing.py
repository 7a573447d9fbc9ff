"""Bytes of a child's stdout into whole lines."""

from __future__ import annotations

from typing import Final

_NEWLINE: Final = b"\n"
_BOM: Final = b"\xef\xbb\xbf"
_KEPT_AS_IT_CAME: Final = 4096
"""Bytes; a longer piece of a line is kept as it is, so that a long line is copied once and no more. Shorter ones are
collected, because a line may dribble in byte by byte."""

LINE_BYTES: Final = 64 * 1024 * 1024
"""A longer line is dropped. The CLI cuts what a tool said down to kilobytes itself; lines of 5 to 10 MB have been seen,
from MCP servers and subagents. Memory for a few times this much is what one session may cost."""

_DROPPED: Final = b"[line dropped: "


def dropped_line(size: int, limit: int = LINE_BYTES) -> bytes:
    """Return what stands in the place of a line of ``size`` bytes that is too long.

    It is no JSON, so it counts as a malformed line, live and whenever the log is read again. Nothing of the line itself
    is kept: a secret may stand across the place where it would be cut, and its half is a secret that nobody finds.
    """
    return _DROPPED + b"%d bytes, of which %d can be taken]" % (size, limit)


def is_dropped(line: bytes) -> bool:
    """Say whether a line stands in the place of one that was dropped."""
    return line.startswith(_DROPPED)


class LineSplitter:
    """Takes chunks as they come, gives whole lines. Of a line longer than ``limit`` bytes it keeps its size alone.

    A line ends at LF or CR LF and is returned without it; a lone CR ends nothing. A byte order mark at the
    start of the stream is dropped. Everything else, NUL bytes too, passes through as it came; `dropped_line` gives what
    comes in place of a line that is too long.
    """

    __slots__ = ("_limit", "_pending", "_pieces", "_started")

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes | bytearray] = []  # of the line that has not ended yet; none of one that is too long
        self._pending = 0
        self._started = False

    @property
    def pending(self) -> int:
        """Return the size in bytes of the line that has not ended yet."""
        return self._pending

    def push(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, in order."""
        lines: list[bytes] = []
        start = 0
        # find, not split: split compares byte by byte, which is ten times slower on the long lines that matter.
        while (end := chunk.find(_NEWLINE, start)) >= 0:
            line = chunk[start:end]
            lines.append(self._clean(self._completed(line) if self._pending else self._bounded(line)))
            start = end + 1
        if start < len(chunk):
            self._keep(chunk[start:] if start else chunk)
        return lines

    def flush(self) -> bytes | None:
        """Return the last line if the stream ended without a newline, else ``None``."""
        return self._clean(self._completed(b"")) if self._pending else None

    def _keep(self, piece: bytes) -> None:
        self._pending += len(piece)
        if self._pending > self._limit:
            self._pieces.clear()
        elif len(piece) >= _KEPT_AS_IT_CAME:
            self._pieces.append(piece)
        else:
            if not self._pieces or not isinstance(self._pieces[-1], bytearray):
                self._pieces.append(bytearray())
            self._pieces[-1] += piece

    def _completed(self, end: bytes) -> bytes:
        size = self._pending + len(end)
        line = b"".join((*self._pieces, end)) if size <= self._limit else dropped_line(size, self._limit)
        self._pieces = []
        self._pending = 0
        return line

    def _bounded(self, line: bytes) -> bytes:
        return line if len(line) <= self._limit else dropped_line(len(line), self._limit)

    def _clean(self, line: bytes) -> bytes:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        return line.removesuffix(b"\r")
