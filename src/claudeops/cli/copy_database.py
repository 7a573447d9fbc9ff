"""``claudeops copy-database``: the way from SQLite to PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from claudeops.cli.answer import database_url
from claudeops.cli.audit import approval_key
from claudeops.cli.reply import CommandResult, Exit, print_failure, print_result
from claudeops.cli.text.screen import progress, progress_line
from claudeops.errors import ClaudeopsError, ConfigurationError
from claudeops.settings import where as places
from claudeops.settings.files import packaged
from claudeops.store.copying.copy import DatabaseCopy, copy_database
from claudeops.text.escapes import visible

_NAME: Final = "copy-database"


def copy(*, restart: bool, as_json: bool) -> int:
    """Copy the operator's database, or go on with it, and compare all of it; return the exit status."""
    try:
        target = places.target_database_url(os.environ, cwd=Path.cwd())
        if target is None:
            raise ConfigurationError(
                f"{places.TARGET_DATABASE} is not set: set it to the address of an empty PostgreSQL database, such as "
                f"postgresql://user@host/name, or {places.TARGET_DATABASE}_FILE to a file that holds it.",
                target=places.TARGET_DATABASE,
            )
        with progress("copying the database"):
            done = _copied(target, restart=restart)
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json)
    return print_result(_NAME, _result(done), as_json=as_json)


def _copied(target: str, *, restart: bool) -> DatabaseCopy:
    show_line = progress_line()

    def show(doing: str, table: str, rows: int, of: int | None) -> None:
        show_line(f"{doing}: {table}, {rows:,} rows" if of is None else f"{doing}: {table}, {rows:,} of {of:,} rows")

    return copy_database(
        database_url(),
        target,
        migrations_dir=packaged("migrations"),
        progress=show,
        restart=restart,
        key=approval_key()[0],
    )


def _result(done: DatabaseCopy) -> CommandResult:
    lines = [visible(each.message) for each in done.differences]
    if done.differ > len(lines):
        lines.append(f"and {done.differ - len(lines)} more")
    return CommandResult(
        text="\n".join([*lines, *(_failed(done) if done.differ else _succeeded(done))]),
        body={
            "source": done.source,
            "target": done.target,
            "verified": not done.differ,
            "rows": sum(table.rows for table in done.tables),
            "tables": [{"name": table.name, "rows": table.rows, "before": table.before} for table in done.tables],
            "differ": done.differ,
            "differences": [
                {"table": each.table, "row": visible(each.row), "message": visible(each.message)}
                for each in done.differences
            ],
            "audit": {
                "sessions": done.audit.sessions,
                "calls": done.audit.calls,
                "tombstones": done.audit.tombstones,
                "unproven": done.audit.unproven,
                "faults": [fault.message for fault in done.audit.faults],
            },
        },
        exit_code=Exit.UNRESOLVED if done.differ else Exit.OK,
    )


def _failed(done: DatabaseCopy) -> list[str]:
    differ = f"{done.differ} differences between {done.source} and {done.target}"
    return [f"{differ}: no daemon starts on the copy, and `claudeops copy-database --restart` begins it anew"]


def _succeeded(done: DatabaseCopy) -> list[str]:
    rows, before = (sum(getattr(table, name) for table in done.tables) for name in ("rows", "before"))
    earlier = f" ({before:,} of them by an earlier call)" if before else ""
    audit = f"{done.audit.sessions:,} sessions, {done.audit.calls:,} tool calls, {done.audit.tombstones:,} tombstones"
    trail = f"the audit trail is as it was written: {audit}"
    if faults := len(done.audit.faults):
        trail = (
            f"{faults} faults in the audit trail, those of the source (`claudeops audit verify` names them): {audit}"
        )
    if done.audit.unproven:
        trail += "; not checked, for want of the approval key: whether signatures of passkeys are those that were given"
    copied = f"copied and compared {rows:,} rows{earlier} of {len(done.tables)} tables"
    following = (
        f"set CLAUDEOPS_DATABASE_URL to the address in {places.TARGET_DATABASE}, unset that, and start claudeops"
    )
    return [f"{copied}, from {done.source} to {done.target}", trail, f"next: {following}"]
