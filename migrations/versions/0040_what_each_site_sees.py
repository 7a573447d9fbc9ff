"""How a probe stands at each of several sites that look."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"

_AT = sa.DateTime(timezone=True)  # UTC
_STATES = "state IN ('unknown', 'up', 'degraded', 'down', 'flapping', 'silenced')"


def upgrade() -> None:
    op.create_table(
        "probe_views",
        sa.Column("probe", sa.String(255), nullable=False),
        sa.Column("site", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("state", sa.String(255), nullable=False),
        sa.Column("since", _AT),
        sa.Column("last_checked_at", _AT),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("latency_ms", sa.Float()),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("successes", sa.BigInteger(), nullable=False),
        sa.Column("explained_by", sa.String(255), nullable=False),
        sa.Column("counters", sa.Text(), nullable=False),
        sa.Column("healthy_since", _AT),
        sa.CheckConstraint(_STATES, name=op.f("ck_probe_views_state")),
        sa.PrimaryKeyConstraint("probe", "site", name=op.f("pk_probe_views")),
    )


def downgrade() -> None:
    op.drop_table("probe_views")
