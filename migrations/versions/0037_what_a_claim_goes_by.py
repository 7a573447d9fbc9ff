"""The order of the queue by haste, and which tiers each daemon has."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"

_BEFORE = "ix_sessions_status_not_before"
_AFTER = "ix_sessions_status_ranked_at_id_not_before"


def upgrade() -> None:
    op.add_column("instances", sa.Column("max_tier", sa.Integer()))
    op.add_column("instances", sa.Column("is_alone", sa.Boolean()))
    op.add_column("sessions", sa.Column("ranked_at", sa.DateTime(timezone=True)))  # UTC
    op.execute("UPDATE sessions SET ranked_at = coalesce(not_before, created_at) WHERE status = 'queued'")
    op.create_index(op.f(_AFTER), "sessions", ["status", "ranked_at", "id", "not_before"])
    op.drop_index(op.f(_BEFORE), "sessions")


def downgrade() -> None:
    op.create_index(op.f(_BEFORE), "sessions", ["status", "not_before"])
    op.drop_index(op.f(_AFTER), "sessions")
    op.drop_column("sessions", "ranked_at")
    op.drop_column("instances", "is_alone")
    op.drop_column("instances", "max_tier")
