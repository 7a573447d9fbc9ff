"""What is kept for how long, as moments: the database's share of the upkeep."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

AUDIT_DAYS: Final = 90
"""Tool calls with their verdicts, and the session rows that they belong to, are kept so long at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cutoffs:
    """What is older than these goes. Times are UTC and count from the end of a session, or of a condition."""

    details: datetime  # long texts, service checks, events that are over; logs too
    audit: datetime  # whole chains with their tool calls, of which a tombstone stays


def cutoffs(now: datetime, *, retention_days: int) -> Cutoffs:
    """Return what is too old by ``now``; the audit trail never goes before the rest."""
    return Cutoffs(
        details=now - timedelta(days=retention_days), audit=now - timedelta(days=max(retention_days, AUDIT_DAYS))
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Expired:
    """What one round of it removed."""

    sessions: int = 0  # rows, each with everything that hung on it; a tombstone stays of its tool calls
    shortened: int = 0  # session rows that lost their long texts
    checks: int = 0  # of services; the latest of each service stays
    events: int = 0
    fires: int = 0  # of schedules; the latest of each schedule stays

    @property
    def any(self) -> bool:
        """Whether there was anything; if so there may be more."""
        return any((self.sessions, self.shortened, self.checks, self.events, self.fires))
