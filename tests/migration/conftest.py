"""Databases to begin with, and the way to the head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from claudeops.store.migrate import Migrated, migrate
from support.postgres import Server
from support.store_values import NOW
from support.stores import MIGRATIONS, POSTGRES, Database


@pytest.fixture(params=[pytest.param("sqlite"), pytest.param("postgresql", marks=POSTGRES)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Return the address of a database without a table."""
    if request.param == "sqlite":
        return Database(f"sqlite:///{tmp_path}/claudeops.db")
    server: Server = request.getfixturevalue("postgres")
    return Database(server.url(server.create()))


@pytest.fixture
def up(tmp_path: Path) -> Callable[[Database], Migrated]:
    def up(database: Database) -> Migrated:
        return migrate(database.url, migrations_dir=MIGRATIONS, backup_dir=tmp_path / "backups", now=NOW)

    return up
