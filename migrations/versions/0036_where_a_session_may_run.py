"""Of which site a session is, and which machine alone may run it."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"

_ADDED = ("site", "for_node")


def upgrade() -> None:
    for column in _ADDED:
        op.add_column("sessions", sa.Column(column, sa.String(255)))


def downgrade() -> None:
    for column in reversed(_ADDED):
        op.drop_column("sessions", column)
