"""Schedules with budgets and overlap rules, fires that saved a session, follow-up looks, maintenance as a decision."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

NAME = "ck_sessions_decision_reason"
BEFORE = "healthy escalated max_tier dry_run cooldown budget no_report no_evidence session_failed paused"
NEW = "maintenance"
AFTER = f"{BEFORE} {NEW}"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("budget_usd", sa.Numeric(20, 10)))
    op.add_column("schedule_fires", sa.Column("saved_usd", sa.Numeric(20, 10)))
    op.add_column("schedule_fires", sa.Column("after_chain", sa.Integer()))
    op.create_index(op.f("ix_schedule_fires_fired_at"), "schedule_fires", ["fired_at"])
    op.add_column("cooldown_actions", sa.Column("follow_up_at", sa.DateTime(timezone=True)))
    op.add_column("cooldown_actions", sa.Column("follow_up_id", sa.Integer()))
    op.create_index(op.f("ix_cooldown_actions_held_follow_up_at"), "cooldown_actions", ["held", "follow_up_at"])
    op.create_index(op.f("ix_cooldown_actions_follow_up_id"), "cooldown_actions", ["follow_up_id"])
    _allow(AFTER, instead_of=BEFORE)


def downgrade() -> None:
    sessions = sa.table("sessions", sa.column("decision_reason"))
    op.execute(sessions.update().where(sessions.c.decision_reason == NEW).values(decision_reason="cooldown"))
    _allow(BEFORE, instead_of=AFTER)
    op.drop_index(op.f("ix_cooldown_actions_follow_up_id"), "cooldown_actions")
    op.drop_index(op.f("ix_cooldown_actions_held_follow_up_at"), "cooldown_actions")
    op.drop_column("cooldown_actions", "follow_up_id")
    op.drop_column("cooldown_actions", "follow_up_at")
    op.drop_index(op.f("ix_schedule_fires_fired_at"), "schedule_fires")
    op.drop_column("schedule_fires", "after_chain")
    op.drop_column("schedule_fires", "saved_usd")
    op.drop_column("sessions", "budget_usd")


def _allow(values: str, *, instead_of: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        _reword(f"decision_reason IN ({_listed(instead_of)})", f"decision_reason IN ({_listed(values)})")
        return
    op.drop_constraint(op.f(NAME), "sessions", type_="check")
    op.create_check_constraint(op.f(NAME), "sessions", f"decision_reason IN ({_listed(values)})")


def _listed(values: str) -> str:
    return ", ".join(f"'{value}'" for value in values.split())


def _reword(old: str, new: str) -> None:
    """Change the words of a check, as migration 0007 does and explains."""
    bind = op.get_bind()
    version = bind.exec_driver_sql("PRAGMA schema_version").scalar_one()
    bind.exec_driver_sql("PRAGMA writable_schema = ON")
    changed = bind.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = 'sessions'"
        " AND instr(sql, ?) > 0",
        (old, new, old),
    )
    bind.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")  # has every connection read the words again
    bind.exec_driver_sql("PRAGMA writable_schema = OFF")
    if changed.rowcount != 1:
        raise RuntimeError("the table sessions has another check of its decisions than the one that is to be changed")
