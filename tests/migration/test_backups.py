"""Old databases are kept safe, and the newest copy can be named."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from claudeops.errors import ConfigurationError, MissingInputError, NewerDatabaseError, StoreError
from claudeops.store.connection.engines import parse_url
from claudeops.store.migrate import Migrated, back_up, back_up_to, migrate
from claudeops.store.tables import HEAD
from support.store_values import NOW, RULES, check, ending, how_many_wait, queued, report, started
from support.stores import MIGRATIONS, Database, opened

pytest_plugins = ("support.store_fixtures",)


@pytest.fixture
def older(tmp_path: Path) -> tuple[Database, Path]:
    """Return a database of a step before the first, and migrations that begin with that step."""
    migrations = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, migrations)
    (first,) = (migrations / "versions").glob("0001_*.py")
    first.write_text(first.read_text().replace("down_revision = None", 'down_revision = "0000"'))
    (migrations / "versions" / "0000_before.py").write_text('revision = "0000"\ndown_revision = None\n')
    file = tmp_path / "claudeops.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL);"
            "INSERT INTO alembic_version VALUES ('0000');"
            "CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('kept');"
        )
    return Database(f"sqlite:///{file}"), migrations


async def test_old_database_is_backed_up_and_then_opens(older: tuple[Database, Path], tmp_path: Path) -> None:
    database, migrations = older

    done = migrate(database.url, migrations_dir=migrations, backup_dir=tmp_path / "backups", now=NOW)

    backup = tmp_path / "backups" / "claudeops.db.backup-0000-20260301T120000.000000Z"
    assert done == Migrated(from_revision="0000", to_revision=HEAD, backup_path=backup)
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() == [
            ("alembic_version",),
            ("notes",),
        ]
    with database.connect() as connection:
        assert connection.exec_driver_sql("SELECT text FROM notes").scalar_one() == "kept"
    async with opened(database) as store:
        session = await started(store)
        await store.queue.finish(ending(session, report(check("web"))), rules=RULES)


def test_migration_that_fails_leaves_the_database_as_it_was(older: tuple[Database, Path], tmp_path: Path) -> None:
    database, migrations = older
    database.execute("CREATE TABLE instances (owner TEXT)")  # in the way of the last table

    with pytest.raises(StoreError, match="instances"):
        migrate(database.url, migrations_dir=migrations, backup_dir=tmp_path / "backups", now=NOW)

    with database.connect() as connection:
        assert sorted(sa.inspect(connection).get_table_names()) == ["alembic_version", "instances", "notes"]
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == "0000"


def test_rows_that_would_refer_to_nothing_stop_a_migration(older: tuple[Database, Path], tmp_path: Path) -> None:
    database, migrations = older
    database.execute("CREATE TABLE parts (whole INTEGER REFERENCES wholes (id))")
    database.execute("CREATE TABLE wholes (id INTEGER PRIMARY KEY)")
    database.execute("INSERT INTO parts VALUES (1)")

    with pytest.raises(StoreError, match="would leave rows of parts that refer to nothing"):
        migrate(database.url, migrations_dir=migrations, backup_dir=tmp_path / "backups", now=NOW)

    with database.connect() as connection:
        assert not sa.inspect(connection).has_table("sessions")


async def test_backup_of_a_database_in_use_is_whole(sqlite: Database, tmp_path: Path) -> None:
    async with opened(sqlite) as store:
        await queued(store)
        backup = back_up(sqlite.file, tmp_path / "backups", revision=HEAD, now=NOW)
        await queued(store)

    async with opened(Database(f"sqlite:///{backup}")) as copy:
        assert await how_many_wait(copy) == 1
    assert backup.stat().st_mode & 0o077 == 0


def test_backup_never_takes_an_existing_files_place(sqlite: Database, tmp_path: Path) -> None:
    first = back_up(sqlite.file, tmp_path, revision=HEAD, now=NOW)
    before = first.read_bytes()

    with pytest.raises(StoreError, match="could not be backed up"):
        back_up(sqlite.file, tmp_path, revision=HEAD, now=NOW)

    assert first.read_bytes() == before


def test_failed_backup_leaves_nothing_that_looks_like_one(tmp_path: Path) -> None:
    broken = tmp_path / "claudeops.db"
    broken.write_bytes(b"no database at all" * 1000)

    with pytest.raises(StoreError, match="could not be backed up"):
        back_up(broken, tmp_path / "backups", revision="0000", now=NOW)

    assert list((tmp_path / "backups").iterdir()) == []


@pytest.mark.parametrize("place", ["backups", "."], ids=["in the backup directory", "beside the file"])
def test_newer_database_is_refused_with_the_newest_backups_name(
    sqlite: Database, tmp_path: Path, up: Callable[[Database], Migrated], place: str
) -> None:
    for day in (1, 20, 3):
        back_up(sqlite.file, tmp_path / place, revision=HEAD, now=datetime(2026, 2, day, tzinfo=UTC))
    (tmp_path / place / f"claudeops.db.backup-{HEAD}-20270101T000000.000000Z").touch()
    sqlite.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(NewerDatabaseError) as caught:
        up(sqlite)

    assert "revision 9999" in str(caught.value)
    assert f"claudeops.db.backup-{HEAD}-20260220T000000.000000Z" in str(caught.value)


def test_newer_database_without_a_backup_says_so(sqlite: Database, up: Callable[[Database], Migrated]) -> None:
    sqlite.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(NewerDatabaseError, match="there is no backup beside it"):
        up(sqlite)


# --- what an operator asks for ------------------------------------------------------------------------------


async def test_backup_of_a_database_in_use_holds_what_was_committed_and_is_private(
    sqlite: Database, tmp_path: Path
) -> None:
    async with opened(sqlite) as store:
        session = await started(store)
        target = tmp_path / "copy.db"

        size = back_up_to(parse_url(sqlite.url), target)

        await store.queue.finish(ending(session, report(check("web"))), rules=RULES)
    assert size == target.stat().st_size
    assert target.stat().st_mode & 0o777 == 0o600
    assert [row["status"] for row in Database(f"sqlite:///{target}").rows("sessions")] == ["running"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("copy.db.")]


@pytest.mark.parametrize("what", ["copy.db", "copy.db.partial"])
def test_backup_takes_no_files_place(sqlite: Database, tmp_path: Path, what: str) -> None:
    (tmp_path / what).write_text("somebody's")

    with pytest.raises(ConfigurationError, match=rf"{what} exists"):
        back_up_to(parse_url(sqlite.url), tmp_path / "copy.db")

    assert (tmp_path / what).read_text() == "somebody's"


def test_backup_of_a_damaged_database_is_refused_and_leaves_nothing(sqlite: Database, tmp_path: Path) -> None:
    with closing(sqlite3.connect(sqlite.file)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'ix_sessions_root_session_id'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with sqlite.file.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)

    with pytest.raises(StoreError, match=r"damaged|malformed"):
        back_up_to(parse_url(sqlite.url), tmp_path / "copy.db")

    assert not list(tmp_path.glob("copy.db*"))


def test_backup_of_nothing_is_refused_and_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"no database .*none\.db: set CLAUDEOPS_STATE_DIR"):
        back_up_to(parse_url(f"sqlite:///{tmp_path}/none.db"), tmp_path / "copy.db")

    assert list(tmp_path.iterdir()) == []


def test_backup_of_postgresql_is_pg_dumps(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="pg_dump") as refused:
        back_up_to(parse_url("postgresql://someone:pass-word@db.example/ops"), tmp_path / "copy.db")

    assert "pass-word" not in str(refused.value)
