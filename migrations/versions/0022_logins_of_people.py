"""Logins of people: links that begin one, and one row for each browser."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_ROLES = "role IN ('viewer', 'operator', 'approver', 'admin')"


def upgrade() -> None:
    op.create_table(
        "login_links",
        *_columns("login_links"),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "web_sessions",
        *_columns("web_sessions"),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sqlite_autoincrement=True,
    )
    for table in ("login_links", "web_sessions"):
        op.create_index(f"uq_{table}_digest", table, ["digest"], unique=True)


def downgrade() -> None:
    op.drop_table("web_sessions")
    op.drop_table("login_links")


def _columns(table: str) -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("role", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(_ROLES, name=op.f(f"ck_{table}_role")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    ]
