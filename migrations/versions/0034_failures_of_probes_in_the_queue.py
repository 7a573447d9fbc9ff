"""Failures of probes in the queue of alerts, before the bodies of senders; and what was last decided about them."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"

NAME = sa.String(255)
TIME = sa.DateTime(timezone=True)  # UTC
NUMBERED = {"sqlite_autoincrement": True}

_INDEX = "ix_alert_queue_priority_id"


def upgrade() -> None:
    op.add_column("alert_queue", sa.Column("priority", sa.Integer(), server_default="1", nullable=False))
    op.create_index(op.f(_INDEX), "alert_queue", ["priority", "id"])
    with op.batch_alter_table("probes") as probes:
        probes.add_column(sa.Column("handled_at", TIME, nullable=True))
        probes.add_column(sa.Column("handled_state", NAME, nullable=True))
    op.execute("UPDATE probes SET handled_at = chain_at")


def downgrade() -> None:
    with op.batch_alter_table("probes") as probes:
        probes.drop_column("handled_state")
        probes.drop_column("handled_at")
    op.drop_index(op.f(_INDEX), "alert_queue")
    with op.batch_alter_table("alert_queue", table_kwargs=NUMBERED) as queue:
        queue.drop_column("priority")
