"""The table of notices that wait for a target, or were sent to one."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Index, Integer

from claudeops.domain.notices.notice import DeliveryOutcome, Topic
from claudeops.store.tables.base import one_of, table
from claudeops.store.tables.columns import CleanText, Name, UtcDateTime

outbox: Final = table(
    "outbox",
    Column("event_id", Integer, ForeignKey("events.id")),
    Column("target", Name, nullable=False),
    Column("payload", CleanText, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("not_before", UtcDateTime),
    Column("attempts", Integer, nullable=False),
    Column("delivered_at", UtcDateTime),
    Column("error", CleanText),
    Column("topic", Name, nullable=False, server_default=Topic.EVENT.value),
    Column("dedupe_key", Name),
    Column("lease_until", UtcDateTime),
    Column("result", Name),
    Column("external_id", Name),
    Column("incident_id", Integer),  # its number; a notice is no reason to keep it
    one_of("topic", Topic),
    one_of("result", DeliveryOutcome),
    Index(None, "delivered_at", "not_before"),
    Index(None, "delivered_at", "id"),
    Index(None, "event_id"),
    Index("uq_outbox_target_dedupe_key", "target", "dedupe_key", unique=True),
    Index(None, "target", "delivered_at"),
    Index(None, "target", "id"),
    Index(None, "incident_id", "id"),
)
