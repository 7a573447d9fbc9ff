"""The table of events: conditions that sessions and the daemon have raised."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Index, Integer

from claudeops.domain.events import EventLevel
from claudeops.store.tables.base import one_of, session_column, table, where
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

events: Final = table(
    "events",
    session_column("the session that raised it; null: none, or it is removed", nullable=True),
    Column(
        "last_session_id",
        Integer,
        ForeignKey("sessions.id"),
        comment="the session that saw it last; null: none, or it is removed",
    ),
    Column("level", Name, nullable=False, comment="its weight"),
    Column("service", Name, comment="the service that it concerns; null: no single one"),
    Column("message", CleanText, nullable=False, comment="in its newest wording"),
    Column("created_at", UtcDateTime, nullable=False, comment="when the row was written"),
    Column("fingerprint", Name, nullable=False, comment="names the condition"),
    Column("first_seen", UtcDateTime, nullable=False, comment="when it was first seen"),
    Column("last_seen", UtcDateTime, nullable=False, comment="when it was last seen"),
    Column("count", Count, nullable=False, comment="how often it was seen"),
    Column("resolved_at", UtcDateTime, comment="when it was over; null while it is open"),
    # no reference, as in `sessions`
    Column("incident_id", Integer, comment="the number of the incident that it belongs to; null: none"),
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
    Index(None, "fingerprint", "id"),
    comment="A condition that somebody should know of. When it occurs again, the count of its open event rises.",
)
