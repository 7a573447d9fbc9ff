"""Keys by which a program's call is made once, however often it is sent."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("caller", sa.String(255), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("answer", sa.Text()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_idempotency_keys_caller_key", "idempotency_keys", ["caller", "key"], unique=True)
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])


def downgrade() -> None:
    op.drop_table("idempotency_keys")
