"""Bytes of a child's stdout into whole lines."""

from __future__ import annotations

from typing import Final

_NEWLINE: Final = b"\n"
_BOM: Final = b"\xef\xbb\xbf"
_KEPT_AS_IT_CAME: Final = 4096
"""Bytes; a longer piece of a line is kept as it is, so that a long line is copied once and no more. Shorter ones are
collected, because a line may dribble in byte by byte."""


class LineSplitter:
    """Takes chunks as they come, gives whole lines; a line may be of any length.

    A line ends at LF or CR LF and is returned without it; a lone CR ends nothing. A byte order mark at the
    start of the stream is dropped. Everything else, NUL bytes too, passes through as it came.
    """

    __slots__ = ("_pending", "_pieces", "_started")

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray] = []  # of the line that has not ended yet
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
            lines.append(self._clean(self._completed(line) if self._pieces else line))
            start = end + 1
        if start < len(chunk):
            self._keep(chunk[start:] if start else chunk)
        return lines

    def flush(self) -> bytes | None:
        """Return the last line if the stream ended without a newline, else ``None``."""
        return self._clean(self._completed(b"")) if self._pieces else None

    def _keep(self, piece: bytes) -> None:
        self._pending += len(piece)
        if len(piece) >= _KEPT_AS_IT_CAME:
            self._pieces.append(piece)
            return
        if not self._pieces or not isinstance(self._pieces[-1], bytearray):
            self._pieces.append(bytearray())
        self._pieces[-1] += piece

    def _completed(self, end: bytes) -> bytes:
        line = b"".join((*self._pieces, end))
        self._pieces = []
        self._pending = 0
        return line

    def _clean(self, line: bytes) -> bytes:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        return line.removesuffix(b"\r")
