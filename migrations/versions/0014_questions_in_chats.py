"""Questions in chats: the messages that ask, and the services that a call would change."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("services", sa.Text()))
    op.create_table(
        "approval_messages",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("approval_id", sa.Integer(), nullable=False),
        sa.Column("call_hash", sa.String(255), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("chat", sa.String(255), nullable=False),
        sa.Column("yes_digest", sa.String(255)),
        sa.Column("no_digest", sa.String(255)),
        sa.Column("external_id", sa.String(255)),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True)),
        sa.Column("shown", sa.String(255)),
        sa.Column("edited_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_approval_messages_session_id_sessions")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approval_messages")),
        sqlite_autoincrement=True,
    )
    for columns in (("session_id",), ("approval_id",), ("shown", "sent_at")):
        op.create_index(op.f(f"ix_approval_messages_{'_'.join(columns)}"), "approval_messages", [*columns])
    for column in ("yes_digest", "no_digest"):
        op.create_index(f"uq_approval_messages_{column}", "approval_messages", [column], unique=True)


def downgrade() -> None:
    op.drop_table("approval_messages")
    op.drop_column("approvals", "services")
