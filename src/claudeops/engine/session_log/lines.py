"""Lines of a session's log by their numbers, found by its index and not by reading the log from the start.

The index says where each line begins and when it came. Its entries have no fixed length, so one is found by halving the
bytes between two that are known. An index may be torn: after a crash it ends before the log does, and a disk may have
lost parts of it. What cannot be proven right is not used: from the last entry that can, the log itself is read.

Everything here blocks on the disk: call it from threads, one at a time for each `SessionLogLines`.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Self

import msgspec

from claudeops.engine.session_log.reader import log_size, open_log, open_plain
from claudeops.formats.stream import LINE_BYTES, dropped_line
from claudeops.tasks import check_abandoned

MOST_LINES: Final = 500
MOST_BYTES: Final = 4 * 1024 * 1024
"""Of one reading; the line that goes over it is still part of it."""

_ENTRY_BYTES: Final = 200  # an entry has about 60; anything longer is no entry
_NEAR_BYTES: Final = 4096  # of the index, read through without halving
_CHUNK_BYTES: Final = 256 * 1024
_SKIPPED_BYTES: Final = 64 * 1024 * 1024  # between two looks at whether anybody still waits
_NUMBERS: Final = 3


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line."""

    number: int  # from 1
    at: datetime | None  # when it came; None: the index does not say
    content: bytes  # without its end


class LinesRead(msgspec.Struct, frozen=True, kw_only=True):
    """Lines in order, without a gap."""

    lines: tuple[LogLine, ...]
    more: bool  # there may be more already


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    offset: int  # at which the line begins
    at: datetime
    begins: int  # in the index
    ends: int


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a line begins, and where its entry would."""

    number: int
    offset: int
    entry: int


class SessionLogLines:
    """A log, packed or not. What was read last is remembered: whoever reads on in order seeks nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = _START
        # A packed log is one frame of zstd without a table of places, which can only be read from its start. So the
        # stream stays open, and reading on costs what is read; a line in the middle costs all that stands before it,
        # about a second for 500 MB. No line of a log is longer than `LINE_BYTES`, which bounds the memory.
        self._packed: BinaryIO | None = None
        self._unpacked = 0  # bytes that were read of it

    def close(self) -> None:
        """Close what is open. A later reading opens it again."""
        if self._packed is not None:
            self._packed.close()
            self._packed = None

    def read(
        self, after: int, *, limit: int = MOST_LINES, most_bytes: int = MOST_BYTES, complete: bool = False
    ) -> LinesRead:
        """Return the lines after line ``after``, at most ``limit``; none where there are no such lines yet.

        While a log grows, a line counts once it has its end and its entry in the index, which follows a moment later.
        A ``complete`` log is taken as it is: its last line needs no end, and lines without an entry have no time.
        Raises `OSError`.
        """
        log = self._open()
        try:
            with _opened_index(self.path) as index:
                if self._place.number != after + 1:
                    self._place = self._found(log, index, after + 1)
                return self._read(log, index, after, limit, most_bytes, complete=complete)
        finally:
            if log is not self._packed:
                log.close()

    def _found(self, log: BinaryIO, index: _Index, number: int) -> _Place:
        place = _nearest(index, number)
        if place.offset and log is not self._packed:
            log.seek(place.offset - 1)
            if log.read(1) != b"\n":  # the index of another log
                return _START
        return place

    def _open(self) -> BinaryIO:
        if self._packed is not None:
            return self._packed
        log = open_log(self.path)
        if log_size(log) is None:
            self._packed, self._unpacked = log, 0
        return log

    def _read(
        self, log: BinaryIO, index: _Index, after: int, limit: int, most_bytes: int, *, complete: bool
    ) -> LinesRead:
        lines: list[LogLine] = []
        size = 0
        place = self._place
        log = self._at(log, place.offset)
        while len(lines) < limit and size < most_bytes:
            check_abandoned()
            content, length = self._line(log, complete=complete)
            if not length:
                return self._ended(lines, place, more=False)
            entry = index.entry(place)
            if place.number > after:
                if entry is None and index.is_there and not complete:
                    return self._ended(lines, place, more=False)
                lines.append(LogLine(number=place.number, at=None if entry is None else entry.at, content=content))
                size += len(content)
            place = _Place(
                number=place.number + 1,
                offset=place.offset + length,
                entry=place.entry if entry is None else entry.ends,
            )
        return self._ended(lines, place, more=True)

    def _ended(self, lines: list[LogLine], place: _Place, *, more: bool) -> LinesRead:
        self._place = place
        return LinesRead(lines=tuple(lines), more=more)

    def _at(self, log: BinaryIO, offset: int) -> BinaryIO:
        """Return the log, at a place of it."""
        if log is not self._packed:
            log.seek(offset)
            return log
        if self._unpacked > offset:
            self.close()
            log = self._open()
        while self._unpacked < offset and (skipped := log.read(min(_CHUNK_BYTES, offset - self._unpacked))):
            check_abandoned()
            self._unpacked += len(skipped)
        return log

    def _line(self, log: BinaryIO, *, complete: bool) -> tuple[bytes, int]:
        """Return the next line without its end, and its length with it; 0: it is not there, or not whole yet."""
        line = log.readline(LINE_BYTES + 1)
        length = len(line)
        while line and not line.endswith(b"\n") and (rest := log.readline(_SKIPPED_BYTES)):  # a longer one, or the last
            check_abandoned()
            length += len(rest)
            line = line[:0] + rest if length > LINE_BYTES + 1 else line + rest
        if log is self._packed:
            self._unpacked += length
        if not line.endswith(b"\n") and not complete:
            return b"", 0
        is_long = length > LINE_BYTES + 1
        return (dropped_line(length) if is_long else line.removesuffix(b"\n").removesuffix(b"\r")), length


