"""The machine's clocks, as a value: whoever needs the time is given one, so that tests own it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Clock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """Return the wall clock, timezone-aware UTC. May jump."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back; durations come from here."""
        return time.monotonic()

    def since_boot(self) -> float:
        """Return seconds that never go back and go on while the machine sleeps, as `monotonic` does not.

        The age of a right comes from here: whoever is stopped or sleeps must not find it fresh afterwards.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)
