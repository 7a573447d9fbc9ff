"""The tables of the library that carries announcements: made, brought up to date, and refused where they are not ours.

They stand beside our own in a PostgreSQL database and are no part of its revision: which version they have depends on
the library that is installed. The comment of the table of jobs says that they are ours and of which version, so that a
dump takes both along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from claudeops.errors import ConfigurationError, NewerDatabaseError
from claudeops.store.connection.engines import border, migrating_engine, reading_engine, shown
from claudeops.store.tables import JOBS_MARK

_TURN_SECONDS: Final = 60.0  # how long to wait while another process does the same

_FOUND: Final = text(
    "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there,"
    " obj_description(to_regclass('procrastinate_jobs'), 'pg_class') AS comment"
)
_UNANNOUNCED: Final = text(
    "SELECT EXISTS (SELECT FROM sessions WHERE status = 'queued' AND (not_before IS NULL OR not_before <= now())"
    " AND site IS NOT DISTINCT FROM :site)"
    " AND NOT EXISTS (SELECT FROM procrastinate_jobs WHERE queue_name = :queue AND status IN ('todo', 'doing')"
    " AND (scheduled_at IS NULL OR scheduled_at <= now()))"
)


class JobTables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables as the library that is installed wants them."""

    version: str
    whole: str  # SQL that makes them
    scripts: Mapping[str, str]  # SQL that leads from one version to the next, by the name of the version it leads to


def migrate_jobs(url: URL, tables: JobTables) -> tuple[str | None, str]:
    """Bring the tables to the library's version, in one transaction; return the versions before and after.

    Raises `ConfigurationError` where they are another program's, `NewerDatabaseError` where they are newer than the
    library, `DatabaseUnavailableError` and `StoreError`.
    """
    if (found := jobs_version(url, tables)) == tables.version:
        return found, found
    engine = migrating_engine(url, busy_seconds=_TURN_SECONDS)
    try:
        with border(url), engine.begin() as connection:
            found = _version(connection, url, tables)  # another process may have been quicker
            for script in _missing(found, tables):
                # Without parameters: else the driver would take one statement, and look for places in it.
                connection.execution_options(no_parameters=True).exec_driver_sql(script)
    finally:
        engine.dispose()
    return found, tables.version


def jobs_version(url: URL, tables: JobTables) -> str | None:
    """Return the version of the tables, which are ours and not newer than the library; ``None``: there are none.

    Changes nothing. Raises as `migrate_jobs` does.
    """
    engine = reading_engine(url, size=1)
    try:
        with border(url), engine.connect() as connection:
            return _version(connection, url, tables)
    finally:
        engine.dispose()


def is_unannounced(connection: Connection, queue: str, site: str | None) -> bool:
    """Return whether a session of a site, or of none, is due that no job announces.

    The job was lost, or used up while nothing could start.
    """
    return bool(connection.scalar(_UNANNOUNCED, {"queue": queue, "site": site}))


def _missing(found: str | None, tables: JobTables) -> list[str]:
    if found == tables.version:
        return []
    scripts = [tables.whole]
    if found is not None:
        scripts = [script for version, script in sorted(tables.scripts.items()) if version > found]
    return [*scripts, f"COMMENT ON TABLE procrastinate_jobs IS '{JOBS_MARK}{tables.version}'"]


def _version(connection: Connection, url: URL, tables: JobTables) -> str | None:
    there, comment = connection.execute(_FOUND).one()
    if not there:
        return None
    if not (comment or "").startswith(JOBS_MARK):
        raise ConfigurationError(
            f"the database {shown(url)} holds the tables of Procrastinate for another program: give claudeops a "
            "database of its own in CLAUDEOPS_DATABASE_URL.",
            target=shown(url),
        )
    found: str = comment.removeprefix(JOBS_MARK)
    if found > tables.version:
        raise NewerDatabaseError(
            f"the database {shown(url)} has the tables of Procrastinate in version {found}, and the library that is "
            f"installed here knows only up to {tables.version}: run the newer claudeops again.",
            target=shown(url),
            hint="Another node of the fleet has brought them there: all nodes run the same version of claudeops.",
        )
    return found
