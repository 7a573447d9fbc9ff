"""Passkeys of people, and what they have signed."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.create_table(
        "passkeys",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("rp_id", sa.String(255), nullable=False),
        sa.Column("credential_id", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkeys")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_passkeys_user_id", "passkeys", ["user_id"])
    op.create_index("uq_passkeys_credential_id", "passkeys", ["credential_id"], unique=True)
    op.create_table(
        "passkey_assertions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("approval_id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("call_hash", sa.String(255), nullable=False),
        sa.Column("answer", sa.String(255), nullable=False),
        sa.Column("nonce", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("rp_id", sa.String(255), nullable=False),
        sa.Column("credential_id", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("authenticator_data", sa.Text(), nullable=False),
        sa.Column("client_data", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("sign_count", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["approval_id"],
            ["approvals.id"],
            name=op.f("fk_passkey_assertions_approval_id_approvals"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkey_assertions")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_passkey_assertions_approval_id"), "passkey_assertions", ["approval_id"])
    op.create_index("uq_passkey_assertions_digest", "passkey_assertions", ["digest"], unique=True)
    op.add_column("approvals", sa.Column("passkey", sa.Boolean()))
    op.add_column("approval_answers", sa.Column("assertion", sa.String(255)))


def downgrade() -> None:
    op.drop_column("approval_answers", "assertion")
    op.drop_column("approvals", "passkey")
    op.drop_table("passkey_assertions")
    op.drop_table("passkeys")
