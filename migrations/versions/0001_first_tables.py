"""The tables as they were first laid down; imports nothing of claudeops, whose code goes on while this stays."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

revision = "0001"
down_revision = None

NAME = sa.String(255)
TEXT = sa.Text()
TIME = sa.DateTime(timezone=True)  # UTC
COUNT = sa.BigInteger()
USD = sa.Numeric(20, 10)

REASONS = "healthy escalated max_tier dry_run cooldown budget no_report no_evidence session_failed paused"
OUTCOMES = (
    "success error max_turns budget_exceeded max_tokens timeout startup_timeout stalled cancelled blocked"
    " no_output no_result out_of_memory spawn_failed ungated_call lost"
)


def upgrade() -> None:
    for create in TABLES.values():
        create()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _table(name: str, *items: SchemaItem) -> None:
    key = (sa.Column("id", sa.Integer, nullable=False), sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}")))
    op.create_table(name, *key, *items, sqlite_autoincrement=True)  # autoincrement: ids are never used twice


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, columns)


def _one_of(table: str, column: str, values: str) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values.split())
    return sa.CheckConstraint(f"{column} IN ({listed})", name=op.f(f"ck_{table}_{column}"))


def _refers(table: str, column: str, *, to: str, nullable: bool = True) -> sa.Column[int]:
    reference = sa.ForeignKey(f"{to}.id", name=op.f(f"fk_{table}_{column}_{to}"))
    return sa.Column(column, sa.Integer, reference, nullable=nullable)


def _create_sessions() -> None:
    _table("sessions", *_wanted(), *_became(), *_rules())
    _index("sessions", "root_session_id")
    _index("sessions", "status", "not_before")


def _wanted() -> tuple[SchemaItem, ...]:
    return (
        _refers("sessions", "root_session_id", to="sessions"),
        _refers("sessions", "parent_session_id", to="sessions"),
        sa.Column("tier", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("harness", NAME, nullable=False),
        sa.Column("model", NAME, nullable=False),
        sa.Column("trigger", NAME, nullable=False),
        sa.Column("prompt_text", TEXT),
        sa.Column("context", TEXT),
        sa.Column("status", NAME, nullable=False),
        sa.Column("outcome", NAME),
        sa.Column("error_category", NAME),
        sa.Column("failure_kind", NAME),
        sa.Column("error", TEXT),
        sa.Column("extraction_method", NAME),
        sa.Column("decision_reason", NAME),
        sa.Column("cli_session_id", NAME),
        sa.Column("api_key_source", NAME),
    )


def _became() -> tuple[SchemaItem, ...]:
    return (
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("not_before", TIME),
        sa.Column("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("duration_ms", COUNT),
        sa.Column("exit_code", COUNT),
        sa.Column("num_turns", COUNT),
        sa.Column("input_tokens", COUNT),
        sa.Column("output_tokens", COUNT),
        sa.Column("cost_usd", USD),
        sa.Column("summary", TEXT),
        sa.Column("response", TEXT),
        sa.Column("tool_calls_seen", COUNT),
        sa.Column("calls_ran", COUNT),
        sa.Column("malformed_lines", COUNT),
        sa.Column("permission_mode", NAME),
        sa.Column("stop_reason", NAME),
        sa.Column("cli_duration_ms", COUNT),
        sa.Column("cached_input_tokens", COUNT),
        sa.Column("reasoning_output_tokens", COUNT),
        sa.Column("tool_errors", COUNT),
        sa.Column("api_retries", COUNT),
        sa.Column("unknown_frames", COUNT),
        sa.Column("last_assistant_text", TEXT),
        sa.Column("warnings", TEXT),
        sa.Column("stderr_tail", TEXT),
        sa.Column("log_path", TEXT),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("owner", NAME),
        sa.Column("lease_expires_at", TIME),
        sa.Column("audit_head", NAME, nullable=False),
    )


def _rules() -> tuple[SchemaItem, ...]:
    return (
        sa.CheckConstraint("(status = 'ended') = (outcome IS NOT NULL)", name=op.f("ck_sessions_ended_has_outcome")),
        _one_of("sessions", "decision_reason", REASONS),
        _one_of("sessions", "extraction_method", "structured salvaged markers none"),
        _one_of("sessions", "outcome", OUTCOMES),
        _one_of("sessions", "status", "queued running ended"),
        sa.UniqueConstraint(
            *("parent_session_id", "tier", "trigger", "ordinal"),
            name=op.f("uq_sessions_parent_session_id_tier_trigger_ordinal"),
        ),
    )


def _create_events() -> None:
    _table(
        "events",
        _refers("events", "session_id", to="sessions"),
        _refers("events", "last_session_id", to="sessions"),
        sa.Column("level", NAME, nullable=False),
        sa.Column("service", NAME),
        sa.Column("message", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("fingerprint", NAME, nullable=False),
        sa.Column("first_seen", TIME, nullable=False),
        sa.Column("last_seen", TIME, nullable=False),
        sa.Column("count", COUNT, nullable=False),
        sa.Column("resolved_at", TIME),
        _one_of("events", "level", "info warning critical"),
    )
    _index("events", "service", "resolved_at")
    _index("events", "session_id")
    only = sa.text("resolved_at IS NULL")
    op.create_index(
        "uq_events_open_fingerprint", "events", ["fingerprint"], unique=True, sqlite_where=only, postgresql_where=only
    )


def _create_memories() -> None:
    _table(
        "memories",
        sa.Column("service", NAME),
        sa.Column("category", NAME, nullable=False),
        sa.Column("observation", TEXT, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        _refers("memories", "session_id", to="sessions"),
        sa.Column("tier", sa.Integer),
        sa.CheckConstraint("confidence >= 0 AND confidence <= 1", name=op.f("ck_memories_confidence")),
    )
    _index("memories", "active", "updated_at")
    _index("memories", "category", "service")


def _create_service_checks() -> None:
    _table(
        "service_checks",
        _refers("service_checks", "session_id", to="sessions"),
        sa.Column("service", NAME, nullable=False),
        sa.Column("status", NAME, nullable=False),
        sa.Column("detail", TEXT),
        sa.Column("source", NAME, nullable=False),
        sa.Column("checked_at", TIME, nullable=False),
        _one_of("service_checks", "source", "probe report"),
        _one_of("service_checks", "status", "healthy degraded down unreachable"),
    )
    _index("service_checks", "service", "id")
    _index("service_checks", "session_id")


def _create_tool_calls() -> None:
    _table(
        "tool_calls",
        _refers("tool_calls", "session_id", to="sessions", nullable=False),
        sa.Column("tool_use_id", NAME, nullable=False),
        sa.Column("agent_id", NAME),
        sa.Column("tool_name", NAME, nullable=False),
        sa.Column("input", TEXT, nullable=False),
        sa.Column("verdict", NAME, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("decided_at", TIME, nullable=False),
        sa.Column("ended_at", TIME),
        sa.Column("is_error", sa.Boolean),
        sa.Column("previous_hash", NAME, nullable=False),
        sa.Column("hash", NAME, nullable=False),
        _one_of("tool_calls", "verdict", "allow deny ask"),
    )
    _index("tool_calls", "session_id", "tool_use_id")


def _create_cooldown_actions() -> None:
    _table(
        "cooldown_actions",
        _refers("cooldown_actions", "session_id", to="sessions", nullable=False),
        sa.Column("tool_use_id", NAME, nullable=False),
        sa.Column("service", NAME, nullable=False),
        sa.Column("action_type", NAME, nullable=False),
        sa.Column("timestamp", TIME, nullable=False),
        sa.Column("success", sa.Boolean),
        sa.Column("tier", sa.Integer, nullable=False),
        sa.Column("error", TEXT),
        sa.Column("cleared_at", TIME),
    )
    _index("cooldown_actions", "cleared_at", "timestamp")
    _index("cooldown_actions", "session_id")


def _create_approvals() -> None:
    _table(
        "approvals",
        _refers("approvals", "session_id", to="sessions", nullable=False),
        sa.Column("tool_use_id", NAME, nullable=False),
        sa.Column("call_hash", NAME, nullable=False),
        sa.Column("status", NAME, nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("decided_at", TIME),
        sa.Column("decided_by", NAME),
    )
    _index("approvals", "session_id", "tool_use_id")
    _index("approvals", "status", "expires_at")


def _create_model_calls() -> None:
    _table(
        "model_calls",
        _refers("model_calls", "session_id", to="sessions", nullable=False),
        sa.Column("model", NAME, nullable=False),
        sa.Column("input_tokens", COUNT),
        sa.Column("output_tokens", COUNT),
        sa.Column("cache_read_tokens", COUNT),
        sa.Column("cache_write_tokens", COUNT),
        sa.Column("cost_usd", USD),
        sa.Column("http_status", sa.Integer),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("ended_at", TIME),
    )
    _index("model_calls", "session_id")
    _index("model_calls", "started_at")


def _create_budget_entries() -> None:
    _table(
        "budget_entries",
        _refers("budget_entries", "session_id", to="sessions"),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("amount_usd", USD, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        _one_of("budget_entries", "kind", "reserved settled released"),
    )
    _index("budget_entries", "created_at")
    _index("budget_entries", "session_id")


def _create_schedule_fires() -> None:
    op.create_table(
        "schedule_fires",
        sa.Column("schedule", NAME, nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("fired_at", TIME, nullable=False),
        _refers("schedule_fires", "session_id", to="sessions"),
        sa.Column("skipped_reason", NAME),
        sa.PrimaryKeyConstraint("schedule", "due_at", name=op.f("pk_schedule_fires")),
    )
    _index("schedule_fires", "session_id")


def _create_outbox() -> None:
    _table(
        "outbox",
        _refers("outbox", "event_id", to="events"),
        sa.Column("target", NAME, nullable=False),
        sa.Column("payload", TEXT, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("not_before", TIME),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("delivered_at", TIME),
        sa.Column("error", TEXT),
    )
    _index("outbox", "delivered_at", "not_before")


def _create_commands() -> None:
    _table(
        "commands",
        sa.Column("name", NAME, nullable=False),
        sa.Column("arguments", TEXT, nullable=False),
        sa.Column("requested_by", NAME),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("taken_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("result", TEXT),
        sa.Column("error", TEXT),
    )
    _index("commands", "taken_at")


def _create_flags() -> None:
    op.create_table(
        "flags",
        sa.Column("name", NAME, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.Column("reason", TEXT),
        sa.Column("until", TIME),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("updated_by", NAME),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_flags")),
    )


def _create_instances() -> None:
    op.create_table(
        "instances",
        sa.Column("owner", NAME, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_started_at", sa.Float, nullable=False),
        sa.Column("boot_id", NAME, nullable=False),
        sa.Column("heartbeat", TIME, nullable=False),
        sa.PrimaryKeyConstraint("owner", name=op.f("pk_instances")),
    )


TABLES = {  # in the order of their references: dropped from the end
    "sessions": _create_sessions,
    "events": _create_events,
    "memories": _create_memories,
    "service_checks": _create_service_checks,
    "tool_calls": _create_tool_calls,
    "cooldown_actions": _create_cooldown_actions,
    "approvals": _create_approvals,
    "model_calls": _create_model_calls,
    "budget_entries": _create_budget_entries,
    "schedule_fires": _create_schedule_fires,
    "outbox": _create_outbox,
    "commands": _create_commands,
    "flags": _create_flags,
    "instances": _create_instances,
}
