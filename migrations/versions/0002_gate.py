"""What the gate asks people, what the limits held back, and what is left of calls that were removed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NAME = sa.String(255)
TEXT = sa.Text()
TIME = sa.DateTime(timezone=True)  # UTC

ASKED = (
    ("agent_id", NAME),
    ("tool_name", NAME),
    ("tier", sa.Integer()),
    ("workdir", TEXT),
    ("input", TEXT),
    ("scripts", TEXT),
    ("reason", TEXT),
    ("mac", NAME),
)


def upgrade() -> None:
    for name, kind in ASKED:
        op.add_column("approvals", sa.Column(name, kind))
    op.add_column("tool_calls", sa.Column("held_service", NAME))
    op.add_column("sessions", sa.Column("audit_results", NAME))
    op.create_table(
        "audit_tombstones",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("session_id", sa.Integer, nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("audit_head", NAME, nullable=False),
        sa.Column("audit_results", NAME),
        sa.Column("reason", NAME, nullable=False),
        sa.Column("buried_at", TIME, nullable=False),
        sa.Column("previous_hash", NAME, nullable=False),
        sa.Column("hash", NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_tombstones")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_audit_tombstones_session_id"), "audit_tombstones", ["session_id"])


def downgrade() -> None:
    op.drop_table("audit_tombstones")
    with op.batch_alter_table("sessions") as sessions:
        sessions.drop_column("audit_results")
    with op.batch_alter_table("tool_calls") as tool_calls:
        tool_calls.drop_column("held_service")
    with op.batch_alter_table("approvals") as approvals:
        for name, _ in reversed(ASKED):
            approvals.drop_column(name)
