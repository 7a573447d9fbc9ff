"""Incidents that people hear of: which incident a notification is about, who has ended a silence, what runs."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("outbox", sa.Column("incident_id", sa.Integer()))
    op.create_index(op.f("ix_outbox_incident_id_id"), "outbox", ["incident_id", "id"])
    op.add_column("silences", sa.Column("ended_by", sa.String(255)))
    op.add_column("probes", sa.Column("ping_runs", sa.Text()))


def downgrade() -> None:
    op.drop_column("probes", "ping_runs")
    op.drop_column("silences", "ended_by")
    op.drop_index(op.f("ix_outbox_incident_id_id"), "outbox")
    op.drop_column("outbox", "incident_id")
