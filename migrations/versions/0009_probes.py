"""Probes of the daemon's own: how each stands, what it saw over time, and whether an action held."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

STATES = ("unknown", "up", "degraded", "down", "flapping", "silenced")
HELD = ("held", "relapsed", "unknown")
LEDGER = "cooldown_actions"


def upgrade() -> None:
    op.create_table(
        "probes",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("service", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(255), nullable=False),
        sa.Column("state", sa.String(255), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True)),
        sa.Column("last_checked_at", sa.DateTime(timezone=True)),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("latency_ms", sa.Float()),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("successes", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("interval_seconds", sa.Float(), nullable=False),
        sa.Column("explained_by", sa.String(255), nullable=False),
        sa.Column("incident", sa.String(255), nullable=False),
        sa.Column("counters", sa.Text(), nullable=False),
        sa.Column("healthy_since", sa.DateTime(timezone=True)),
        sa.Column("session_id", sa.Integer()),
        sa.Column("chain_at", sa.DateTime(timezone=True)),
        sa.Column("ping_success_at", sa.DateTime(timezone=True)),
        sa.Column("ping_start_at", sa.DateTime(timezone=True)),
        sa.Column("ping_fail_at", sa.DateTime(timezone=True)),
        sa.Column("ping_text", sa.Text()),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_probes_session_id_sessions")),
        sa.CheckConstraint(f"state IN ({_listed(STATES)})", name=op.f("ck_probes_state")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_probes")),
    )
    for column in ("service", "session_id"):
        op.create_index(op.f(f"ix_probes_{column}"), "probes", [column])
    op.create_table(
        "probe_history",
        sa.Column("probe", sa.String(255), nullable=False),
        sa.Column("resolution", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("checks", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("latency", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("probe", "resolution", "bucket", name=op.f("pk_probe_history")),
    )
    op.create_index(op.f("ix_probe_history_resolution_bucket"), "probe_history", ["resolution", "bucket"])
    # In plain words: both databases take a check with its column, and SQLite need not copy the ledger for it.
    op.execute(
        f"ALTER TABLE {LEDGER} ADD COLUMN held VARCHAR(255)"
        f" CONSTRAINT ck_cooldown_actions_held CHECK (held IN ({_listed(HELD)}))"
    )
    op.add_column(LEDGER, sa.Column("held_checked_at", sa.DateTime(timezone=True)))
    op.create_index(op.f("ix_cooldown_actions_held_checked_at_timestamp"), LEDGER, ["held_checked_at", "timestamp"])


def downgrade() -> None:
    op.drop_index(op.f("ix_cooldown_actions_held_checked_at_timestamp"), LEDGER)
    for column in ("held_checked_at", "held"):
        op.drop_column(LEDGER, column)
    op.drop_table("probe_history")
    op.drop_table("probes")


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)
