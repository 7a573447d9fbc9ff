"""Migrations: the revision of a database, its way to the newest one, and the backup that is made before.

Revisions are four digits, counted up, so comparing them tells an older database from a newer one. Alembic is imported
only when there is something to migrate. Operators use the same backup.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import Connection, inspect, text
from sqlalchemy.engine import URL

from claudeops.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    ErrorKind,
    MissingInputError,
    NewerDatabaseError,
    StoreError,
)
from claudeops.files import is_there
from claudeops.store.connection.engines import (
    BUSY_SECONDS,
    border,
    is_unsound,
    migrating_engine,
    missing,
    parse_url,
    reading_engine,
    shown,
    sqlite_file,
)
from claudeops.store.tables import HEAD

if TYPE_CHECKING:  # slow to import, and needed after updates only
    from alembic.config import Config

_SET_UP: Final = "start `claudeops run` once, which sets it up"
CLAUDE_OPS_TABLES: Final = frozenset({"goose_db_version", "sessions", "cooldown_actions", "health_checks"})
"""Tables by which a database of Claude Ops is known; ours has other names for two of them."""
COPY_MARK: Final = "copy-"
"""Begins the revision of a database that `claudeops copy-database` has begun and not finished.

It stands where every program looks first, also one of an older version, which takes it for a newer revision.
"""
_PRIVATE: Final = 0o600
_LOCKED_SECONDS: Final = 60.0  # how long a copy waits for a locked database
_TURN_SECONDS: Final = 60.0  # how long to wait while another process migrates the same database


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What `migrate` found and did; the two revisions are equal when there was nothing to do."""

    from_revision: str | None  # None: an empty database
    to_revision: str
    backup_path: Path | None  # SQLite only, and only when there was something to lose


def migrate(url: str, *, migrations_dir: Path, backup_dir: Path, now: datetime | None = None) -> Migrated:
    """Bring the database at ``url`` to the newest revision, in one transaction.

    A missing SQLite file is created; an old one is backed up to ``backup_dir`` first. Raises `NewerDatabaseError` when
    the database is newer than this code, `DatabaseUnavailableError`, `MissingInputError` when the migrations are
    missing, and `StoreError` when the backup or a migration fails; the database is then unchanged.
    """
    parsed = parse_url(url)
    found = current_revision(parsed)
    if found == HEAD:
        return Migrated(from_revision=HEAD, to_revision=HEAD, backup_path=None)
    if found is not None:
        refuse_newer(parsed, found, backup_dir=backup_dir)
    if not (migrations_dir / "env.py").is_file():
        raise MissingInputError(
            f"{migrations_dir} holds no migrations: install claudeops again.",
            operation="db.migrate",
            target=str(migrations_dir),
        )
    file = sqlite_file(parsed)
    backup = None
    if file is not None and found is not None:
        backup = back_up(file, backup_dir, revision=found, now=now or datetime.now(UTC))
    elif file is not None:
        _make_private(file)
    run(parsed, migrations_dir, _to_head)
    return Migrated(from_revision=found, to_revision=HEAD, backup_path=backup)


def run(url: URL, migrations_dir: Path, steps: Callable[[Config], None]) -> None:
    """Run alembic commands against a database, all of them or none.

    On PostgreSQL the transaction begins behind the writers' lock, so the second of two processes finds the work done.
    """
    from alembic.config import Config  # noqa: PLC0415 - a fifth of the start-up time, needed after updates only
    from alembic.util import CommandError  # noqa: PLC0415 - same

    config = Config()
    config.set_main_option("script_location", str(migrations_dir).replace("%", "%%"))
    engine = migrating_engine(url, busy_seconds=_TURN_SECONDS)
    try:
        with border(url), engine.begin() as connection:
            config.attributes["connection"] = connection
            steps(config)
            _check_references(connection, url)
    except CommandError as error:
        raise StoreError(
            f"the database {shown(url)} cannot be migrated: {str(error).rstrip('.')}.",
            operation="db.migrate",
            target=shown(url),
        ) from error
    finally:
        engine.dispose()


