"""The schema: every table and column of the database.

Other people's tools read these names; a change needs a migration in ``migrations/versions`` and a new `HEAD`. Times are
UTC. Ids are never used again, not even after their row was deleted, because log files carry them. The database also
checks closed sets of values that rarely change.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from claudeops.domain.actions import Recheck
from claudeops.domain.briefing import TextKind
from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import DeliveryOutcome, Topic
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.report import CheckSource, ExtractionMethod, ServiceStatus
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.store.tables import alerting, base, learnt, web
from claudeops.store.tables.columns import CleanText, Count, Name, Usd, UtcDateTime

HEAD: Final = "0029"
"""The revision of the newest migration; it is compared before alembic is imported at all."""

metadata: Final = base.metadata
_one_of: Final = base.one_of
_session: Final = base.session_column
_table: Final = base.table

alert_deliveries: Final = alerting.alert_deliveries
alert_sources: Final = alerting.alert_sources
alert_queue: Final = alerting.alert_queue
alerts: Final = alerting.alerts
alert_decisions: Final = alerting.alert_decisions
incidents: Final = alerting.incidents
silences: Final = alerting.silences

memories: Final = learnt.memories
session_memories: Final = learnt.session_memories

api_tokens: Final = web.api_tokens
login_links: Final = web.login_links
users: Final = web.users
passkeys: Final = web.passkeys
web_sessions: Final = web.web_sessions
idempotency_keys: Final = web.idempotency_keys


def _where(condition: str) -> dict[str, Any]:
    """Return what restricts an index to some rows."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


