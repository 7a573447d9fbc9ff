"""The table of events: conditions that sessions and the daemon have raised."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Index, Integer

from claudeops.domain.events import EventLevel
from claudeops.store.tables.base import one_of, session_column, table, where
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

events: Final = table(
    "events",
    session_column(nullable=True),
    Column("last_session_id", Integer, ForeignKey("sessions.id")),
    Column("level", Name, nullable=False),
    Column("service", Name),
    Column("message", CleanText, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("fingerprint", Name, nullable=False),
    Column("first_seen", UtcDateTime, nullable=False),
    Column("last_seen", UtcDateTime, nullable=False),
    Column("count", Count, nullable=False),
    Column("resolved_at", UtcDateTime),
    Column("incident_id", Integer),  # likewise
    one_of("level", EventLevel),
    Index("uq_events_open_fingerprint", "fingerprint", unique=True, **where("resolved_at IS NULL")),
    Index(None, "service", "resolved_at"),
    Index(None, "resolved_at"),
    Index(None, "created_at"),
    Index(None, "level", "id"),
    Index(None, "service", "level", "id"),
    Index("ix_events_seen_again", "last_seen", "service", "level", **where("count > 1")),
    Index(None, "session_id"),
    Index(None, "last_session_id"),
    Index(None, "incident_id"),
)
