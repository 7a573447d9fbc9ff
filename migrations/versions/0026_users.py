"""Users: people with a role and, where they have one, a password."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

_ROLES = "role IN ('viewer', 'operator', 'approver', 'admin')"


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("name_key", sa.String(255), nullable=False),
        sa.Column("role", sa.String(255), nullable=False),
        sa.Column("password_hash", sa.Text()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True)),
        sa.Column("disabled_by", sa.String(255)),
        sa.CheckConstraint(_ROLES, name=op.f("ck_users_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sqlite_autoincrement=True,
    )
    active = sa.text("disabled_at IS NULL")
    op.create_index(
        "uq_users_name_key", "users", ["name_key"], unique=True, sqlite_where=active, postgresql_where=active
    )
    op.add_column("login_links", sa.Column("user_id", sa.Integer()))
    op.add_column("web_sessions", sa.Column("user_id", sa.Integer()))
    op.add_column("web_sessions", sa.Column("look_only", sa.Boolean()))


def downgrade() -> None:
    # Without the users nothing bounds what their logins open.
    op.execute("DELETE FROM login_links WHERE user_id IS NOT NULL")
    op.execute("DELETE FROM web_sessions WHERE user_id IS NOT NULL OR look_only")
    op.drop_column("web_sessions", "look_only")
    op.drop_column("web_sessions", "user_id")
    op.drop_column("login_links", "user_id")
    op.drop_table("users")
