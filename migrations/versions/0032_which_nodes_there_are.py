"""Which nodes there are, what they are and decide by; which of them has a log, and the sites of probes."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0030"

_NAMES = ("node", "site", "version", "revision")


def upgrade() -> None:
    for name in _NAMES:
        op.add_column("instances", sa.Column(name, sa.String(255)))
    op.add_column("instances", sa.Column("digests", sa.Text()))
    op.add_column("sessions", sa.Column("log_node", sa.String(255)))
    op.add_column("probes", sa.Column("site", sa.String(255)))


def downgrade() -> None:
    op.drop_column("probes", "site")
    op.drop_column("sessions", "log_node")
    for name in ("digests", *reversed(_NAMES)):
        op.drop_column("instances", name)
