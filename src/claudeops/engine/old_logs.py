"""Session logs after their session: packed by zstd, and read in either form under the name that their row has.

A row's ``log_path`` never changes; beside it may lie ``<log_path>.zst`` instead.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from typing import TYPE_CHECKING, BinaryIO, Final

import zstandard

from claudeops.engine.plain_file import open_plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKED: Final = ".zst"
_LEVEL: Final = 9  # NDJSON to about a twelfth; higher levels gain little and cost much
_CHUNK_BYTES: Final = 1024 * 1024
_SIDES: Final = (".ndjson", f".ndjson{PACKED}", ".index", ".stderr")


def packed_path(log: Path) -> Path:
    """Return where a log lies once it is packed."""
    return log.with_name(log.name + PACKED)


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
    """Put ``<log>.zst`` in the log's place and return how many bytes that saved; raises `OSError`.

    The packed file is whole and on the disk before the plain one goes, so that a crash leaves at least one of them;
    what an earlier crash left half done is done again. ``check`` is called between pieces, and may raise.
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
        os.link(partial, packed)  # never over another file, which could be the log of another life of this database
    except zstandard.ZstdError as error:
        raise OSError(f"{log} could not be packed: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    _sync(log.parent)
    log.unlink()
    return saved


def remove(log: Path) -> bool:
    """Remove a log in both its forms with what lies beside it; tell whether the log was there. Raises `OSError`."""
    there = log.exists() or packed_path(log).exists()
    for suffix in _SIDES:
        log.with_suffix(suffix).unlink(missing_ok=True)
    return there


def _finish(log: Path, packed: Path, check: Callable[[], None]) -> int:
    """Remove a log that was packed before; another log's file in its place is an error, and both stay."""
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
    """What a packed file holds."""

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
