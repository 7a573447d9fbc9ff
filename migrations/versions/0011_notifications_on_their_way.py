"""Notifications on their way: what each is about, who delivers it until when, and what came of it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

TOPICS = "incident approval event digest self"
RESULTS = "delivered failed unknown suppressed"


def upgrade() -> None:
    # In plain words: both databases take a check with its column, and SQLite need not copy the table for it. The
    # default is for daemons of the release before, which go on writing beside the new one.
    op.execute(
        "ALTER TABLE outbox ADD COLUMN topic VARCHAR(255) DEFAULT 'event' NOT NULL"
        f" CONSTRAINT ck_outbox_topic CHECK (topic IN ({_listed(TOPICS)}))"
    )
    op.add_column("outbox", sa.Column("dedupe_key", sa.String(255)))
    op.add_column("outbox", sa.Column("lease_until", sa.DateTime(timezone=True)))
    op.execute(
        "ALTER TABLE outbox ADD COLUMN result VARCHAR(255)"
        f" CONSTRAINT ck_outbox_result CHECK (result IN ({_listed(RESULTS)}))"
    )
    op.add_column("outbox", sa.Column("external_id", sa.String(255)))
    op.create_index(op.f("uq_outbox_target_dedupe_key"), "outbox", ["target", "dedupe_key"], unique=True)
    op.create_index(op.f("ix_outbox_target_delivered_at"), "outbox", ["target", "delivered_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_outbox_target_delivered_at"), "outbox")
    op.drop_index(op.f("uq_outbox_target_dedupe_key"), "outbox")
    for name in ("external_id", "result", "lease_until", "dedupe_key", "topic"):
        op.drop_column("outbox", name)


def _listed(values: str) -> str:
    return ", ".join(f"'{value}'" for value in values.split())
