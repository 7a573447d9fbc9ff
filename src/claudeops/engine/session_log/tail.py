"""The lines of a session's log as it grows: whatever follows a log reads it by these."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from claudeops.engine.session_log.reader import open_log
from claudeops.formats.stream import LineSplitter

LOOK_BYTES: Final = 1024 * 1024
"""The most that one look reads."""


class GrowingLog:
    """The lines of a log while it grows: an incomplete last line waits for its end.

    Use it as a context manager. Keep it off an event loop that others share: it blocks on the disk.
    """

    def __init__(self, log: Path) -> None:
        """Open a log, packed or not; raises `OSError`."""
        self._file = open_log(log)
        self._splitter = LineSplitter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def look(self) -> tuple[list[bytes], bool]:
        """Read what came since the last look, at most `LOOK_BYTES`; return its lines, and whether there may be more."""
        chunk = self._file.read(LOOK_BYTES)
        return list(self._splitter.push(chunk)), len(chunk) == LOOK_BYTES

    def rest(self) -> bytes | None:
        """Return the last line of a log that has ended, if it is incomplete."""
        return self._splitter.flush()
