"""The arrival index beside a session's log, read line by line with the log itself."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, Final

from claudeops.engine.plain_file import open_plain

if TYPE_CHECKING:
    from pathlib import Path

_ENTRY_BYTES: Final = 200  # an entry has about 60; what is longer is none


class Arrivals:
    """Tells when each line of a log arrived, for as long as the index fits the log.

    The index is written behind the log, so after a crash it may end earlier. From the first entry on that is
    missing or speaks of another line or offset, nothing is told any more.
    """

    def __init__(self, log: Path) -> None:
        self.latest: datetime | None = None  # of the lines so far
        self._index: BinaryIO | None = None
        with suppress(OSError):
            self._index = open_plain(log.with_suffix(".index"))

    def next(self, number: int, offset: int) -> datetime | None:
        """Return when line ``number`` (from 1), which begins at ``offset``, arrived; to be asked for every line."""
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
        """Let go of the file; nothing is told any more."""
        if self._index is not None:
            self._index.close()
            self._index = None


def _arrived(entry: bytes, number: int, offset: int) -> datetime | None:
    if not entry.startswith(b"%d\t%d\t" % (number, offset)) or not entry.endswith(b"\n"):
        return None
    try:
        arrived = datetime.fromisoformat(entry.split(b"\t")[2].decode("ascii").strip())
    except ValueError:
        return None
    return arrived if arrived.tzinfo is not None else None
