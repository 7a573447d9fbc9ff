"""In which namespace a daemon's pid means something."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"

_ADDED = (("instances", "pid_namespace"),)


def upgrade() -> None:
    for table, column in _ADDED:
        op.add_column(table, sa.Column(column, sa.String(255)))


def downgrade() -> None:
    for table, column in reversed(_ADDED):
        op.drop_column(table, column)
