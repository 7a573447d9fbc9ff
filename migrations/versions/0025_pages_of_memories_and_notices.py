"""Indexes by which lists of memories and notices are found."""

from alembic import op

revision = "0025"
down_revision = "0024"

_ADDED = (
    ("memories", "active", "id"),
    ("memories", "service", "id"),
    ("outbox", "delivered_at", "id"),
    ("outbox", "target", "id"),
)


def upgrade() -> None:
    for table, *columns in _ADDED:
        op.create_index(_name(table, columns), table, columns)


def downgrade() -> None:
    for table, *columns in reversed(_ADDED):
        op.drop_index(_name(table, columns), table)


def _name(table: str, columns: list[str]) -> str:
    return op.f(f"ix_{table}_{'_'.join(columns)}")
