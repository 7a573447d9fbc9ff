"""SQLite's log is written back beside the commits, stays short, and costs nothing while nothing is written."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest

from claudeops.store.connection.engines import MOST_PAGES
from claudeops.store.connection.writer import AGAIN_PAGES, FIRST_PAGES, Checkpoints
from claudeops.store.store import Store
from support.store_values import queued, wanted
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

PAGE: Final = 4096 + 24  # bytes in the log
STEP: Final = 50  # pages that `write` adds at least
MOST_OF_A_STEP: Final = 75


class Counted(Checkpoints):
    """Counts the checkpoints that were begun."""

    def __init__(self, file: Path | None) -> None:
        super().__init__(file)
        self.begun = 0

    def _write_back(self, file: Path) -> bool:
        self.begun += 1
        return super()._write_back(file)

    def end(self) -> None:
        self.wait(PATIENCE_SECONDS)
        assert not [thread for thread in threading.enumerate() if thread.name == "store-checkpoint"]


@asynccontextmanager
async def watched(sqlite: Database) -> AsyncIterator[tuple[Store, Counted]]:
    async with opened(sqlite) as store:
        checkpoints = store.database._checkpoints = Counted(sqlite.file)
        yield store, checkpoints


@asynccontextmanager
async def without_checkpoints(sqlite: Database) -> AsyncIterator[Store]:
    async with opened(sqlite) as store:
        store.database._checkpoints = Checkpoints(None)
        yield store


async def write(store: Store) -> None:
    """Commit a transaction of about `STEP` pages."""
    await queued(store, wanted(prompt_text="x" * (STEP * 4096)))


def pages_of_log(sqlite: Database) -> int:
    """Return how long the log has been at most: its file does not become shorter by itself."""
    return sqlite.file.with_name(f"{sqlite.file.name}-wal").stat().st_size // PAGE


def sessions_in(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(connection.execute("SELECT count(*) FROM sessions").fetchone()[0])


def sessions_without_log(sqlite: Database, directory: Path) -> int:
    """Return how many are in the file itself, whose log is written back.

    Beside a reader it is no database by itself: SQLite leaves out pages that have changed since that reader began.
    """
    return sessions_in(Path(shutil.copyfile(sqlite.file, directory / "alone.db")))


async def test_no_commit_of_a_usual_log_waits_for_it_to_be_written_back(sqlite: Database) -> None:
    async with without_checkpoints(sqlite) as store:
        await write(store)
        before = sqlite.file.read_bytes()
        for _ in range(MOST_PAGES // 2 // STEP):
            await write(store)
        assert sqlite.file.read_bytes() == before


async def test_a_process_without_checkpoints_does_not_fill_the_disk(sqlite: Database) -> None:
    async with without_checkpoints(sqlite) as store:
        for _ in range(2 * MOST_PAGES // STEP):
            await write(store)
        assert MOST_PAGES <= pages_of_log(sqlite) < MOST_PAGES + 2 * MOST_OF_A_STEP


async def test_the_log_of_a_daemon_stays_short_and_little_is_written_twice(sqlite: Database, tmp_path: Path) -> None:
    async with watched(sqlite) as (store, checkpoints):
        for _ in range(MOST_PAGES // STEP):
            await write(store)
            checkpoints.end()

        assert FIRST_PAGES <= pages_of_log(sqlite) < FIRST_PAGES + 2 * MOST_OF_A_STEP
        least = MOST_PAGES // (FIRST_PAGES + MOST_OF_A_STEP)
        assert least <= checkpoints.begun <= MOST_PAGES // STEP * MOST_OF_A_STEP // FIRST_PAGES
        assert sessions_without_log(sqlite, tmp_path) > MOST_PAGES // STEP / 2


async def test_a_daemon_with_little_to_write_begins_none(sqlite: Database) -> None:
    async with watched(sqlite) as (store, checkpoints):
        for _ in range(FIRST_PAGES // MOST_OF_A_STEP - 1):
            await write(store)
        assert checkpoints.begun == 0


async def test_what_other_processes_wrote_is_written_back_as_well(sqlite: Database) -> None:
    async with watched(sqlite) as (store, checkpoints), without_checkpoints(sqlite) as command:
        for _ in range(FIRST_PAGES // STEP):
            await write(command)
        assert checkpoints.begun == 0
        await queued(store)
        checkpoints.end()
        assert checkpoints.begun == 1
        before = pages_of_log(sqlite)
        await write(command)
        assert pages_of_log(sqlite) == before, "the log was started over"


async def test_a_long_reader_costs_few_checkpoints_and_its_log_is_started_over_later(sqlite: Database) -> None:
    async with watched(sqlite) as (store, checkpoints):
        await write(store)
        with closing(sqlite3.connect(sqlite.file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
            for _ in range(MOST_PAGES // 2 // STEP):
                await write(store)
                checkpoints.end()
            assert 1 < checkpoints.begun <= 1 + (pages_of_log(sqlite) - FIRST_PAGES) / AGAIN_PAGES
            assert reader.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
        for _ in range(AGAIN_PAGES // STEP + 1):
            await write(store)
            checkpoints.end()
        most = pages_of_log(sqlite)
        for _ in range(MOST_PAGES // STEP):
            await write(store)
            checkpoints.end()
        assert pages_of_log(sqlite) == most


async def test_what_was_committed_is_there_after_a_death_at_any_moment(sqlite: Database, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    async with watched(sqlite) as (store, checkpoints):
        for count in range(1, 2 * FIRST_PAGES // STEP):
            await write(store)
            for name in (sqlite.file.name, f"{sqlite.file.name}-wal"):
                shutil.copyfile(sqlite.file.with_name(name), left / name)
            if checkpoints.begun:  # the copies are of one moment only while nothing is written back
                checkpoints.end()
                shutil.copyfile(sqlite.file, left / sqlite.file.name)
            assert sessions_in(left / sqlite.file.name) == count
            for copy in left.iterdir():
                copy.unlink()


class Raced(Checkpoints):
    """Has another process commit while a checkpoint is under way, and checkpoint as well, if it is to."""

    def __init__(self, file: Path, *, twice: bool) -> None:
        super().__init__(file)
        self.twice = twice
        self.salts: list[bytes] = []  # before and after the commit

    def _copy(self, connection: sqlite3.Connection) -> tuple[int, int]:
        assert self._file is not None
        if self.twice:
            super()._copy(connection)
        self.salts.append(salts_of(self._file))
        with closing(sqlite3.connect(self._file)) as other, other:
            other.execute("PRAGMA wal_autocheckpoint = 0")
            other.execute("UPDATE sessions SET summary = 'meanwhile'")
        self.salts.append(salts_of(self._file))
        return super()._copy(connection)


def salts_of(file: Path) -> bytes:
    return file.with_name(f"{file.name}-wal").read_bytes()[16:24]


async def test_no_commit_starts_a_log_over_that_a_checkpoint_reads(sqlite: Database) -> None:
    async with without_checkpoints(sqlite) as store:
        await write(store)
        raced = Raced(sqlite.file, twice=True)

        raced.run()

        assert len(set(raced.salts)) == 1
        assert Checkpoints(sqlite.file).run()
        assert sqlite.rows("sessions")[0]["summary"] == "meanwhile"


async def test_a_checkpoint_that_began_before_a_log_was_started_over_copies_nothing_of_it(sqlite: Database) -> None:
    async with without_checkpoints(sqlite) as store:
        await write(store)
        assert Checkpoints(sqlite.file).run()
        before = sqlite.file.read_bytes()
        raced = Raced(sqlite.file, twice=False)

        assert not raced.run()

        assert len(set(raced.salts)) > 1
        assert sqlite.file.read_bytes() == before
        assert Checkpoints(sqlite.file).run()
        assert sqlite.rows("sessions")[0]["summary"] == "meanwhile"


async def test_the_end_leaves_no_log(sqlite: Database) -> None:
    async with watched(sqlite) as (store, _):
        for _ in range(2 * FIRST_PAGES // STEP):
            await write(store)
    assert [path.name for path in sqlite.file.parent.iterdir()] == [sqlite.file.name]


def test_a_database_without_file_or_log_is_left_alone(tmp_path: Path) -> None:
    for file in (None, tmp_path / "nothing.db"):
        checkpoints = Counted(file)
        checkpoints.look()
        checkpoints.end()
        assert checkpoints.begun == 0
    assert list(tmp_path.iterdir()) == []


async def test_a_database_that_vanished_is_not_made_anew(sqlite: Database) -> None:
    async with without_checkpoints(sqlite) as store:
        for _ in range(1 + FIRST_PAGES // STEP):
            await write(store)
        sqlite.file.unlink()
        checkpoints = Counted(sqlite.file)
        checkpoints.look()
        checkpoints.end()
        assert checkpoints.begun == 1
        assert not sqlite.file.exists()
