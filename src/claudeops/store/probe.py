"""Whether a database could be worked with, without leaving a trace in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import false, text, update

from claudeops.errors import StoreError
from claudeops.store.connections import border, parse_url, shown, sqlite_file, writing_engine
from claudeops.store.revision import current_revision, refuse_newer
from claudeops.store.tables import HEAD, instances

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

PATIENCE_SECONDS: Final = 3.0
"""How long somebody else's lock is waited for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """A database that can be read and written."""

    revision: str | None  # None: there is none yet, or an empty one
    head: str  # what this version of claudeops works with


def probe(url: str, backup_dir: Path, *, busy_seconds: float = PATIENCE_SECONDS) -> Probed:
    """Read the revision and begin to write; a SQLite file that is not there is not made.

    Raises `DatabaseUnavailableError` (not reachable, locked), `NewerDatabaseError`, `ConfigurationError` (the address
    is wrong, the tables are somebody else's) or `StoreError` (not writable, no database at all).
    """
    parsed = parse_url(url)
    revision = current_revision(parsed, busy_seconds=busy_seconds)
    if revision is not None:
        refuse_newer(parsed, revision, backup_dir=backup_dir)
    file = sqlite_file(parsed)
    if file is not None and revision is None:
        _require_directory(file)
        return Probed(revision=None, head=HEAD)
    engine = writing_engine(parsed, busy_seconds=busy_seconds)
    try:
        with border(parsed), engine.connect() as connection:
            if revision is not None:
                # Asks for the right to write and for the lock, and changes no row.
                connection.execute(update(instances).values(pid=instances.c.pid).where(false()))
            elif file is None:
                _require_rights(connection, parsed)
            connection.rollback()
    finally:
        engine.dispose()
    return Probed(revision=revision, head=HEAD)


def _require_directory(file: Path) -> None:
    """Raise `StoreError` unless the empty file can be written, and its directory, or one above it, takes new files."""
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        raise StoreError(f"the database {file} is not user {os.geteuid()}'s to write: change its owner.")
    there = next(path for path in file.parents if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(
            f"the database {file} cannot be made, for user {os.geteuid()} may not write in {there}: "
            "change its owner, or set CLAUDEOPS_DATABASE_URL."
        )


def _require_rights(connection: Connection, url: URL) -> None:
    may = connection.execute(text("SELECT has_schema_privilege(current_schema(), 'CREATE')")).scalar_one()
    if not may:
        raise StoreError(f"the database {shown(url)} lets its user make no tables: GRANT CREATE on its schema.")
