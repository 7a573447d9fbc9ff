"""What runs in the place of the call that was asked about."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("tool_calls", sa.Column("ran", sa.Text()))


def downgrade() -> None:
    op.drop_column("tool_calls", "ran")
