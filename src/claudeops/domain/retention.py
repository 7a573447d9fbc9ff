"""What is kept for how long, as moments: the database's share of the upkeep."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

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


class Aged(StrEnum):
    """What there is of old rows, in the order in which it goes: what need not be let go of one by one goes first.

    Values: what their removal is called in the daemon's log.
    """

    EVENTS = "events_removed"  # open ones stay
    CHECKS = "checks_removed"  # of services; the latest of each service stays
    FIRES = "fires_removed"  # of schedules; the latest of each schedule stays
    CHAINS = "sessions_removed"  # with everything that hung on them; a tombstone stays of the tool calls
    TEXTS = "sessions_shortened"  # sessions that lose their long texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Expired:
    """What one step did."""

    done: int = 0  # rows of the kind that was asked for; of chains: their sessions
    more: bool = False  # something was written, so there may be more of it
