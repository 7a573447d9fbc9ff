"""Tables of sessions and of what they did: calls, actions, checks, calls of a model, and money."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, UniqueConstraint

from claudeops.domain.actions import Recheck
from claudeops.domain.calls import VerdictKind
from claudeops.domain.report.report import CheckSource, ExtractionMethod, ServiceStatus
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.store.tables.base import one_of, session_column, table
from claudeops.store.tables.columns import CleanText, Count, Name, Usd, UtcDateTime

sessions: Final = table(
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
    one_of("status", Status),
    one_of("outcome", Outcome),
    one_of("extraction_method", ExtractionMethod),
    one_of("decision_reason", DecisionReason),
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

tool_calls: Final = table(
    "tool_calls",
    session_column(),
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
    one_of("verdict", VerdictKind),
    Index(None, "session_id", "tool_use_id"),
    Index(None, "session_id", "id"),
)

audit_tombstones: Final = table(
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

cooldown_actions: Final = table(
    "cooldown_actions",
    session_column(),
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
    one_of("held", Recheck),
    Index(None, "cleared_at", "timestamp"),
    Index(None, "session_id"),
    Index(None, "held_checked_at", "timestamp"),
    Index(None, "held", "follow_up_at"),
    Index(None, "follow_up_id"),
    Index(None, "service", "id"),
    Index(None, "tier", "id"),
    Index(None, "timestamp"),
)

service_checks: Final = table(
    "service_checks",
    session_column(nullable=True),
    Column("service", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("detail", CleanText),
    Column("source", Name, nullable=False),
    Column("checked_at", UtcDateTime, nullable=False),
    one_of("status", ServiceStatus),
    one_of("source", CheckSource),
    Index(None, "service", "id"),
    Index(None, "service", "session_id"),
    Index(None, "session_id"),
    Index(None, "checked_at"),
)

model_calls: Final = table(
    "model_calls",
    session_column(),
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

budget_entries: Final = table(
    "budget_entries",
    session_column(nullable=True),
    Column("kind", Name, nullable=False),
    Column("amount_usd", Usd, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    CheckConstraint("kind IN ('reserved', 'settled', 'released')", name="kind"),
    Index(None, "session_id"),
    Index(None, "created_at"),
)
