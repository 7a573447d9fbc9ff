"""The table of notices that wait for a target, or were sent to one."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Index, Integer

from claudeops.domain.notices.notice import DeliveryOutcome, Topic
from claudeops.store.tables.base import one_of, table
from claudeops.store.tables.columns import CleanText, Name, UtcDateTime

outbox: Final = table(
    "outbox",
    Column("event_id", Integer, ForeignKey("events.id"), comment="the event that it is about; null: none"),
    Column(
        "target",
        Name,
        nullable=False,
        comment="its name in `notify.toml`; `apprise` is `CLAUDEOPS_APPRISE_URLS`; empty: not given to its targets "
        "yet; addresses are never stored",
    ),
    Column("payload", CleanText, nullable=False, comment="JSON: the message's parts, redacted"),
    Column("created_at", UtcDateTime, nullable=False, comment="when the notice was written"),
    Column("not_before", UtcDateTime, comment="when it may be tried (again); null: at once"),
    Column("attempts", Integer, nullable=False, comment="how often its delivery was tried"),
    Column("delivered_at", UtcDateTime, comment="when it was over, whatever its result; null: not yet"),
    Column("error", CleanText, comment="of the last attempt; null: none"),
    Column("topic", Name, nullable=False, server_default=Topic.EVENT.value, comment="what it is about"),
    Column("dedupe_key", Name, comment="names what it reports, which a target gets once; null: from an older version"),
    Column("lease_until", UtcDateTime, comment="until then a daemon is delivering it; null: none is"),
    Column("result", Name, comment="of the last attempt; null: none was made"),
    Column("external_id", Name, comment="the message's id at the target, by which it can be edited; null: not known"),
    # no reference: a notice is no reason to keep it
    Column("incident_id", Integer, comment="the number of the incident that it is about; null: none"),
    one_of("topic", Topic),
    one_of("result", DeliveryOutcome),
    Index(None, "delivered_at", "not_before"),
    Index(None, "delivered_at", "id"),
    Index(None, "event_id"),
    Index("uq_outbox_target_dedupe_key", "target", "dedupe_key", unique=True),
    Index(None, "target", "delivered_at"),
    Index(None, "target", "id"),
    Index(None, "incident_id", "id"),
    Index(None, "dedupe_key"),
    comment="Notifications on their way, one row for each target. A row is written in the commit of the "
    "decision that it reports.",
)
