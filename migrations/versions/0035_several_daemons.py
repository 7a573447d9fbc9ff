"""In which namespace a daemon's pid means something, which daemon a command is for, and which one has taken it."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"

_ADDED = (("instances", "pid_namespace"), ("commands", "for_owner"), ("commands", "taken_by"))


def upgrade() -> None:
    for table, column in _ADDED:
        op.add_column(table, sa.Column(column, sa.String(255)))


def downgrade() -> None:
    for table, column in reversed(_ADDED):
        op.drop_column(table, column)
