"""How long rows are kept: the database's share of housekeeping, as points in time."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.probes.history import KEPT_BUCKETS, KEPT_HOURS

AUDIT_DAYS: Final = 90
"""The least time for which tool calls with their verdicts, and the session rows around them, are kept."""


KEYS_KEPT: Final = timedelta(hours=24)
"""For which the answer to a call with an `Idempotency-Key` is kept."""


class Cutoffs(msgspec.Struct, frozen=True, kw_only=True):
    """What is older than these is removed. UTC; age counts from the end of a session, or of a condition."""

    details: datetime  # for long texts, service checks, events and notices that are over, and logs
    audit: datetime  # for whole chains with their tool calls, which leave a tombstone
    fine_history: datetime  # for the short stretches of a probe's history
    history: datetime  # for the hours of it
    keys: datetime  # for what was answered to calls with a key


def cutoffs(now: datetime, *, retention_days: int) -> Cutoffs:
    """Return what is too old by ``now``; the audit trail never goes before the rest."""
    return Cutoffs(
        details=now - timedelta(days=retention_days),
        audit=now - timedelta(days=max(retention_days, AUDIT_DAYS)),
        fine_history=now - KEPT_BUCKETS,
        history=now - KEPT_HOURS,
        keys=now - KEYS_KEPT,
    )


class Aged(StrEnum):
    """The kinds of old rows, in the order of their removal: those that need not be removed one by one come first.

    The values name the removal in the daemon's log.
    """

    EVENTS = "events_removed"  # open ones stay
    CHECKS = "checks_removed"  # of services; the latest of each service stays
    STRETCHES = "stretches_removed"  # of a probe's history, short ones
    HOURS = "hours_removed"  # of a probe's history
    NOTICES = "notices_removed"  # that are no longer on their way
    KEYS = "idempotency_keys_removed"
    FIRES = "fires_removed"  # of schedules; the latest of each schedule stays
    DECISIONS = "alert_decisions_removed"
    BODIES = "alert_bodies_removed"  # once no decision names them
    CHAINS = "sessions_removed"  # with all their rows; a tombstone of the tool calls stays
    TEXTS = "sessions_shortened"  # sessions that lose their long texts


MOST_ROWS: Final = 200
"""What a step of the removal may write, about."""

_LEAST_ROWS: Final = 10
_SLOW_SECONDS: Final = 0.025
_QUICK_SECONDS: Final = 0.01


def next_rows(rows: int, seconds: float) -> int:
    """Return how many rows the next step may write, after one of so many took so long with all that it waited for.

    A machine or disk that others use as well gets smaller steps, each of which holds up a verdict for less time.
    """
    if seconds > _SLOW_SECONDS:
        return max(_LEAST_ROWS, rows // 2)
    return min(MOST_ROWS, rows * 2) if seconds < _QUICK_SECONDS else rows


class RemovalStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one step of the removal did."""

    done: int = 0  # rows of the requested kind; for chains: their sessions
    more: bool = False  # something was removed, so there may be more
