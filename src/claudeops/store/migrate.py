"""Bringing a database to the newest revision, with a backup before and alembic only when there is work."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from claudeops.errors import DatabaseUnavailableError, MissingInputError, StoreError
from claudeops.store.backup import back_up
from claudeops.store.connections import border, migrating_engine, parse_url, shown, sqlite_file
from claudeops.store.revision import current_revision, refuse_newer
from claudeops.store.tables import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from alembic.config import Config
    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

_TURN_SECONDS: Final = 60.0  # how long to wait for another process that migrates the same database


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrated:
    """What `migrate` found and did; the two revisions are equal when there was nothing to do."""

    from_revision: str | None  # None: an empty database
    to_revision: str
    backup_path: Path | None  # SQLite only, and only when there was something to lose


def migrate(url: str, *, migrations_dir: Path, backup_dir: Path, now: datetime | None = None) -> Migrated:
    """Bring the database at ``url`` to the newest revision, in one transaction.

    A SQLite file is made if it is missing and backed up to ``backup_dir`` if it is old.
    Raises `NewerDatabaseError` when the database is ahead of this code, `DatabaseUnavailableError`,
    `MissingInputError` when the migrations are not there, and `StoreError` when the backup or a migration
    fails; the database is then as it was.
    """
    parsed = parse_url(url)
    found = current_revision(parsed)
    if found == HEAD:
        return Migrated(from_revision=HEAD, to_revision=HEAD, backup_path=None)
    if found is not None:
        refuse_newer(parsed, found, backup_dir=backup_dir)
    if not (migrations_dir / "env.py").is_file():
        raise MissingInputError(f"{migrations_dir} holds no migrations: install claudeops again.")
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

    On PostgreSQL the transaction begins behind the writers' lock; whoever comes second finds the work done.
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
        raise StoreError(f"the database {shown(url)} cannot be migrated: {str(error).rstrip('.')}.") from error
    finally:
        engine.dispose()


def _to_head(config: Config) -> None:
    from alembic import command  # noqa: PLC0415 - see run

    command.upgrade(config, "head")


def _check_references(connection: Connection, url: URL) -> None:
    """Make up for the foreign keys that were not enforced while tables were rebuilt."""
    if connection.dialect.name != "sqlite":
        return
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise StoreError(f"migrating {shown(url)} would leave rows of {broken[0]} that refer to nothing.")


def _make_private(file: Path) -> None:
    """Create the database file so that only its owner can read it; a file that exists stays as it is."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise DatabaseUnavailableError(f"the database {file} cannot be opened: {error.strerror}.") from error
