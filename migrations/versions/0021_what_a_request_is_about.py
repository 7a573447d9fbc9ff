"""What a request is about: the services that a chain must report on. A refusal is a kind of failure of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_SESSIONS = sa.table("sessions", sa.column("failure_kind", sa.String()), sa.column("stop_reason", sa.String()))


def upgrade() -> None:
    op.add_column("sessions", sa.Column("services", sa.Text(), nullable=True))
    refused = (_SESSIONS.c.failure_kind == "other") & (_SESSIONS.c.stop_reason == "refusal")
    op.execute(_SESSIONS.update().where(refused).values(failure_kind="refusal"))


def downgrade() -> None:
    op.execute(_SESSIONS.update().where(_SESSIONS.c.failure_kind == "refusal").values(failure_kind="other"))
    op.drop_column("sessions", "services")