def current_revision(url: URL, *, busy_seconds: float = BUSY_SECONDS) -> str | None:
    """Return the revision of a database; ``None`` for an empty or a missing one.

    Changes nothing. Raises `ConfigurationError` when the database is a copy that is not finished, and when it holds
    tables that no migration of ours has made: any in a SQLite file, those with our names elsewhere.
    """
    file = sqlite_file(url)
    if file is not None and not is_there(file):
        return None  # opening it would create it
    engine = reading_engine(url, size=1, busy_seconds=busy_seconds)
    try:
        with border(url), engine.connect() as connection:
            return _revision(connection, url)
    finally:
        engine.dispose()


def refuse_newer(url: URL, revision: str, *, backup_dir: Path | None = None) -> None:
    """Raise `NewerDatabaseError` when ``revision`` is newer than this code."""
    if revision <= HEAD:
        return
    backup = newest_backup(url, backup_dir)
    if backup is not None:
        remedy = f"run the newer claudeops again, or put the backup {backup} in its place"
    elif sqlite_file(url) is not None:
        remedy = "run the newer claudeops again; there is no backup beside it"
    else:
        remedy = "run the newer claudeops again, or restore the backup that was made before its upgrade"
    raise NewerDatabaseError(
        f"the database {shown(url)} is at revision {revision}, and this claudeops knows only up to {HEAD}: {remedy}."
    )


def require_head(url: URL, *, busy_seconds: float = BUSY_SECONDS) -> None:
    """Raise `ConfigurationError` unless the database is at exactly the revision that this code expects.

    Raises `MissingInputError` when the database is missing or empty.
    """
    revision = current_revision(url, busy_seconds=busy_seconds)
    if revision == HEAD:
        return
    if revision is None:
        raise missing(url)
    refuse_newer(url, revision)
    raise ConfigurationError(
        f"the database {shown(url)} is at revision {revision}, and this claudeops needs {HEAD}: {_SET_UP}."
    )


def back_up(file: Path, backup_dir: Path, *, revision: str, now: datetime) -> Path:
    """Copy a database that may be in use; return the copy, which is on the disk when this returns.

    The name is ``<file>.backup-<revision>-<UTC time>``. It appears only once the copy is complete, and never replaces a
    file. Raises `StoreError`.
    """
    target = backup_dir / f"{file.name}.backup-{revision}-{now:%Y%m%dT%H%M%S.%fZ}"
    try:
        backup_dir.mkdir(parents=True, exist_ok=True)
        _copy_whole(file, target)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"the database {file} could not be backed up to {target}: {error}.",
            operation="db.backup",
            target=str(target),
        ) from error
    return target


def back_up_to(url: URL, target: Path) -> int:
    """Copy a SQLite database that may be in use to ``target``; return the copy's size in bytes.

    The copy is the state of one moment; when this returns it is on the disk and SQLite has checked it. ``target``
    appears only then. Raises `ConfigurationError` where there is no such database or ``target`` exists, else
    `StoreError`.
    """
    file = sqlite_file(url)
    if file is None:
        raise ConfigurationError(
            f"the database {shown(url)} is PostgreSQL's, which is backed up by its own program: use pg_dump.",
            operation="db.backup",
            target=str(target),
        )
    if not is_there(file):
        raise missing(url)
    try:
        _copy_whole(file, target, check=_refuse_unsound)
        return target.stat().st_size
    except FileExistsError as error:
        raise ConfigurationError(
            f"{error.filename} exists, and a backup takes no file's place: name another."
        ) from None
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"the database {file} could not be backed up to {target}: {error}.",
            kind=ErrorKind.FILESYSTEM if is_unsound(error, url) else None,
            operation="db.backup",
            target=str(target),
        ) from error


def newest_backup(url: URL, backup_dir: Path | None = None) -> Path | None:
    """Return the newest complete backup of a database, from ``backup_dir`` or beside the file."""
    file = sqlite_file(url)
    if file is None:
        return None
    places = {file.parent} | ({backup_dir} if backup_dir is not None else set())
    found = [path for place in places for path in place.glob(f"{_literal(file.name)}.backup-*") if _complete(path)]
    return max(found, key=lambda path: path.name.rpartition("-")[2], default=None)


