"""An index by which the incidents that are not over are found, however many are."""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_index("ix_incidents_status_number", "incidents", ["status", "number"])


def downgrade() -> None:
    op.drop_index("ix_incidents_status_number", "incidents")
