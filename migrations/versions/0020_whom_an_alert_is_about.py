"""Whom an alert is about: what names its service, and the sender's group that it came with."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("alerts", sa.Column("service_by", sa.Text()))
    op.add_column("alerts", sa.Column("sender_group", sa.Text()))


def downgrade() -> None:
    op.drop_column("alerts", "sender_group")
    op.drop_column("alerts", "service_by")
