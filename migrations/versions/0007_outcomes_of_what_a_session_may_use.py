"""Outcomes of their own for the bounds of a session: processes, disk space, the size of a file."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

NAME = "ck_sessions_outcome"
BEFORE = (
    "success error max_turns budget_exceeded max_tokens timeout startup_timeout stalled cancelled blocked"
    " no_output no_result out_of_memory spawn_failed ungated_call lost"
)
NEW = ("out_of_processes", "out_of_disk", "file_too_large")
AFTER = BEFORE.replace("out_of_memory", " ".join(("out_of_memory", *NEW)))


def upgrade() -> None:
    _allow(AFTER, instead_of=BEFORE)


def downgrade() -> None:
    sessions = sa.table("sessions", sa.column("outcome"))
    op.execute(sessions.update().where(sessions.c.outcome.in_(NEW)).values(outcome="error"))
    _allow(BEFORE, instead_of=AFTER)


def _allow(values: str, *, instead_of: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        _reword(f"outcome IN ({_listed(instead_of)})", f"outcome IN ({_listed(values)})")
        return
    op.drop_constraint(op.f(NAME), "sessions", type_="check")
    op.create_check_constraint(op.f(NAME), "sessions", f"outcome IN ({_listed(values)})")


def _listed(values: str) -> str:
    return ", ".join(f"'{value}'" for value in values.split())


def _reword(old: str, new: str) -> None:
    """Change the words of a check. SQLite has no statement for it, and the words are all that there is to change.

    The other way, a new table with every row copied, would take minutes beside a large database and forget the checks
    that it is not told of. This one is SQLite's own: https://www.sqlite.org/lang_altertable.html, at the end.
    """
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
        raise RuntimeError("the table sessions has another check of its outcomes than the one that is to be changed")
