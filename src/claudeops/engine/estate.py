"""The estate as the daemon reads it: the repositories' manifests, read anew before every session.

Repositories may lie on a disk that hangs, and may hold anything. So they are read in a thread, within a bound; what
cannot be read in time leaves the estate as it was last understood.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from claudeops.domain.estate.model import NO_ESTATE, Estate
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Threads

_READ_SECONDS: Final = 10.0
_READERS: Final = Threads(most=2)


def nothing(_repos_dir: Path) -> Estate:
    """Read no estate."""
    return NO_ESTATE


class Estates:
    """The estate as last understood."""

    def __init__(self, repos_dir: Path = Path(), *, read: Callable[[Path], Estate] = nothing) -> None:
        self.latest = NO_ESTATE
        self._repos_dir = repos_dir
        self._read = read

    async def look(self, log: Logger) -> Estate:
        """Read the estate anew and return it; the last one if the disk does not answer."""
        try:
            self.latest = await _READERS.run(
                lambda: self._read(self._repos_dir),
                seconds=_READ_SECONDS,
                what=f"reading the manifests in {self._repos_dir}",
            )
        except OSError as error:
            log.warning(LogEvent.ESTATE_NOT_READ, error=str(error))
        return self.latest
