"""What is done before the first write, so that it does not take longer than later ones."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from claudeops.structs import replace
from support.store_values import claimed, queued
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.dialect]

PAGE = 4096 + 24  # bytes in the log
USUAL = 1000 * PAGE  # then SQLite begins anew


def log_of(sqlite: Database) -> Path:
    return sqlite.file.with_name(f"{sqlite.file.name}-wal")


def tables_of(sqlite: Database) -> list[object]:
    with closing(sqlite3.connect(sqlite.file)) as connection:
        return connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()


async def test_the_log_has_its_usual_length_before_the_first_write(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        before = tables_of(sqlite)
        await store.retention.make_room()
        grown = log_of(sqlite).stat().st_size
        assert grown > USUAL * 0.9
        for _ in range(20):
            await queued(store)
            assert await claimed(store) is not None
        assert log_of(sqlite).stat().st_size == grown
        assert tables_of(sqlite) == before
        assert sqlite.rows("sessions") != []


async def test_a_log_that_grew_longer_is_cut_to_that_length(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        await queued(store)
        with closing(sqlite3.connect(sqlite.file)) as other, other:
            other.execute("CREATE TABLE other (bytes BLOB)")
            other.execute("INSERT INTO other VALUES (zeroblob(12000000))")
        assert log_of(sqlite).stat().st_size > 2 * USUAL

        assert await store.retention.checkpoint()

        assert USUAL * 0.9 < log_of(sqlite).stat().st_size < USUAL * 1.2
        assert len(sqlite.rows("sessions")) == 1


async def test_a_usual_log_is_written_back_without_a_turn_of_the_writer(sqlite: Database) -> None:
    async with opened(sqlite) as store:
        await store.retention.make_room()
        await queued(store)
        before = sqlite.file.read_bytes()
        with closing(sqlite3.connect(sqlite.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await store.retention.checkpoint()
        assert sqlite.file.read_bytes() != before


async def test_room_is_no_reason_to_fail(sqlite: Database) -> None:
    async with opened(replace(sqlite, busy_seconds=0.1)) as store:
        with closing(sqlite3.connect(sqlite.file)) as other:
            other.execute("BEGIN IMMEDIATE")
            await store.retention.make_room()
        await queued(store)
        assert len(sqlite.rows("sessions")) == 1


async def test_every_database_takes_the_call(database: Database) -> None:
    async with opened(database) as store:
        await store.retention.make_room()
        await queued(store)
        assert len(database.rows("sessions")) == 1
