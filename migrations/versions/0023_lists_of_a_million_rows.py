"""Indexes by which every page of every list is found, however many rows there are."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

_ADDED = (
    ("sessions", "created_at"),
    ("sessions", "tier", "outcome", "id"),
    ("sessions", "tier", "id"),
    ("sessions", "outcome", "id"),
    ("events", "created_at"),
    ("events", "level", "id"),
    ("events", "service", "level", "id"),
    ("service_checks", "service", "session_id"),
    ("tool_calls", "session_id", "id"),
    ("cooldown_actions", "service", "id"),
    ("cooldown_actions", "tier", "id"),
    ("cooldown_actions", "timestamp"),
    ("model_calls", "session_id", "id"),
    ("alerts", "status", "id"),
    ("alerts", "service", "id"),
    ("alerts", "severity", "id"),
)
_AGAIN = "ix_events_seen_again"


def upgrade() -> None:
    for table, *columns in _ADDED:
        op.create_index(_name(table, columns), table, columns)
    again = sa.text("count > 1")
    op.create_index(_AGAIN, "events", ["last_seen", "service", "level"], sqlite_where=again, postgresql_where=again)
    op.drop_index("ix_model_calls_session_id", "model_calls")


def downgrade() -> None:
    op.create_index("ix_model_calls_session_id", "model_calls", ["session_id"])
    op.drop_index(_AGAIN, "events")
    for table, *columns in reversed(_ADDED):
        op.drop_index(_name(table, columns), table)


def _name(table: str, columns: list[str]) -> str:
    return op.f(f"ix_{table}_{'_'.join(columns)}")
