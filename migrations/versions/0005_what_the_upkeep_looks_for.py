"""What the upkeep looks for, and what a row's removal looks for in others, is found by an index."""

from alembic import op

revision = "0005"
down_revision = "0004"

INDEXES = (
    # what is old
    ("sessions", "ended_at"),
    ("events", "resolved_at"),
    ("service_checks", "checked_at"),
    # who names a row that goes
    ("sessions", "parent_session_id"),
    ("events", "last_session_id"),
    ("memories", "session_id"),
    ("outbox", "event_id"),
)


def upgrade() -> None:
    for table, column in INDEXES:
        op.create_index(op.f(f"ix_{table}_{column}"), table, [column])


def downgrade() -> None:
    for table, column in reversed(INDEXES):
        op.drop_index(op.f(f"ix_{table}_{column}"), table)
