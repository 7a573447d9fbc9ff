"""Fixtures around stores; a pytest plugin that test modules name in ``pytest_plugins``."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from claudeops.store.migrate import migrate
from claudeops.store.store import Store
from claudeops.store.tables import HEAD
from claudeops.store.tables.all_tables import metadata
from support.migrated import write_migrated
from support.postgres import Server, running_server
from support.stores import MIGRATIONS, POSTGRES, Database, opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of a database that has every table."""
    name = postgres.create()
    migrate(postgres.url(name), migrations_dir=MIGRATIONS, backup_dir=tmp_path_factory.mktemp("backups"))
    return name


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file to copy."""
    file = tmp_path_factory.mktemp("migrated") / "template.db"
    write_migrated(file)
    return file


@pytest.fixture
def sqlite(migrated_sqlite: Path, tmp_path: Path) -> Database:
    file = tmp_path / "claudeops.db"
    shutil.copyfile(migrated_sqlite, file)
    return Database(f"sqlite:///{file}")


@pytest.fixture
def postgresql(postgres: Server, migrated_postgres: str) -> Database:
    """Return the one database, emptied: making another takes ten times as long."""
    with postgres.connect(migrated_postgres) as connection:
        empty(connection)
    return Database(postgres.url(migrated_postgres))


@pytest.fixture(scope="session")
def marked_postgres(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of a database with every table, whose revision tests change."""
    name = postgres.create()
    migrate(postgres.url(name), migrations_dir=MIGRATIONS, backup_dir=tmp_path_factory.mktemp("backups"))
    return name


@pytest.fixture
def copy_target(postgres: Server, marked_postgres: str) -> Database:
    """Return a PostgreSQL database to copy to, emptied."""
    with postgres.connect(marked_postgres) as connection:
        empty(connection)
        connection.execute("UPDATE alembic_version SET version_num = %s", (HEAD,))
    return Database(postgres.url(marked_postgres))


def empty(connection: psycopg.Connection) -> None:
    """Remove all rows and have ids begin again, as ``TRUNCATE`` of all tables does, which costs more than a test."""
    sequences = [str(name) for (name,) in connection.execute("SELECT sequencename FROM pg_sequences")]
    filled = sql.SQL("SELECT {}, NULL WHERE EXISTS (SELECT FROM {})")
    # A sequence can have moved although no row is left: ids were skipped, or a transaction was rolled back.
    moved = sql.SQL("SELECT NULL, {} FROM {} WHERE is_called OR last_value <> 1")
    looks = [filled.format(sql.Literal(name), sql.Identifier(name)) for name in metadata.tables]
    looks += [moved.format(sql.Literal(name), sql.Identifier(name)) for name in sequences]
    found = connection.execute(sql.SQL(" UNION ALL ").join(looks)).fetchall()
    if not found:
        return
    remove, restart = sql.SQL("DELETE FROM {}"), sql.SQL("ALTER SEQUENCE {} RESTART")
    work = [remove.format(sql.Identifier(table)) for table, _ in found if table]
    work += [restart.format(sql.Identifier(sequence)) for _, sequence in found if sequence]
    # A replica checks no references and runs no triggers, so that the order of the tables does not matter.
    connection.execute(sql.SQL("; ").join([sql.SQL("SET session_replication_role = replica"), *work]))


@pytest.fixture(params=[pytest.param("sqlite"), pytest.param("postgresql", marks=POSTGRES)])
def database(request: pytest.FixtureRequest) -> Database:
    """Return each kind of database in turn; only the one that the parameter names is made."""
    made = request.getfixturevalue(request.param)
    assert isinstance(made, Database)
    return made


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    async with opened(database) as store:
        yield store