def _to_head(config: Config) -> None:
    from alembic import command  # noqa: PLC0415 - see run

    command.upgrade(config, "head")


def _check_references(connection: Connection, url: URL) -> None:
    """Check the foreign keys, which were not enforced while tables were rebuilt."""
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise StoreError(
            f"migrating {shown(url)} would leave rows of {broken[0]} that refer to nothing.",
            operation="db.migrate",
            target=shown(url),
        )


def _make_private(file: Path) -> None:
    """Create the database file so that only its owner can read it; leave an existing file as it is."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise DatabaseUnavailableError(f"the database {file} cannot be opened: {error.strerror}.") from error


def _revision(connection: Connection, url: URL) -> str | None:
    names = set(inspect(connection).get_table_names())
    if "alembic_version" in names:
        found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
        if found is not None and found.startswith(COPY_MARK):
            raise ConfigurationError(
                f"the database {shown(url)} is a copy that is not finished: call `claudeops copy-database` again, with "
                "the settings with which it was begun, until it says that every row was compared."
            )
        return found
    if names >= CLAUDE_OPS_TABLES:
        raise _claude_ops(url)
    from claudeops.store.tables.all_tables import metadata  # noqa: PLC0415 - a database that is set up is not asked

    # Several programs may share a server's database; a file belongs to one.
    if taken := sorted(names if connection.dialect.name == "sqlite" else names & set(metadata.tables)):
        raise ConfigurationError(
            f"the database {shown(url)} holds somebody else's tables ({', '.join(taken[:5])}): "
            "give claudeops a database of its own in CLAUDEOPS_DATABASE_URL."
        )
    return None


def _claude_ops(url: URL) -> ConfigurationError:
    """Return the refusal to write into the database of Claude Ops, whose file has the same name as ours by default."""
    file = sqlite_file(url)
    if file is None:
        steps = "give claudeops a database of its own in CLAUDEOPS_DATABASE_URL, and take this one over from a copy"
    else:
        aside = file.with_name("claude-ops.db")
        steps = (
            f"stop Claude Ops, run `mv {shlex.quote(str(file))} {shlex.quote(str(aside))}` (and the same for the files "
            f"with -wal and -shm at their end, if there are any), then `claudeops migrate-from "
            f"{shlex.quote(str(aside))}`, and start claudeops again"
        )
    return ConfigurationError(
        f"the database {shown(url)} is that of Claude Ops, and claudeops writes nothing into it: {steps}.",
        operation="db.migrate",
        target=str(file or shown(url)),
        hint="`claudeops migrate-from` takes over what it has on record, and leaves the file as it is.",
    )


def _accept(_copy: Path) -> None:
    return


def _copy_whole(file: Path, target: Path, check: Callable[[Path], None] = _accept) -> None:
    partial = target.with_name(f"{target.name}.partial")
    with ExitStack() as unfinished:
        for path in (target, partial):  # reserves both names
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))
            unfinished.callback(path.unlink, missing_ok=True)
        _copy(file, partial)
        check(partial)
        partial.replace(target)
        unfinished.pop_all()
    _sync(target.parent)


def _refuse_unsound(copy: Path) -> None:
    """Raise `sqlite3.DatabaseError` for a copy that SQLite finds damaged: the source is damaged too."""
    with closing(sqlite3.connect(f"{copy.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {verdict}")


def _copy(source: Path, target: Path) -> None:
    give_up = time.monotonic() + _LOCKED_SECONDS

    def progress(status: int, _remaining: int, _total: int) -> None:
        # SQLite retries a locked database for ever, and calls this function between the attempts.
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and time.monotonic() > give_up:
            raise sqlite3.OperationalError("it is locked by another process")

    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new, progress=progress)
    _sync(target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _complete(path: Path) -> bool:
    """Tell a complete backup from a name that a process reserved and did not live to fill."""
    return not path.name.endswith(".partial") and path.stat().st_size > 0


def _literal(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