sessions = _table(
    "sessions",
    Column("root_session_id", Integer, ForeignKey("sessions.id")),  # null only until its own insert is done
    Column("parent_session_id", Integer, ForeignKey("sessions.id")),
    Column("tier", Integer, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("harness", Name, nullable=False),
    Column("model", Name, nullable=False),
    Column("trigger", Name, nullable=False),
    Column("prompt_text", CleanText),
    Column("context", CleanText),
    Column("status", Name, nullable=False),
    Column("outcome", Name),
    Column("error_category", Name),
    Column("failure_kind", Name),
    Column("error", CleanText),
    Column("extraction_method", Name),
    Column("decision_reason", Name),
    Column("cli_session_id", Name),
    Column("api_key_source", Name),
    Column("created_at", UtcDateTime, nullable=False),
    Column("not_before", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("duration_ms", Count),
    Column("exit_code", Count),
    Column("num_turns", Count),
    Column("input_tokens", Count),
    Column("output_tokens", Count),
    Column("cost_usd", Usd),
    Column("summary", CleanText),
    Column("response", CleanText),
    Column("tool_calls_seen", Count),
    Column("calls_ran", Count),
    Column("malformed_lines", Count),
    Column("permission_mode", Name),
    Column("stop_reason", Name),
    Column("cli_duration_ms", Count),
    Column("cached_input_tokens", Count),
    Column("reasoning_output_tokens", Count),
    Column("tool_errors", Count),
    Column("api_retries", Count),
    Column("unknown_frames", Count),
    Column("last_assistant_text", CleanText),
    Column("warnings", CleanText),
    Column("stderr_tail", CleanText),
    Column("log_path", CleanText),
    Column("attempt", Integer, nullable=False),
    Column("owner", Name),
    Column("lease_expires_at", UtcDateTime),
    Column("audit_head", Name, nullable=False),
    Column("audit_results", Name),
    Column("isolation", Name),
    Column("budget_usd", Usd),
    Column("incident_id", Integer),  # no reference: an incident is written with what leads to it
    Column("services", CleanText),
    Column("started_by", Name),
    UniqueConstraint("parent_session_id", "tier", "trigger", "ordinal"),
    _one_of("status", Status),
    _one_of("outcome", Outcome),
    _one_of("extraction_method", ExtractionMethod),
    _one_of("decision_reason", DecisionReason),
    CheckConstraint("(status = 'ended') = (outcome IS NOT NULL)", name="ended_has_outcome"),
    Index(None, "status", "not_before"),
    Index(None, "root_session_id"),
    Index(None, "parent_session_id"),
    Index(None, "ended_at"),
    Index(None, "incident_id"),
    Index(None, "created_at"),
    Index(None, "tier", "outcome", "id"),
    Index(None, "tier", "id"),
    Index(None, "outcome", "id"),
)

events = _table(
    "events",
    _session(nullable=True),
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
    _one_of("level", EventLevel),
    Index("uq_events_open_fingerprint", "fingerprint", unique=True, **_where("resolved_at IS NULL")),
    Index(None, "service", "resolved_at"),
    Index(None, "resolved_at"),
    Index(None, "created_at"),
    Index(None, "level", "id"),
    Index(None, "service", "level", "id"),
    Index("ix_events_seen_again", "last_seen", "service", "level", **_where("count > 1")),
    Index(None, "session_id"),
    Index(None, "last_session_id"),
    Index(None, "incident_id"),
)

session_texts = _table(
    "session_texts",
    _session(),
    Column("kind", Name, nullable=False),
    Column("name", Name, nullable=False),
    Column("origin", Name, nullable=False),
    Column("digest", Name, nullable=False),
    _one_of("kind", TextKind),
    Index(None, "session_id"),
)

service_checks = _table(
    "service_checks",
    _session(nullable=True),
    Column("service", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("detail", CleanText),
    Column("source", Name, nullable=False),
    Column("checked_at", UtcDateTime, nullable=False),
    _one_of("status", ServiceStatus),
    _one_of("source", CheckSource),
    Index(None, "service", "id"),
    Index(None, "service", "session_id"),
    Index(None, "session_id"),
    Index(None, "checked_at"),
)

tool_calls = _table(
    "tool_calls",
    _session(),
    Column("tool_use_id", Name, nullable=False),
    Column("agent_id", Name),
    Column("tool_name", Name, nullable=False),
    Column("input", CleanText, nullable=False),
    Column("verdict", Name, nullable=False),
    Column("reason", CleanText, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("decided_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("is_error", Boolean),
    Column("previous_hash", Name, nullable=False),
    Column("hash", Name, nullable=False),
    Column("held_service", Name),
    Column("ran", CleanText),  # the input that runs instead of ``input``; null: ``input`` itself, or nothing, runs
    _one_of("verdict", VerdictKind),
    Index(None, "session_id", "tool_use_id"),
    Index(None, "session_id", "id"),
)

audit_tombstones = _table(
    "audit_tombstones",
    Column("session_id", Integer, nullable=False),  # no reference: the session's row may be gone
    Column("calls", Count, nullable=False),
    Column("audit_head", Name, nullable=False),
    Column("audit_results", Name),
    Column("reason", Name, nullable=False),
    Column("buried_at", UtcDateTime, nullable=False),
    Column("previous_hash", Name, nullable=False),
    Column("hash", Name, nullable=False),
    Index(None, "session_id"),
)

cooldown_actions = _table(
    "cooldown_actions",
    _session(),
    Column("tool_use_id", Name, nullable=False),
    Column("service", Name, nullable=False),
    Column("action_type", Name, nullable=False),
    Column("timestamp", UtcDateTime, nullable=False),
    Column("success", Boolean),
    Column("tier", Integer, nullable=False),
    Column("error", CleanText),
    Column("cleared_at", UtcDateTime),
    Column("held", Name),
    Column("held_checked_at", UtcDateTime),
    Column("follow_up_at", UtcDateTime),
    Column("follow_up_id", Integer),  # no reference: the session's row may be gone
    _one_of("held", Recheck),
    Index(None, "cleared_at", "timestamp"),
    Index(None, "session_id"),
    Index(None, "held_checked_at", "timestamp"),
    Index(None, "held", "follow_up_at"),
    Index(None, "follow_up_id"),
    Index(None, "service", "id"),
    Index(None, "tier", "id"),
    Index(None, "timestamp"),
)

approvals = _table(
    "approvals",
    _session(),
    Column("tool_use_id", Name, nullable=False),
    Column("call_hash", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("decided_at", UtcDateTime),
    Column("decided_by", Name),
    Column("agent_id", Name),
    Column("tool_name", Name),
    Column("tier", Integer),
    Column("workdir", CleanText),
    Column("input", CleanText),
    Column("scripts", CleanText),
    Column("reason", CleanText),
    Column("mac", Name),
    Column("services", CleanText),
    Column("needed", Integer, nullable=False, server_default="1"),
    Column("unheard", CleanText),
    Column("hidden", Boolean),
    Column("passkey", Boolean),
    Index(None, "status", "expires_at"),
    Index(None, "session_id", "tool_use_id"),
)

approval_messages = _table(
    "approval_messages",
    _session(),
    Column("approval_id", Integer, nullable=False),  # no reference: both go with the session
    Column("call_hash", Name, nullable=False),
    Column("target", Name, nullable=False),
    Column("chat", Name, nullable=False),
    Column("yes_digest", Name),
    Column("no_digest", Name),
    Column("external_id", Name),
    Column("sent_at", UtcDateTime, nullable=False),
    Column("used_at", UtcDateTime),
    Column("shown", Name),
    Column("edited_at", UtcDateTime),
    Index(None, "session_id"),
    Index(None, "approval_id"),
    Index(None, "shown", "sent_at"),
    Index("uq_approval_messages_yes_digest", "yes_digest", unique=True),
    Index("uq_approval_messages_no_digest", "no_digest", unique=True),
)

approval_answers = _table(
    "approval_answers",
    # Questions are removed with their session, and answers with their question.
    Column("approval_id", Integer, ForeignKey("approvals.id", ondelete="CASCADE"), nullable=False),
    Column("person", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("decided_by", Name, nullable=False),
    Column("decided_at", UtcDateTime, nullable=False),
    Column("mac", Name, nullable=False),
    Column("assertion", Name),
    UniqueConstraint("approval_id", "person", "status"),
)

passkey_assertions = _table(
    "passkey_assertions",
    # As answers, they are removed with their question.
    Column("approval_id", Integer, ForeignKey("approvals.id", ondelete="CASCADE"), nullable=False),
    Column("user_id", Integer, nullable=False),  # no reference: users stay on record
    Column("digest", Name, nullable=False),
    Column("call_hash", Name, nullable=False),
    Column("answer", Name, nullable=False),
    Column("nonce", Name, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("rp_id", Name, nullable=False),
    Column("credential_id", CleanText, nullable=False),
    Column("public_key", CleanText, nullable=False),
    Column("authenticator_data", CleanText, nullable=False),
    Column("client_data", CleanText, nullable=False),
    Column("signature", CleanText, nullable=False),
    Column("sign_count", Count, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "approval_id"),
    Index("uq_passkey_assertions_digest", "digest", unique=True),
)

model_calls = _table(
    "model_calls",
    _session(),
    Column("model", Name, nullable=False),
    Column("input_tokens", Count),
    Column("output_tokens", Count),
    Column("cache_read_tokens", Count),
    Column("cache_write_tokens", Count),
    Column("cache_write_1h_tokens", Count),
    Column("cost_usd", Usd),
    Column("charged_usd", Usd),
    Column("http_status", Integer),
    Column("error", CleanText),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Index(None, "session_id", "id"),
    Index(None, "started_at"),
)

budget_entries = _table(
    "budget_entries",
    _session(nullable=True),
    Column("kind", Name, nullable=False),
    Column("amount_usd", Usd, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    CheckConstraint("kind IN ('reserved', 'settled', 'released')", name="kind"),
    Index(None, "session_id"),
    Index(None, "created_at"),
)

schedule_fires = Table(
    "schedule_fires",
    metadata,
    Column("schedule", Name, nullable=False),
    Column("due_at", UtcDateTime, nullable=False),
    Column("fired_at", UtcDateTime, nullable=False),
    _session(nullable=True),
    Column("skipped_reason", Name),
    Column("saved_usd", Usd),
    Column("after_chain", Integer),  # no reference: the chain may be gone
    PrimaryKeyConstraint("schedule", "due_at"),
    Index(None, "session_id"),
    Index(None, "fired_at"),
)

probes = Table(
    "probes",
    metadata,
    Column("name", Name, primary_key=True),
    Column("service", Name, nullable=False),
    Column("kind", Name, nullable=False),
    Column("state", Name, nullable=False),
    Column("since", UtcDateTime),
    Column("last_checked_at", UtcDateTime),
    Column("detail", CleanText, nullable=False),
    Column("latency_ms", Float),
    Column("failures", Count, nullable=False),
    Column("successes", Count, nullable=False),
    Column("owner", Name),
    Column("interval_seconds", Float, nullable=False),
    Column("explained_by", Name, nullable=False),
    Column("incident", Name, nullable=False),
    Column("counters", CleanText, nullable=False),
    Column("healthy_since", UtcDateTime),
    _session(nullable=True),
    Column("chain_at", UtcDateTime),
    Column("ping_success_at", UtcDateTime),
    Column("ping_start_at", UtcDateTime),
    Column("ping_fail_at", UtcDateTime),
    Column("ping_text", CleanText),
    Column("ping_runs", CleanText),
    _one_of("state", ProbeState),
    Index(None, "service"),
    Index(None, "session_id"),
)

probe_history = Table(
    "probe_history",
    metadata,
    Column("probe", Name, nullable=False),  # no reference: its pictures outlive a declaration
    Column("resolution", Integer, nullable=False),  # seconds
    Column("bucket", UtcDateTime, nullable=False),
    Column("checks", Count, nullable=False),
    Column("failures", Count, nullable=False),
    Column("latency", CleanText, nullable=False),
    PrimaryKeyConstraint("probe", "resolution", "bucket"),
    Index(None, "resolution", "bucket"),
)

outbox = _table(
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
    _one_of("topic", Topic),
    _one_of("result", DeliveryOutcome),
    Index(None, "delivered_at", "not_before"),
    Index(None, "delivered_at", "id"),
    Index(None, "event_id"),
    Index("uq_outbox_target_dedupe_key", "target", "dedupe_key", unique=True),
    Index(None, "target", "delivered_at"),
    Index(None, "target", "id"),
    Index(None, "incident_id", "id"),
)

commands = _table(
    "commands",
    Column("name", Name, nullable=False),
    Column("arguments", CleanText, nullable=False),
    Column("requested_by", Name),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("taken_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("result", CleanText),
    Column("error", CleanText),
    Index(None, "taken_at"),
)

flags = Table(
    "flags",
    metadata,
    Column("name", Name, primary_key=True),
    Column("value", CleanText, nullable=False),
    Column("reason", CleanText),
    Column("until", UtcDateTime),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("updated_by", Name),
)

instances = Table(
    "instances",
    metadata,
    Column("owner", Name, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("process_started_at", Float, nullable=False),  # seconds since the epoch
    Column("boot_id", Name, nullable=False),
    Column("heartbeat", UtcDateTime, nullable=False),
)
