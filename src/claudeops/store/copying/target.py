"""The PostgreSQL database that is copied to: what it holds, the mark of a copy that is not finished, and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Table, inspect, text
from sqlalchemy.engine import URL

from claudeops.errors import ConfigurationError, DatabaseUnavailableError, StoreError
from claudeops.store.connection.engines import border, reading_engine, shown, writing_engine
from claudeops.store.copying.source import TABLES, Row, key_places, name_of
from claudeops.store.migrate import COPY_MARK, current_revision, migrate, refuse_newer
from claudeops.store.tables import HEAD
from claudeops.store.tables.all_tables import metadata

_SET_REVISION: Final = text("UPDATE alembic_version SET version_num = :revision")
_ADD_UP: Final = "ALTER TABLE budget_entries {} TRIGGER budget_entries_settled"
"""Switches off, and on again, what adds entries up: their sums are copied, as they are."""

_MOST_NAMED: Final = 5  # tables
_SEQUENCE: Final = "SELECT pg_get_serial_sequence(%s, 'id')"


class CopyTarget:
    """A PostgreSQL database. Its methods block, and raise `DatabaseUnavailableError` or `StoreError`."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self._writing = writing_engine(url)
        self._reading = reading_engine(url, size=1)

    def close(self) -> None:
        """Close the connections."""
        self._writing.dispose()
        self._reading.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that reads one snapshot."""
        with border(self.url), self._reading.connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with border(self.url), self._writing.begin() as connection:
            yield connection

    # --- what it is -----------------------------------------------------------------------------------

    def mark(self) -> str | None:
        """Return the mark of the copy that is not finished; ``None``: there is none."""
        with self.read() as connection:
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
            if encoding != "UTF8":
                raise ConfigurationError(
                    f"the database {shown(self.url)} has the encoding {encoding}, which lacks characters: make one by "
                    "`createdb --encoding UTF8 --template template0`."
                )
            if "alembic_version" not in inspect(connection).get_table_names():
                return None
            query = text("SELECT version_num FROM alembic_version WHERE version_num LIKE :like")
            found: str | None = connection.execute(query, {"like": f"{COPY_MARK}%"}).scalar_one_or_none()
            return found

    def require_empty(self) -> None:
        """Raise `ConfigurationError` where the database holds rows of ours, or anything of a newer version."""
        revision = current_revision(self.url)
        if revision is None:
            return
        refuse_newer(self.url, revision)
        with self.read() as connection:
            filled = [name for name in _own_tables(connection) if _has_rows(connection, name)]
        if filled:
            raise ConfigurationError(
                f"the database {shown(self.url)} holds rows already ({', '.join(filled[:_MOST_NAMED])}), those of "
                "another installation or of a finished copy: name an empty one in CLAUDEOPS_TARGET_DATABASE_URL.",
                operation="db.copy",
                target=shown(self.url),
            )

    def begin(self, mark: str, *, migrations_dir: Path) -> None:
        """Make the tables of an empty database, and mark it as a copy that is not finished."""
        url = self.url.render_as_string(hide_password=False)
        migrate(url, migrations_dir=migrations_dir, backup_dir=migrations_dir)
        with self._write() as connection:
            connection.exec_driver_sql(_ADD_UP.format("DISABLE"))
            connection.execute(_SET_REVISION, {"revision": mark})

    def empty(self, mark: str) -> None:
        """Remove the rows and the mark of a copy that is not finished."""
        with self._write() as connection:
            names = ", ".join(f'"{name}"' for name in _own_tables(connection))
            connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY")
            connection.exec_driver_sql(_ADD_UP.format("ENABLE"))
            connection.execute(_SET_REVISION, {"revision": mark.split("-")[1]})

    def finish(self) -> None:
        """Remove the mark: it is a database like any other."""
        with self._write() as connection:
            connection.exec_driver_sql(_ADD_UP.format("ENABLE"))
            connection.execute(_SET_REVISION, {"revision": HEAD})

    # --- its rows -------------------------------------------------------------------------------------

    def counts(self) -> Mapping[str, int]:
        """Return how many rows each table has."""
        with self.read() as connection:
            counted = {table.name: f'SELECT count(*) FROM "{table.name}"' for table in TABLES}  # noqa: S608 - our own names
            return {name: connection.exec_driver_sql(query).scalar_one() for name, query in counted.items()}

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Write rows in one transaction; raises `ConfigurationError` with the name of one that is refused."""
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        marks = ", ".join("%s" for _ in table.columns)
        statement = f'INSERT INTO "{table.name}" ({columns}) VALUES ({marks})'  # noqa: S608 - our own names
        try:
            with self._write() as connection:
                connection.exec_driver_sql(statement, list(rows))
        except DatabaseUnavailableError:
            raise
        except StoreError as error:
            if len(rows) == 1:
                key = [rows[0][place] for place in key_places(table)]
                raise ConfigurationError(
                    f"the row {name_of(table, key)} cannot be copied: {str(error).rstrip('.')}; correct it in the "
                    "source, or call this with --restart where the target was changed by another program.",
                    operation="db.copy",
                    target=table.name,
                ) from error
            for row in rows:
                self.add(table, [row])

    def rows_like(self, table: Table, rows: Sequence[Row]) -> Mapping[Row, Row]:
        """Return the rows, by key, that have the keys of others."""
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        names = ", ".join(f'"{column.name}"' for column in table.primary_key)
        places = key_places(table)
        one = f"({', '.join('%s' for _ in places)})"
        query = f'SELECT {columns} FROM "{table.name}" WHERE ({names}) IN ({", ".join(one for _ in rows)})'  # noqa: S608 - our own names
        values = tuple(row[place] for row in rows for place in places)
        with self.read() as connection:
            found = [tuple(row) for row in connection.exec_driver_sql(query, values)]
        return {tuple(row[place] for place in places): row for row in found}

    def keys(self, table: Table, *, page: int) -> Iterator[Row]:
        """Yield the keys of all rows, which are read a page at a time."""
        names = ", ".join(f'"{column.name}"' for column in table.primary_key)
        marks = ", ".join("%s" for _ in table.primary_key)
        after, values = "", ()
        while True:
            query = f'SELECT {names} FROM "{table.name}" {after} ORDER BY {names} LIMIT {page}'  # noqa: S608 - our own names
            with self.read() as connection:
                found = [tuple(row) for row in connection.exec_driver_sql(query, values)]
            yield from found
            if len(found) < page:
                return
            after, values = f"WHERE ({names}) > ({marks})", found[-1]

    # --- its ids, and what the planner knows ----------------------------------------------------------

    def set_last_ids(self, last: Mapping[str, int]) -> None:
        """Have each table give only ids above its last one; and let the planner know how big the tables are."""
        with self._write() as connection:
            for name, number in last.items():
                sequence = connection.exec_driver_sql(_SEQUENCE, (name,)).scalar_one()
                connection.exec_driver_sql("SELECT setval(%s::regclass, %s)", (sequence, number))
            for table in TABLES:
                connection.exec_driver_sql(f'ANALYZE "{table.name}"')

    def last_ids(self) -> Mapping[str, int]:
        """Return the last id that each table has given to a row."""
        found = {}
        with self.read() as connection:
            for table in TABLES:
                if "id" in table.columns:
                    sequence = connection.exec_driver_sql(_SEQUENCE, (table.name,)).scalar_one()
                    query = f"SELECT last_value FROM {sequence} WHERE is_called"  # noqa: S608 - PostgreSQL's own name
                    found[table.name] = connection.exec_driver_sql(query).scalar_one_or_none() or 0
        return {name: number for name, number in found.items() if number}


def _own_tables(connection: Connection) -> Sequence[str]:
    return sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))


def _has_rows(connection: Connection, name: str) -> bool:
    return connection.exec_driver_sql(f'SELECT 1 FROM "{name}" LIMIT 1').first() is not None  # noqa: S608 - our own name
