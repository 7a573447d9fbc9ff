"""Incidents of a severity, newest first."""

from alembic import op

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    op.create_index(op.f("ix_incidents_severity_number"), "incidents", ["severity", "number"])


def downgrade() -> None:
    op.drop_index(op.f("ix_incidents_severity_number"), "incidents")
