"""Tables of alerts: what was received, what is kept of it, what was decided, incidents and silences."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, Table, UniqueConstraint

from claudeops.domain.alerts.alert import AlertDecision, AlertStatus, IncidentStatus
from claudeops.domain.events import EventLevel
from claudeops.store.tables.base import metadata, one_of, table
from claudeops.store.tables.columns import CleanText, Count, Name, Usd, UtcDateTime

alert_deliveries: Final = table(
    "alert_deliveries",
    Column("source", Name, nullable=False),
    Column("key", Name, nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    Column("raw", CleanText),  # redacted; null: the daemon's own probes have said it
    Column("status", Name, nullable=False),
    Column("remark", CleanText),
    Column("alerts", Count, nullable=False),
    Column("left_out", Count, nullable=False),
    Column("repeats", Count, nullable=False),
    Index(None, "source", "key"),
    Index(None, "received_at"),
)

alert_sources: Final = Table(
    "alert_sources",
    metadata,
    Column("source", Name, primary_key=True),
    Column("since", UtcDateTime, nullable=False),  # when it was first heard of
    Column("heard_at", UtcDateTime, nullable=False),
    Column("bodies", Count, nullable=False),
    Column("alerts", Count, nullable=False),
    Column("unreadable", Count, nullable=False),  # bodies
    Column("readable", Boolean, nullable=False),  # of its latest body
    Column("unreadable_at", UtcDateTime),
    Column("reason", CleanText),
    Column("delivery_id", Integer),  # no reference: the body may be gone
)

alert_queue: Final = table(
    "alert_queue",
    Column("delivery_id", Integer, ForeignKey("alert_deliveries.id"), nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    Column("said", CleanText, nullable=False),
    Index(None, "delivery_id"),
)

alerts: Final = table(
    "alerts",
    Column("source", Name, nullable=False),
    Column("fingerprint", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("service", Name, nullable=False),
    Column("severity", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("labels", CleanText, nullable=False),
    Column("annotations", CleanText, nullable=False),
    Column("url", CleanText, nullable=False),
    Column("starts_at", UtcDateTime),
    Column("ends_at", UtcDateTime),
    Column("said_at", UtcDateTime),
    Column("began", UtcDateTime, nullable=False),
    Column("last_seen", UtcDateTime, nullable=False),
    Column("count", Count, nullable=False),
    Column("flips", Count, nullable=False),
    Column("changes", CleanText, nullable=False),
    Column("flapping", Boolean, nullable=False),
    Column("why_asked_at", UtcDateTime),
    Column("contested_at", UtcDateTime),
    Column("decision", Name),
    Column("service_by", CleanText),  # null: the daemon's own probe
    Column("sender_group", CleanText),  # null: the sender does not group
    Column("group_key", CleanText, nullable=False),
    Column("due_at", UtcDateTime),
    Column("incident_id", Integer, ForeignKey("incidents.number")),
    UniqueConstraint("source", "fingerprint"),
    one_of("severity", EventLevel),
    one_of("status", AlertStatus),
    Index(None, "status", "last_seen"),
    Index(None, "status", "id"),
    Index(None, "service", "id"),
    Index(None, "severity", "id"),
    Index(None, "incident_id"),
    Index(None, "contested_at"),
)

alert_decisions: Final = table(
    "alert_decisions",
    Column("alert_id", Integer, ForeignKey("alerts.id")),  # null: the body could not be read
    Column("delivery_id", Integer, ForeignKey("alert_deliveries.id")),  # null: time alone has led to it
    Column("at", UtcDateTime, nullable=False),
    Column("decision", Name, nullable=False),
    Column("because", CleanText, nullable=False),
    Column("incident_id", Integer),
    Column("session_id", Integer),  # no reference: the chain may be gone
    one_of("decision", AlertDecision),
    Index(None, "alert_id", "id"),
    Index(None, "delivery_id"),
    Index(None, "incident_id", "id"),
    Index(None, "session_id", "id"),
    Index(None, "at"),
)

incidents: Final = Table(
    "incidents",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),  # the next after the highest; none is deleted
    Column("service", Name, nullable=False),  # the first of ``services``
    Column("services", CleanText, nullable=False),
    Column("group_key", CleanText, nullable=False),
    Column("severity", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("fired_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("last_action_at", UtcDateTime),
    Column("acked_by", Name),
    Column("acked_at", UtcDateTime),
    Column("resolved_at", UtcDateTime),
    Column("reopened", Count, nullable=False),
    Column("witnesses", CleanText, nullable=False),
    Column("root_session_id", Integer),  # no reference: the chain may be gone
    Column("spend_usd", Usd),
    one_of("severity", EventLevel),
    one_of("status", IncidentStatus),
    Index(None, "status", "resolved_at"),
    Index(None, "service", "number"),
    Index(None, "status", "number"),
)

silences: Final = table(
    "silences",
    Column("matchers", CleanText, nullable=False),
    Column("starts_at", UtcDateTime, nullable=False),
    Column("ends_at", UtcDateTime, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("comment", CleanText, nullable=False),
    Column("suppressed_count", Count, nullable=False),
    Column("ended_by", Name),  # null: it ends, or has ended, by itself
    Index(None, "ends_at"),
)
