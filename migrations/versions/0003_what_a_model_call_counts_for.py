"""What a model call counts for in budgets, what it wrote to caches for an hour, and how it failed."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("model_calls") as table:
        table.add_column(sa.Column("cache_write_1h_tokens", sa.BigInteger()))
        table.add_column(sa.Column("charged_usd", sa.Numeric(20, 10)))
        table.add_column(sa.Column("error", sa.Text()))


def downgrade() -> None:
    with op.batch_alter_table("model_calls") as table:
        table.drop_column("error")
        table.drop_column("charged_usd")
        table.drop_column("cache_write_1h_tokens")
