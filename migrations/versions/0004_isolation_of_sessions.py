"""What each session was locked into."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("isolation", sa.String(255)))


def downgrade() -> None:
    op.drop_column("sessions", "isolation")
