"""Indexes by which what is asked of a long history is found without reading all of it."""

from alembic import op

revision = "0030"
down_revision = "0029"

_ADDED = (
    ("events", "fingerprint", "id"),  # cases of the same condition, and the event that a late sight belongs to
    ("sessions", "cli_session_id"),  # a session that a person names by the beginning of its CLI's id
    ("cooldown_actions", "cleared_at", "service", "timestamp"),  # the last action that counts, at every session's end
    ("alerts", "due_at"),  # alerts that wait in their group
    ("incidents", "opened_at"),  # the daily digest
    ("memories", "created_at"),  # likewise
    ("memories", "forgotten_at"),  # likewise
    ("outbox", "dedupe_key"),  # whether the digest was sent, and whether a question has reached a person
    ("approval_messages", "external_id"),  # the question that an answer in a chat belongs to
    ("commands", "ended_at", "id"),  # what operators want of the daemon now
)


def upgrade() -> None:
    for table, *columns in _ADDED:
        op.create_index(_name(table, columns), table, columns)


def downgrade() -> None:
    for table, *columns in reversed(_ADDED):
        op.drop_index(_name(table, columns), table)


def _name(table: str, columns: list[str]) -> str:
    return op.f(f"ix_{table}_{'_'.join(columns)}")
