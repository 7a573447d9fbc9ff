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
    Column("source", Name, nullable=False, comment="by `alerts.toml`; `probes`: the daemon's own"),
    Column("key", Name, nullable=False, comment="the same for the same delivery"),
    Column("received_at", UtcDateTime, nullable=False, comment="when it came first"),
    # redacted; null: the daemon's own probes have said it
    Column("raw", CleanText, comment="as it came, without secrets; null: the daemon's own probes"),
    Column("status", Name, nullable=False, comment="`read` or `unparsed`"),
    Column("remark", CleanText, comment="what else there is to know, or why it could not be read; null: nothing"),
    Column("alerts", Count, nullable=False, comment="alerts in it"),
    Column("left_out", Count, nullable=False, comment="of these, beyond the limit"),
    Column("repeats", Count, nullable=False, comment="times that it came again within ten minutes"),
    Index(None, "source", "key"),
    Index(None, "received_at"),
    comment="Bodies that were received, before anything was made of them. A body that comes again counts up "
    "the row of the first.",
)

alert_sources: Final = Table(
    "alert_sources",
    metadata,
    Column("source", Name, primary_key=True, comment="the source's name"),
    # when it was first heard of
    Column("since", UtcDateTime, nullable=False, comment="when its first body came"),
    Column("heard_at", UtcDateTime, nullable=False, comment="when its latest body came"),
    Column("bodies", Count, nullable=False, comment="bodies that it has sent, repeated ones too"),
    Column("alerts", Count, nullable=False, comment="alerts in them"),
    # bodies
    Column("unreadable", Count, nullable=False, comment="bodies that could not be read"),
    # of its latest body
    Column(
        "readable",
        Boolean,
        nullable=False,
        comment="whether the latest body could be read, or the source is no longer declared",
    ),
    Column(
        "unreadable_at", UtcDateTime, comment="when the last body came that could not be read; null: every one could"
    ),
    Column("reason", CleanText, comment="why not; null: every one could"),
    # no reference: the body may be gone
    Column("delivery_id", Integer, comment="that body; null: there is none, or it is deleted"),
    comment="Who sends alerts, one row for each source from which a body ever came; it counts what is deleted "
    "from `alert_deliveries` too.",
)

alert_queue: Final = table(
    "alert_queue",
    Column(
        "delivery_id",
        Integer,
        ForeignKey("alert_deliveries.id"),
        nullable=False,
        comment="the body; one that comes again waits again",
    ),
    Column("received_at", UtcDateTime, nullable=False, comment="when it came"),
    Column("said", CleanText, nullable=False, comment="JSON: what was understood of the body"),
    Column(
        "priority",
        Integer,
        nullable=False,
        server_default="1",
        comment="0: failures of probes, which are decided about first; 1: the body of a sender",
    ),
    Index(None, "delivery_id"),
    Index(None, "priority", "id"),
    comment="What was acknowledged and is not decided about yet, in the order of its priority and in which it came.",
)

alerts: Final = table(
    "alerts",
    Column("source", Name, nullable=False, comment="who sends it"),
    Column("fingerprint", Name, nullable=False, comment="with the source it is unique"),
    Column("name", Name, nullable=False, comment="of the rule, monitor or check"),
    Column("service", Name, nullable=False, comment="the service that it is about"),
    Column("severity", Name, nullable=False, comment="how severe it is"),
    Column("status", Name, nullable=False, comment="how it stands"),
    Column("labels", CleanText, nullable=False, comment="JSON: the sender's labels"),
    Column("annotations", CleanText, nullable=False, comment="JSON: the sender's annotations"),
    Column("url", CleanText, nullable=False, comment="where the sender shows it, or empty"),
    Column("starts_at", UtcDateTime, comment="when it began, by the sender; null: it does not report that"),
    Column("ends_at", UtcDateTime, comment="when it ended, by the sender; null: it does not report that"),
    Column("said_at", UtcDateTime, comment="when it was sent, by the sender; null: it does not report that"),
    Column("began", UtcDateTime, nullable=False, comment="when this status first came"),
    Column("last_seen", UtcDateTime, nullable=False, comment="when its latest message came"),
    Column("count", Count, nullable=False, comment="messages about it"),
    Column("flips", Count, nullable=False, comment="changes between firing and not, ever"),
    Column("changes", CleanText, nullable=False, comment="JSON: when the latest of these were"),
    Column("flapping", Boolean, nullable=False, comment="as of its last change"),
    Column("why_asked_at", UtcDateTime, comment="when a chain was last started to find out why it flaps; null: never"),
    Column(
        "contested_at",
        UtcDateTime,
        comment="when it came as firing after it had been resolved, perhaps only late; null: it did not",
    ),
    Column("decision", Name, comment="the latest one, but for duplicates; null: none yet"),
    # null: the daemon's own probe
    Column("service_by", CleanText, comment="what names the service: `its label app`; null: the daemon's own probe"),
    # null: the sender does not group
    Column(
        "sender_group", CleanText, comment="the sender's own group that it came with; null: the sender does not group"
    ),
    Column("group_key", CleanText, nullable=False, comment="names the group with which it starts a chain"),
    Column("due_at", UtcDateTime, comment="while it waits in its group: until then; null: it does not wait"),
    Column("incident_id", Integer, ForeignKey("incidents.number"), comment="the number of its incident; null: none"),
    UniqueConstraint("source", "fingerprint"),
    one_of("severity", EventLevel),
    one_of("status", AlertStatus),
    Index(None, "status", "last_seen"),
    Index(None, "status", "id"),
    Index(None, "service", "id"),
    Index(None, "severity", "id"),
    Index(None, "incident_id"),
    Index(None, "contested_at"),
    Index(None, "due_at"),
    comment="What is kept of each alert: one row for each source and fingerprint.",
)

