"""Whether a question shows its call whole: parts that only have the shape of a secret are hidden, and run too."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("hidden", sa.Boolean()))


def downgrade() -> None:
    op.drop_column("approvals", "hidden")
