"""Session logs after their session: packed by zstd, and read in either form under the name that their row has.

A row's ``log_path`` never changes; ``<log_path>.zst`` may lie there instead. `LogIndexReader` reads the arrival index
beside a log, line by line with the log itself. `open_plain` opens files that others could have replaced by something
else, such as a link or a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import zstandard

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # to open a pipe without waiting for a writer

_ENTRY_BYTES: Final = 200  # an entry has about 60; anything longer is no entry

PACKED: Final = ".zst"
_LEVEL: Final = 9  # NDJSON to about a twelfth; higher levels gain little and cost much
_CHUNK_BYTES: Final = 1024 * 1024
_SIDES: Final = (".ndjson", f".ndjson{PACKED}", ".index", ".stderr")


def open_plain(path: Path | str, *, follow_links: bool = True, directory_fd: int | None = None) -> BinaryIO:
    """Open a regular file for reading, without ever waiting for a writer.

    Raises `OSError`, also for anything but a regular file, and for a link if ``follow_links`` is off. A relative path
    begins at ``directory_fd``.
    """
    flags = _READ if follow_links else _READ | os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=directory_fd)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


class LogIndexReader:
    """Says when each line of a log arrived, for as long as the index fits the log.

    The index is written after the log, so it may end earlier after a crash. From the first entry on that is missing
    or names another line or offset, every arrival is unknown.
    """

    def __init__(self, log: Path) -> None:
        self.latest: datetime | None = None  # of the lines so far
        self._index: BinaryIO | None = None
        with suppress(OSError):
            self._index = open_plain(log.with_suffix(".index"))

    def next(self, number: int, offset: int) -> datetime | None:
        """Return when line ``number`` (from 1), which begins at ``offset``, arrived. Call it for every line in turn."""
        if self._index is None:
            return None
        entry = b""
        with suppress(OSError):
            entry = self._index.readline(_ENTRY_BYTES)
        arrived = _arrived(entry, number, offset)
        if arrived is None:
            self.close()
        else:
            self.latest = arrived
        return arrived

    def close(self) -> None:
        """Close the index; further arrivals are unknown."""
        if self._index is not None:
            self._index.close()
            self._index = None


def packed_path(log: Path) -> Path:
    """Return where a log lies once it is packed."""
    return log.with_name(log.name + PACKED)


def is_readable(path: Path) -> bool:
    """Tell whether there is a log that can be opened, packed or not."""
    try:
        open_log(path).close()
    except OSError:
        return False
    return True


def open_log(log: Path) -> BinaryIO:
    """Open a log for reading, packed or not; raises `OSError`, also in the middle of a damaged packed one."""
    try:
        return open_plain(log)
    except FileNotFoundError:
        packed = open_plain(packed_path(log))
        return io.BufferedReader(_Unpacked(packed), _CHUNK_BYTES)


def log_size(log: BinaryIO) -> int | None:
    """Return the length of an open plain log in bytes; ``None`` for a packed one, which grows no more."""
    return None if _is_packed(log) else os.fstat(log.fileno()).st_size


def pack(log: Path, check: Callable[[], None]) -> int:
    """Replace a log by ``<log>.zst`` and return how many bytes that saved; raises `OSError`.

    The packed file is complete and synced before the plain one is removed, so that a crash leaves at least one of
    them; what an earlier crash left half done is done again. ``check`` is called between pieces, and may raise.
    """
    packed, partial = packed_path(log), log.with_name(f"{log.name}{PACKED}.partial")
    if packed.exists():
        return _finish(log, packed, check)
    partial.unlink(missing_ok=True)
    try:
        with open_plain(log, follow_links=False) as source, partial.open("xb") as target:
            os.fchmod(target.fileno(), os.fstat(source.fileno()).st_mode & 0o777)
            size = os.fstat(source.fileno()).st_size
            with zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(
                target, size=size, closefd=False
            ) as writer:
                while piece := source.read(_CHUNK_BYTES):
                    check()
                    writer.write(piece)
            target.flush()
            os.fsync(target.fileno())
            saved = size - os.fstat(target.fileno()).st_size
        os.link(partial, packed)  # never over another file, which could be a log from before a database restore
    except zstandard.ZstdError as error:
        raise OSError(f"{log} could not be packed: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    _sync(log.parent)
    log.unlink()
    return saved


def remove(log: Path) -> bool:
    """Remove a log in both its forms with the files beside it; return whether there was a log. Raises `OSError`."""
    there = log.exists() or packed_path(log).exists()
    for suffix in _SIDES:
        log.with_suffix(suffix).unlink(missing_ok=True)
    return there


def _arrived(entry: bytes, number: int, offset: int) -> datetime | None:
    if not entry.startswith(b"%d\t%d\t" % (number, offset)) or not entry.endswith(b"\n"):
        return None
    try:
        arrived = datetime.fromisoformat(entry.split(b"\t")[2].decode("ascii").strip())
    except ValueError:
        return None
    return arrived if arrived.tzinfo is not None else None


def _finish(log: Path, packed: Path, check: Callable[[], None]) -> int:
    """Remove a log that was packed before; if the packed file is another log's, raise an error and keep both."""
    with open_plain(log, follow_links=False) as source, _Unpacked(open_plain(packed)) as unpacked:
        size = os.fstat(source.fileno()).st_size
        for piece in iter(lambda: source.read(_CHUNK_BYTES), b""):
            check()
            if _exactly(unpacked, len(piece)) != piece:
                raise FileExistsError(errno.EEXIST, "the packed file of another log lies there", str(packed))
        if unpacked.read(1):
            raise FileExistsError(errno.EEXIST, "the packed file of another log lies there", str(packed))
    log.unlink()
    return size - packed.stat().st_size


def _exactly(source: io.RawIOBase, size: int) -> bytes:
    pieces = []
    while size and (piece := source.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _is_packed(log: BinaryIO) -> bool:
    return isinstance(getattr(log, "raw", None), _Unpacked)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems sync no directories
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Unpacked(io.RawIOBase):
    """The contents of a packed file, as a stream."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._reader = zstandard.ZstdDecompressor().stream_reader(packed, closefd=False)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        try:
            return self._reader.readinto(buffer)
        except zstandard.ZstdError as error:
            raise OSError(f"the packed log is damaged: {error}") from error

    def close(self) -> None:
        self._packed.close()
        super().close()