alert_decisions: Final = table(
    "alert_decisions",
    # null: the body could not be read
    Column("alert_id", Integer, ForeignKey("alerts.id"), comment="the alert; null: the body could not be read"),
    # null: time alone has led to it
    Column(
        "delivery_id", Integer, ForeignKey("alert_deliveries.id"), comment="the body; null: time alone has led to it"
    ),
    Column("at", UtcDateTime, nullable=False, comment="when it was decided"),
    Column("decision", Name, nullable=False, comment="what became of it"),
    Column("because", CleanText, nullable=False, comment="why, one sentence"),
    Column("incident_id", Integer, comment="the number of the incident; null: none"),
    # no reference: the chain may be gone
    Column(
        "session_id", Integer, comment="the chain that was started, or that it joins, by its first session; null: none"
    ),
    one_of("decision", AlertDecision),
    Index(None, "alert_id", "id"),
    Index(None, "delivery_id"),
    Index(None, "incident_id", "id"),
    Index(None, "session_id", "id"),
    Index(None, "at"),
    comment="What became of every alert of every body, and what time alone has led to.",
)

incidents: Final = Table(
    "incidents",
    metadata,
    # the next after the highest; none is deleted
    Column(
        "number",
        Integer,
        primary_key=True,
        autoincrement=False,
        comment="the next after the highest; no incident is deleted",
    ),
    # the first of ``services``
    Column("service", Name, nullable=False, comment="the first of its services"),
    Column("services", CleanText, nullable=False, comment="JSON: all of them, at most 200"),
    Column("group_key", CleanText, nullable=False, comment="the group of alerts that opened it"),
    Column("severity", Name, nullable=False, comment="the highest that was reached"),
    Column("status", Name, nullable=False, comment="where it stands"),
    Column("opened_at", UtcDateTime, nullable=False, comment="when it began"),
    Column("fired_at", UtcDateTime, nullable=False, comment="when its latest signal came"),
    Column("started_at", UtcDateTime, comment="when its latest chain was started; null: none was"),
    Column("last_action_at", UtcDateTime, comment="when a session last changed something; null: none has"),
    Column("acked_by", Name, comment="who is on it; null: no person"),
    Column("acked_at", UtcDateTime, comment="since when; null: no person is on it"),
    Column("resolved_at", UtcDateTime, comment="when it was over; null: not yet"),
    Column("reopened", Count, nullable=False, comment="how often it came back"),
    Column(
        "witnesses",
        CleanText,
        nullable=False,
        comment="JSON: who reports that it is over: `kind`, `at`, `name`",
    ),
    # no reference: the chain may be gone
    Column("root_session_id", Integer, comment="its latest chain, by its first session; null: none was started"),
    Column("spend_usd", Usd, comment="what its sessions have cost; null: nothing is known yet"),
    one_of("severity", EventLevel),
    one_of("status", IncidentStatus),
    Index(None, "status", "resolved_at"),
    Index(None, "service", "number"),
    Index(None, "status", "number"),
    Index(None, "severity", "number"),
    Index(None, "opened_at"),
    comment="One trouble with one service or group, from its first signal to its proven end.",
)

is_unresolved: Final = incidents.c.status.in_((IncidentStatus.OPEN.value, IncidentStatus.ACKNOWLEDGED.value))
"""The condition that an incident is not over: unlike an inequality, both databases find such rows by an index."""

silences: Final = table(
    "silences",
    Column("matchers", CleanText, nullable=False, comment="which alerts, by their labels: JSON, a list of texts"),
    Column("starts_at", UtcDateTime, nullable=False, comment="when it begins"),
    Column("ends_at", UtcDateTime, nullable=False, comment="when it ends"),
    Column("created_by", Name, nullable=False, comment="who made it"),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was made"),
    Column("comment", CleanText, nullable=False, comment="why, or empty"),
    Column("suppressed_count", Count, nullable=False, comment="alerts that it has held back"),
    # null: it ends, or has ended, by itself
    Column("ended_by", Name, comment="who has ended it before its time; null: it ends, or has ended, by itself"),
    Index(None, "ends_at"),
    comment="What operators do not want to know of for a while. A silence is ended by its time or by a person, "
    "never deleted.",
)
