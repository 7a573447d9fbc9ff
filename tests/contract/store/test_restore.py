"""A backup of either database comes back whole, as docs/how-to/back-up-and-restore.md has it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread
import pytest
import sqlalchemy as sa

from claudeops.errors import ConfigurationError
from claudeops.store.connection.engines import parse_url
from claudeops.store.migrate import back_up_to
from claudeops.store.tables.all_tables import metadata
from support.lived_in import something_of_everything
from support.postgres import Server
from support.store_values import NOW, queued
from support.stores import POSTGRES, Database, opened
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)

LOST: Final = 2
"""Sessions that were queued after the backup."""


async def lived_in(database: Database) -> None:
    async with opened(database) as store:
        await something_of_everything(store)


async def lives_on(database: Database) -> None:
    async with opened(database) as store:
        for _ in range(LOST):
            await queued(store)


def content(database: Database) -> Mapping[str, Sequence[str]]:
    with database.connect() as connection:
        return {name: sorted(map(str, connection.execute(sa.select(table)))) for name, table in metadata.tables.items()}


async def looks_whole(restored: Database, before: Mapping[str, Sequence[str]]) -> None:
    """Check that nothing is missing, that the audit trail holds, and that new ids are those that have no log."""
    assert content(restored) == before
    sessions = len(before["sessions"])
    async with opened(restored) as store:
        found = await store.audit.verify()
        assert (found.verified, found.sessions, found.calls > 0) == (True, sessions, True)
        await store.recovery.skip_ids(sessions + LOST, now=NOW)  # as the start does, by the logs
        assert (await queued(store)).id == sessions + LOST + 1


async def test_backup_of_sqlite_in_the_place_of_the_database_is_whole(sqlite: Database, tmp_path: Path) -> None:
    await lived_in(sqlite)
    before = content(sqlite)
    backup = tmp_path / "backup.db"
    async with opened(sqlite):  # while everything goes on
        await anyio.to_thread.run_sync(back_up_to, parse_url(sqlite.url), backup)
    await lives_on(sqlite)

    for name in ("claudeops.db", "claudeops.db-wal", "claudeops.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    backup.rename(sqlite.file)

    await looks_whole(sqlite, before)


@pytest.mark.dialect
@POSTGRES[0]
@POSTGRES[1]
async def test_dump_of_postgresql_in_an_empty_database_is_whole(
    postgres: Server, postgresql: Database, tmp_path: Path
) -> None:
    await lived_in(postgresql)
    before = content(postgresql)
    dump, restored = tmp_path / "claudeops.dump", Database(postgres.url(postgres.create()))
    async with opened(postgresql):  # while everything goes on
        run(postgres, "pg_dump", "--format", "custom", "--file", str(dump), postgresql.url)
    await lives_on(postgresql)

    restoring = ("--exit-on-error", "--single-transaction", "--no-owner", "--dbname", restored.url)
    run(postgres, "pg_restore", *restoring, str(dump))

    await looks_whole(restored, before)


@POSTGRES[0]
@POSTGRES[1]
def test_backup_of_postgresql_names_the_program_for_it(postgresql: Database, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is PostgreSQL's, which is backed up by its own program: use pg_dump"):
        back_up_to(parse_url(postgresql.url), tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def run(server: Server, program: str, *arguments: str) -> None:
    done = subprocess.run(
        [server.binaries / program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
