"""Which migration a database is at, told without alembic.

Revisions are four digits, counted up, so that an older database is told from a newer one by comparing them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import inspect, text

from claudeops.errors import ConfigurationError, NewerDatabaseError
from claudeops.store.backup import newest_backup
from claudeops.store.connections import BUSY_SECONDS, border, missing, reading_engine, shown, sqlite_file
from claudeops.store.tables import HEAD, metadata

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

_SET_UP = "start `claudeops run` once, which sets it up"


def current_revision(url: URL, *, busy_seconds: float = BUSY_SECONDS) -> str | None:
    """Return the revision of a database; ``None`` for an empty or a missing one.

    Raises `ConfigurationError` when it holds tables that no migration of ours has made: any in a SQLite file, those of
    our names elsewhere. Nothing of it is changed.
    """
    file = sqlite_file(url)
    if file is not None and not file.exists():
        return None  # opening it would create it
    engine = reading_engine(url, size=1, busy_seconds=busy_seconds)
    try:
        with border(url), engine.connect() as connection:
            return _revision(connection, url)
    finally:
        engine.dispose()


def refuse_newer(url: URL, revision: str, *, backup_dir: Path | None = None) -> None:
    """Raise `NewerDatabaseError` when ``revision`` is beyond what this code knows."""
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
    """Raise `ConfigurationError` unless the database has exactly the tables that this code expects.

    `MissingInputError` where there is none.
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


def _revision(connection: Connection, url: URL) -> str | None:
    names = set(inspect(connection).get_table_names())
    if "alembic_version" in names:
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    # A server's database may have room for several; a file has one owner.
    if taken := sorted(names if connection.dialect.name == "sqlite" else names & set(metadata.tables)):
        raise ConfigurationError(
            f"the database {shown(url)} holds somebody else's tables ({', '.join(taken[:5])}): "
            "give claudeops a database of its own in CLAUDEOPS_DATABASE_URL."
        )
    return None
