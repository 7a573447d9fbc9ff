"""The SQLite database that is copied: its rows as PostgreSQL takes them.

SQLite keeps a value of any type in any column, and another program may have written one. What has no exact counterpart
is refused with its row and column; nothing is repaired on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cache
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Connection, Float, Integer, Table

from claudeops.errors import ConfigurationError
from claudeops.store.tables.all_tables import metadata
from claudeops.store.tables.columns import CleanText, Count, Name, Usd, UsdSum, UtcDateTime
from claudeops.text.escapes import visible

TABLES: Final[Sequence[Table]] = tuple(metadata.sorted_tables)
"""All of them, each after those that it refers to."""

Row = tuple[object, ...]
"""The values of a row in the order of the table's columns, as PostgreSQL's driver takes and returns them."""

_DIGEST_BYTES: Final = 10
_SMALLEST_USD: Final = Decimal("1e-10")  # the column has ten decimals


class CopySource:
    """A migrated SQLite database, over a connection that holds its write lock, so that it stays as it is."""

    def __init__(self, connection: Connection, *, page: int) -> None:
        """Read at most ``page`` rows at once."""
        # Text that is no UTF-8 is refused with its row, instead of by the driver without one.
        driver: Any = connection.connection.driver_connection
        driver.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        self.connection = connection
        self.page = page
        self._counts: dict[str, int] = {}

    def count(self, table: Table) -> int:
        """Return how many rows a table has; known once the `digest` is."""
        return self._counts[table.name]

    def pages(self, table: Table, *, skipped: int = 0) -> Iterator[Sequence[Row]]:
        """Yield the rows in the order of their key, after the first ``skipped`` ones.

        Raises `ConfigurationError` for a value that PostgreSQL does not take.
        """
        for page in self._raw_pages(table, skipped=skipped):
            yield [_converted(table, row) for row in page]

    def digest(self, progress: Callable[[str, int], None]) -> str:
        """Return the digest of the whole content, in hexadecimal; raises what `pages` raises.

        ``progress`` is called with the name of a table and how many of its rows are read.
        """
        content = blake2b(digest_size=_DIGEST_BYTES)
        for table in TABLES:
            read = 0
            for page in self._raw_pages(table):
                for row in page:
                    _converted(table, row)
                    content.update(repr(row).encode())
                read += len(page)
                progress(table.name, read)
            content.update(f"{table.name} {read}\n".encode())
            self._counts[table.name] = read
        content.update(repr(sorted(self.last_ids().items())).encode())
        return content.hexdigest()

    def last_ids(self) -> Mapping[str, int]:
        """Return the last id that each table has given to a row, whether or not the row is still there."""
        found: dict[str, int] = {}
        for table in TABLES:
            if "id" in table.columns:
                # The second counts where another program has written the first.
                query = (
                    f"SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table.name}'), 0),"  # noqa: S608 - ours
                    f' coalesce((SELECT max(id) FROM "{table.name}"), 0))'
                )
                found[table.name] = self.connection.exec_driver_sql(query).scalar_one()
        return {name: number for name, number in found.items() if number}

    def has(self, table: Table, key: Sequence[object]) -> bool:
        """Return whether there is a row with a key, which is given as PostgreSQL has it."""
        condition = " AND ".join(f'"{column.name}" = ?' for column in table.primary_key)
        values = tuple(_in_sqlite(value) for value in key)
        query = f'SELECT 1 FROM "{table.name}" WHERE {condition}'  # noqa: S608 - our own names
        return self.connection.exec_driver_sql(query, values).first() is not None

    def _raw_pages(self, table: Table, *, skipped: int = 0) -> Iterator[Sequence[Row]]:
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        names = ", ".join(f'"{column.name}"' for column in table.primary_key)
        marks = ", ".join("?" for _ in table.primary_key)
        places = key_places(table)
        first = f'SELECT {columns} FROM "{table.name}" ORDER BY {names} LIMIT ? OFFSET ?'  # noqa: S608 - our own names
        following = f'SELECT {columns} FROM "{table.name}" WHERE ({names}) > ({marks}) ORDER BY {names} LIMIT ?'  # noqa: S608 - same
        page = self._rows(first, (self.page, skipped))
        while page:
            yield page
            last = tuple(page[-1][place] for place in places)
            page = self._rows(following, (*last, self.page))

    def _rows(self, query: str, values: Row) -> Sequence[Row]:
        return [tuple(row) for row in self.connection.exec_driver_sql(query, values)]


def key_places(table: Table) -> Sequence[int]:
    """Return where in a row the values of its key stand."""
    names = [column.name for column in table.columns]
    return [names.index(column.name) for column in table.primary_key]


def name_of(table: Table, key: Sequence[object]) -> str:
    """Return the name of a row for a sentence: table and key."""
    named = (f"{column.name} {_shown(value)}" for column, value in zip(table.primary_key, key, strict=True))
    return f"{table.name}, {', '.join(named)}"


def _shown(value: object) -> str:
    return visible(value) if isinstance(value, str) else str(value)


# --- values -------------------------------------------------------------------------------------------


def _converted(table: Table, row: Row) -> Row:
    try:
        return tuple(
            None if value is None else convert(value) for convert, value in zip(_converters(table), row, strict=True)
        )
    except ValueError:
        raise _unfit(table, row) from None


def _unfit(table: Table, row: Row) -> ConfigurationError:
    """Return the error for a row of which one value at least cannot be converted: the first of them."""
    for column, value in zip(table.columns, row, strict=True):
        try:
            if value is not None:
                CONVERTERS[type(column.type)](value)
        except ValueError as error:
            name = name_of(table, [row[place] for place in key_places(table)])
            return ConfigurationError(
                f"the row {name} cannot be copied, because its column {column.name} holds {error}, which claudeops "
                "never writes: correct the row with SQLite's own program, or put a backup in the database's place.",
                operation="db.copy",
                target=table.name,
            )
    raise AssertionError(table.name)


@cache
def _converters(table: Table) -> Sequence[Callable[[object], object]]:
    return [CONVERTERS[type(column.type)] for column in table.columns]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - a value of the database, not a mistake of a caller
    if "\0" in value:
        raise ValueError("a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("bytes that are no text") from None
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("no whole number")  # noqa: TRY004 - as above
    return value


def _real(value: object) -> float:
    if not isinstance(value, int | float):
        raise ValueError("no number")  # noqa: TRY004 - as above
    return float(value)


def _truth(value: object) -> bool:
    if value not in {0, 1}:
        raise ValueError("neither 0 nor 1")
    return bool(value)


def _moment(value: object) -> datetime:
    try:
        found = datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError("no time") from None
    if found.tzinfo is not None:
        raise ValueError("a time with a zone")
    return found.replace(tzinfo=UTC)


def _usd(value: object) -> Decimal:
    """Return an amount as the column of PostgreSQL keeps it: what it would make of it by itself has 15 digits."""
    try:
        return Decimal(repr(_real(value))).quantize(_SMALLEST_USD, ROUND_HALF_UP)
    except InvalidOperation:
        raise ValueError("no amount of money") from None


def _in_sqlite(value: object) -> object:
    return f"{value:%Y-%m-%d %H:%M:%S.%f}" if isinstance(value, datetime) else value


CONVERTERS: Final[Mapping[type, Callable[[object], object]]] = {
    BigInteger: _whole,
    Boolean: _truth,
    CleanText: _text,
    Count: _whole,
    Float: _real,
    Integer: _whole,
    Name: _text,
    Usd: _usd,
    UsdSum: _usd,
    UtcDateTime: _moment,
}
"""By the type of a column: from SQLite's value, which is not null, to PostgreSQL's; raises `ValueError` with what it is
instead."""
