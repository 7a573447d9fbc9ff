"""The database of a trial, looked at by its own means: a SQLite file, or one of a PostgreSQL server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import psycopg
from psycopg.rows import dict_row

from claudeops.dispatch.procrastinate import job_tables
from claudeops.settings.files import packaged
from claudeops.store.connection.engines import parse_url
from claudeops.store.connection.job_tables import migrate_jobs
from claudeops.store.migrate import migrate
from claudeops.store.tables.all_tables import metadata
from support.postgres import Server, running_server

Row = dict[str, object]

CONNECTIONS: Final = 400
"""A daemon has up to eight; several trials run at once, each with two daemons and with those that have just died."""


class DatabaseKind(StrEnum):
    """On what a trial runs."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class TrialDatabase(Protocol):
    """A database that daemons work on while somebody else looks at it."""

    @property
    def url(self) -> str:
        """Its address."""

    def exists(self) -> bool:
        """Tell whether somebody has made its tables."""

    def rows(self, query: str) -> list[Row]:
        """Return what a query finds; nothing where there are no tables yet."""

    def execute(self, statement: str) -> None:
        """Change something behind everybody's back; nothing where there are no tables yet."""

    def table(self, name: str) -> list[Row]:
        """Return a table in the order of its rows."""

    def damage(self) -> str | None:
        """Return what the database says is broken in its own files; ``None``: nothing, or it cannot say."""

    def remove(self) -> None:
        """Give up what it takes beside the directory of its trial."""


@dataclass(frozen=True)
class SqliteDatabase:
    """A file."""

    file: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"sqlite:///{self.file}"

    def exists(self) -> bool:
        """Tell whether there is a file."""
        return self.file.exists()

    def rows(self, query: str) -> list[Row]:
        """Return what a query finds; nothing where there are no tables yet."""
        there = f"file:{self.file}?mode=ro"
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(there, uri=True, timeout=5)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query)]
        return []

    def execute(self, statement: str) -> None:
        """Change something behind everybody's back; nothing where there are no tables yet."""
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.file, timeout=60)) as connection:
            connection.executescript(statement)

    def table(self, name: str) -> list[Row]:
        """Return a table in the order of its rows."""
        return self.rows(f"SELECT * FROM {name} ORDER BY rowid")  # noqa: S608 - names of ours

    def damage(self) -> str | None:
        """Return what SQLite says of the file."""
        with closing(sqlite3.connect(self.file)) as connection:
            found = str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        return None if found == "ok" else found

    def remove(self) -> None:
        """Do nothing: it is in the directory of its trial."""


@dataclass
class PostgresqlDatabase:
    """A database of a server; one connection looks at it for as long as its trial lasts."""

    server: Server
    name: str
    _looking: psycopg.Connection[Row] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return self.server.url(self.name)

    def exists(self) -> bool:
        """Tell whether somebody has made its tables."""
        return bool(self.rows("SELECT 1 FROM alembic_version"))

    def rows(self, query: str) -> list[Row]:
        """Return what a query finds; nothing where there are no tables yet."""
        with suppress(psycopg.errors.UndefinedTable):
            return self._connection().execute(query.encode()).fetchall()
        return []

    def execute(self, statement: str) -> None:
        """Change something behind everybody's back; nothing where there are no tables yet."""
        with suppress(psycopg.errors.UndefinedTable):
            self._connection().execute(statement.encode())

    def table(self, name: str) -> list[Row]:
        """Return a table in the order of its rows."""
        order = " ORDER BY id" if "id" in metadata.tables[name].c else ""
        return self.rows(f"SELECT * FROM {name}{order}")  # noqa: S608 - names of ours

    def damage(self) -> str | None:
        """Return nothing: the server is not killed here, and so has nothing to say."""
        return None

    def remove(self) -> None:
        """Drop it, whoever is connected."""
        if self._looking is not None:
            self._looking.close()
        self.server.drop(self.name)

    def _connection(self) -> psycopg.Connection[Row]:
        if self._looking is None:
            self._looking = psycopg.connect(self.url, autocommit=True, row_factory=dict_row)
            self._looking.execute("SET TIME ZONE 'UTC'")
        return self._looking


@dataclass(kw_only=True)
class Templates:
    """Migrated databases, of which each trial gets a copy."""

    file: Path
    server: Server | None = None
    _name: str = field(init=False, default="")

    def make(self, kinds: Sequence[DatabaseKind]) -> None:
        """Make those that are needed."""
        urls = []
        if DatabaseKind.SQLITE in kinds:
            urls.append(f"sqlite:///{self.file}")
        if self.server is not None:
            self._name = self.server.create()
            urls.append(self.server.url(self._name))
        for url in urls:
            migrate(url, migrations_dir=packaged("migrations"), backup_dir=self.file.parent)
        if self.server is not None:
            migrate_jobs(parse_url(self.server.url(self._name)), job_tables())

    def copy(self, kind: DatabaseKind, file: Path, *, is_empty: bool) -> TrialDatabase:
        """Return a database for a trial, at ``file`` if it is one; ``is_empty``: the first daemon makes its tables."""
        if kind is DatabaseKind.SQLITE:
            if not is_empty:
                file.write_bytes(self.file.read_bytes())
            return SqliteDatabase(file)
        assert self.server is not None
        return PostgresqlDatabase(self.server, self.server.create(template=None if is_empty else self._name))


@contextmanager
def templates(directory: Path, kinds: Sequence[DatabaseKind]) -> Iterator[Templates]:
    """Have templates for the length of the block, and a server if one is needed."""
    made = Templates(file=directory / "template.db")
    if DatabaseKind.POSTGRESQL not in kinds:
        made.make(kinds)
        yield made
        return
    with running_server(connections=CONNECTIONS) as made.server:
        made.make(kinds)
        yield made
