"""Fixtures around stores; a pytest plugin that test modules name in ``pytest_plugins``."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from claudeops.engine.ports import Store
from claudeops.store.migrate import migrate
from claudeops.store.tables import metadata
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
    directory = tmp_path_factory.mktemp("migrated")
    file = directory / "template.db"
    migrate(f"sqlite:///{file}", migrations_dir=MIGRATIONS, backup_dir=directory)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
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
        connection.execute(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY")
    return Database(postgres.url(migrated_postgres))


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
