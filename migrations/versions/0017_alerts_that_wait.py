"""Alerts that wait: what was acknowledged and is not decided about yet."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "alert_queue",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("delivery_id", sa.Integer(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["alert_deliveries.id"], name=op.f("fk_alert_queue_delivery_id_alert_deliveries")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_queue")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_alert_queue_delivery_id"), "alert_queue", ["delivery_id"])


def downgrade() -> None:
    op.drop_table("alert_queue")
