"""``claudeops copy-database``, the way from SQLite to PostgreSQL, and ``claudeops migrate``, that to this release."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import msgspec

from claudeops.cli.answer import database_url
from claudeops.cli.audit import approval_key
from claudeops.cli.reply import CommandResult, Exit, print_failure, print_result
from claudeops.cli.text.screen import progress, progress_line
from claudeops.errors import ClaudeopsError, ConfigurationError
from claudeops.settings import where as places
from claudeops.settings.files import packaged
from claudeops.store.connection.engines import parse_url, shown
from claudeops.store.copying.copy import DatabaseCopy, copy_database
from claudeops.store.locks import hold_for_migration
from claudeops.store.migrate import current_revision, migrate, refuse_newer
from claudeops.store.tables import HEAD
from claudeops.structs import replace
from claudeops.text.escapes import visible

_COPY: Final = "copy-database"
_MIGRATE: Final = "migrate"


# --- copy-database --------------------------------------------------------------------------------------


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
        return print_failure(_COPY, error, as_json=as_json)
    return print_result(_COPY, _copy_result(done), as_json=as_json)


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


def _copy_result(done: DatabaseCopy) -> CommandResult:
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


# --- migrate --------------------------------------------------------------------------------------------


class TablesMigrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration finds and does, or would do; versions of Procrastinate's tables only where daemons share."""

    database: str  # as it may be shown
    before: str | None  # the revision; None: it is empty, or missing
    jobs_before: str | None = None  # the version of Procrastinate's tables
    jobs_now: str | None = None
    backup_path: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether something is or was to do."""
        return self.before != HEAD or self.jobs_before != self.jobs_now


def migrate_tables(*, check: bool, as_json: bool) -> int:
    """Bring the operator's database to this release, or with ``check`` say whether that is to do."""
    try:
        with progress("looking at the database" if check else "migrating the database"):
            done = _migrated(check=check)
    except ClaudeopsError as error:
        return print_failure(_MIGRATE, error, as_json=as_json)
    return print_result(_MIGRATE, _migrate_result(done, check=check), as_json=as_json)


def _migrated(*, check: bool) -> TablesMigrated:
    """Migrate what the start of a daemon would, by its order; beside daemons only where they share the database.

    All is looked at before anything is changed.
    """
    url, state_dir = database_url(), places.state_dir(os.environ, cwd=Path.cwd())
    is_shared = places.shares_database(os.environ, cwd=Path.cwd(), url=url)
    with nullcontext() if check else hold_for_migration(url, shared=is_shared):
        found = _found(url, state_dir, is_shared=is_shared)
        if check or not found.is_due:
            return found
        done = migrate(url, migrations_dir=packaged("migrations"), backup_dir=state_dir)
        if is_shared:
            from claudeops.dispatch.procrastinate import job_tables  # noqa: PLC0415 - heavy, and for a fleet alone
            from claudeops.store.connection.job_tables import migrate_jobs  # noqa: PLC0415 - same

            migrate_jobs(parse_url(url), job_tables())
        return replace(found, backup_path=None if done.backup_path is None else str(done.backup_path))


def _found(url: str, state_dir: Path, *, is_shared: bool) -> TablesMigrated:
    parsed = parse_url(url)
    before = current_revision(parsed)
    if before is not None:
        refuse_newer(parsed, before, backup_dir=state_dir)
    found = TablesMigrated(database=shown(parsed), before=before)
    if not is_shared:
        return found
    from claudeops.dispatch.procrastinate import job_tables  # noqa: PLC0415 - heavy, and for a fleet alone
    from claudeops.store.connection.job_tables import jobs_version  # noqa: PLC0415 - same

    tables = job_tables()
    return replace(found, jobs_before=jobs_version(parsed, tables), jobs_now=tables.version)


def _migrate_result(done: TablesMigrated, *, check: bool) -> CommandResult:
    to_do = check and done.is_due
    jobs = None if done.jobs_now is None else {"from_version": done.jobs_before, "to_version": done.jobs_now}
    return CommandResult(
        text="\n".join(_lines(done, check=check)),
        on_stdout=True,
        body={
            "database": done.database,
            "handled": done.is_due and not check,
            "due": to_do,
            "from_revision": done.before,
            "to_revision": HEAD,
            "jobs": jobs,
            "backup_path": done.backup_path,
        },
        exit_code=Exit.UNRESOLVED if to_do else Exit.OK,
    )


def _lines(done: TablesMigrated, *, check: bool) -> Iterator[str]:
    if not done.is_due:
        yield f"{done.database} is at revision {HEAD}, that of this claudeops: nothing to do"
    doing = "is to be migrated" if check else "migrated"
    if done.before != HEAD:
        yield f"{done.database} {doing} from {_revision(done.before)} to revision {HEAD}"
    if done.jobs_before != done.jobs_now:
        before = "none" if done.jobs_before is None else f"version {done.jobs_before}"
        yield f"{done.database} {doing}: tables of Procrastinate, from {before} to version {done.jobs_now}"
    if done.backup_path is not None:
        yield f"backup of what it was before: {done.backup_path}"


def _revision(revision: str | None) -> str:
    return "no tables" if revision is None else f"revision {revision}"