_START: Final = _Place(number=1, offset=0, entry=0)


class _Index:
    """The index beside a log; without one every time is unknown."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file
        self.is_there = file is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def entry(self, place: _Place) -> _Entry | None:
        """Return the entry of a line, if it stands where it should and is about this line."""
        entry = self.at(place.entry)
        return entry if entry is not None and (entry.number, entry.offset) == (place.number, place.offset) else None

    def at(self, place: int) -> _Entry | None:
        """Return the entry that begins at a place of the index; ``None``: there is none, or it is torn."""
        if self._file is None:
            return None
        try:
            self._file.seek(place)
            return _entry(self._file.readline(_ENTRY_BYTES), place)
        except OSError:
            return None

    def next_place(self, place: int) -> int:
        """Return where the first entry begins that begins after a place."""
        if self._file is None:
            return place
        self._file.seek(place)
        return place + len(self._file.readline(_ENTRY_BYTES))

    def size(self) -> int:
        """Return its length in bytes."""
        return 0 if self._file is None else os.fstat(self._file.fileno()).st_size


def _opened_index(log: Path) -> _Index:
    try:
        return _Index(open_plain(log.with_suffix(".index")))
    except OSError:
        return _Index(None)


def _nearest(index: _Index, number: int) -> _Place:
    """Return where a line begins, or the last one before it that the index knows."""
    low, high = 0, index.size()
    if (first := index.at(0)) is None or (first.number, first.offset) != (1, 0):
        return _START
    best = first
    while high - low > _NEAR_BYTES:
        middle = index.next_place((low + high) // 2)
        entry = index.at(middle) if middle < high else None
        if entry is not None and best.number < entry.number <= number and entry.offset > best.offset:
            low, best = middle, entry
        else:  # beyond the wanted line, or torn: what is known stands before it
            high = (low + high) // 2
    while best.number < number and (entry := index.at(best.ends)) is not None and entry.number == best.number + 1:
        best = entry
    return _Place(number=best.number, offset=best.offset, entry=best.begins)


def _entry(written: bytes, place: int) -> _Entry | None:
    parts = written.split(b"\t")
    if len(parts) != _NUMBERS or not written.endswith(b"\n"):
        return None
    try:
        number, offset = int(parts[0]), int(parts[1])
        at = datetime.fromisoformat(parts[2].decode("ascii").strip())
    except ValueError:
        return None
    if number < 1 or offset < 0 or at.tzinfo is None:
        return None
    return _Entry(number=number, offset=offset, at=at, begins=place, ends=place + len(written))
