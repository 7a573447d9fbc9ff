"""Who started a session: the person or token at whose wish it was queued."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("started_by", sa.String(255)))


def downgrade() -> None:
    op.drop_column("sessions", "started_by")
