"""How a loop of the daemon gets over a database that fails: it goes on, says so each time, and waits longer each time.

One way for all of them, whatever the database says. That it is locked or away passes; that it refuses a statement may
be a damaged index, a full sequence, a fault of ours that concerns this loop alone. None of these is worth the sessions
that run, and a daemon that is started again finds the same database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.errors import DatabaseUnavailableError
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from claudeops.errors import StoreError
    from claudeops.logs import Logger

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
"""Between two tries; it doubles from the first to the longest. A database that is back is noticed after this time."""


class DatabaseTrouble:
    """What one loop knows of the failures of its calls. A loop that has a longer beat of its own keeps to that."""

    def __init__(self, log: Logger, while_doing: str, *, longest_seconds: float = LONGEST_SECONDS) -> None:
        self._log = log
        self._while_doing = while_doing
        self._longest_seconds = longest_seconds
        self._pause = 0.0  # seconds after the last failure; 0: the last call was well

    def failed(self, error: StoreError) -> float:
        """Log a failure; return how many seconds to wait before the next try."""
        if isinstance(error, DatabaseUnavailableError):
            self._log.error(LogEvent.DATABASE_UNAVAILABLE, while_doing=self._while_doing, error=str(error))
        else:
            self._log.critical(LogEvent.DATABASE_REFUSED, while_doing=self._while_doing, error=str(error))
        self._pause = min(self._pause * 2 or FIRST_SECONDS, self._longest_seconds)
        return self._pause

    def over(self) -> None:
        """Note that a call was well; the end of a trouble is logged."""
        if self._pause:
            self._pause = 0.0
            self._log.info(LogEvent.DATABASE_RECOVERED, while_doing=self._while_doing)
