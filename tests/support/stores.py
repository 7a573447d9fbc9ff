"""Databases for the store, and a look at their rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from claudeops.domain.gate.approval import Approval
from claudeops.domain.listing import Listing
from claudeops.domain.live import EventRaised
from claudeops.store.connection.engines import parse_url
from claudeops.store.reading.approvals import listed
from claudeops.store.store import Store, open_store
from claudeops.store.tables.all_tables import metadata
from support.store_values import NOW

MIGRATIONS: Final = Path(__file__).parents[2] / "migrations"
POSTGRES: Final = (pytest.mark.postgres, pytest.mark.xdist_group("postgres"))

Row = dict[str, object]


def nobody(_: EventRaised) -> None:
    """Hear of an event and do nothing."""


@dataclass(frozen=True)
class Database:
    """A migrated database at ``url``."""

    url: str
    busy_seconds: float = 5.0

    def open(self, raised: Callable[[EventRaised], None] = nobody) -> Store:
        """Return a store over this database; it decides about all alerts that wait in one transaction."""
        return open_store(
            self.url, busy_seconds=self.busy_seconds, now=lambda: NOW, raised=raised, monotonic=lambda: 0.0
        )

    def rows(self, table: str) -> list[Row]:
        """Return a table's rows in the order of their ids."""
        query = sa.select(metadata.tables[table])
        if "id" in query.selected_columns:
            query = query.order_by(sa.text("id"))
        with self.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def execute(self, statement: str, **values: str | float | None) -> None:
        """Write behind the store's back."""
        with self.connect() as connection:
            connection.execute(sa.text(statement), values)
            connection.commit()

    @property
    def file(self) -> Path:
        """The SQLite file."""
        return Path(str(parse_url(self.url).database))

    def connect(self) -> sa.Connection:
        """Return a connection of its own, which takes its engine with it."""
        return sa.create_engine(parse_url(self.url), poolclass=sa.NullPool).connect()


def has_clock(database: Database) -> bool:
    """Return whether a database's times of signs of life are its own, not those that a test gives."""
    return not database.url.startswith("sqlite")


def silent_for(database: Database, owner: str, seconds: float) -> None:
    """Make an owner's last sign of life that old: on the database's clock, else before `NOW`."""
    if has_clock(database):
        ago = "UPDATE instances SET heartbeat = clock_timestamp() - make_interval(secs => :ago) WHERE owner = :owner"
        database.execute(ago, owner=owner, ago=seconds)
        return
    at = f"{NOW - timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f}"
    database.execute("UPDATE instances SET heartbeat = :at WHERE owner = :owner", owner=owner, at=at)


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Store]:
    """Open a store for the length of a block."""
    store = database.open()
    try:
        yield store
    finally:
        await store.close()


async def approvals_of(store: Store, *, everything: bool = False) -> tuple[Approval, ...]:
    """Return the questions that wait for an answer, or all of them, as the command lists them; the newest first."""
    assert isinstance(store, Store)
    found = await store.database.read(partial(listed, wanted=Listing(), everything=everything))
    return found.items
