"""Reading what is on record for people: lists, details and sums, which the command line and the pages share.

One module a subject. Its functions take an open connection (`Database.read` gives one, with a snapshot), change
nothing, and return values. Lists are paged by key: `page` asks for one row more than it shows, and an index of the key
serves every page as cheaply as the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Select, Table, select, union_all
from sqlalchemy.sql.elements import KeyedColumnElement

from claudeops.domain.listing import Listing, Page, Reference
from claudeops.store.connection.engines import border, parse_url, reading_engine
from claudeops.store.migrate import require_head
from claudeops.store.rows import TableRow
from claudeops.store.tables.base import each_value
from claudeops.store.tables.sessions import sessions
from claudeops.text import casefold_key

__all__ = [
    "Connection",
    "Listing",
    "Page",
    "QueryPart",
    "named",
    "opened",
    "page",
    "session_ids",
    "within",
]

T = TypeVar("T")

_MOST_MATCHES = 10  # sessions that a shortened id is told to fit
_CLOCK_SET_BACK: Final = timedelta(days=1)
"""By which the moments of later rows may be before those of earlier ones."""

_FIRST: Final = datetime(2, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9998, 1, 1, tzinfo=UTC)


@contextmanager
def opened(url: str) -> Iterator[Connection]:
    """Open a migrated database for reading, all of it from one snapshot.

    For commands that only read, and end: they start no thread. Raises `DatabaseUnavailableError`, `NewerDatabaseError`
    or `ConfigurationError`.
    """
    parsed = parse_url(url)
    require_head(parsed)
    engine = reading_engine(parsed, size=1)
    try:
        with border(parsed), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


class QueryPart(msgspec.Struct, frozen=True):
    """Some of a query's rows."""

    condition: ColumnElement[bool]
    few: bool = False  # they are found by the condition and sorted; else by their keys, in order, until a page is full

    def first(
        self, query: Select[Any], key: Column[int] | KeyedColumnElement[int], most: int, *, oldest: bool
    ) -> Select[Any]:
        """Return the query for the newest of these rows, or for the oldest."""
        # Of a sum no index has the order: SQLite, which knows nothing of how many rows fit, would take the keys' one.
        return query.where(self.condition).order_by(_ordered(key + 0 if self.few else key, oldest=oldest)).limit(most)


def page(
    connection: Connection,
    query: Select[Any],
    key: Column[int] | KeyedColumnElement[int],
    wanted: Listing,
    read: Callable[[TableRow], T],
    *,
    either: Sequence[ColumnElement[bool] | QueryPart] | None = None,
) -> Page[T]:
    """Return one page of a query's rows, the highest ``key`` first; ``key`` is an id, and is among its columns.

    Of the rows after a key a page has the oldest, so that whoever goes on from its newest one misses none.

    ``either``: conditions of which a row fits one. Each is asked by itself for as many rows as a page may hold: an
    index of several values has them by key within each value alone, and all of them would have to be sorted.
    """
    if either is not None and not either:
        return Page(items=())
    if wanted.before is not None:
        query = query.where(key < wanted.before)
    if wanted.after is not None:
        query = query.where(key > wanted.after)
    oldest = wanted.after is not None and wanted.before is None
    parts = (one if isinstance(one, QueryPart) else QueryPart(one) for one in either or ())
    first = [part.first(query, key, wanted.limit + 1, oldest=oldest) for part in parts]
    if len(first) == 1:
        query = first[0]
    elif first:
        keys = [each.with_only_columns(key, maintain_column_froms=True).subquery() for each in first]
        query = query.where(key.in_(union_all(*(select(found.c[key.name]) for found in keys))))
    rows = connection.execute(query.order_by(None).order_by(_ordered(key, oldest=oldest)).limit(wanted.limit + 1)).all()
    shown = rows[: wanted.limit][:: -1 if oldest else 1]
    more = len(rows) > len(shown) and bool(shown) and not oldest
    return Page(
        items=tuple(map(read, shown)),
        before=getattr(shown[-1], key.name) if more else None,
        newest=getattr(shown[0], key.name) if shown else wanted.after,
    )


def _ordered(key: ColumnElement[int], *, oldest: bool) -> ColumnElement[int]:
    return key.asc() if oldest else key.desc()


def within(query: Select[Any], moment: Column[Any], wanted: Listing) -> Select[Any]:
    """Return the query for the rows whose ``moment`` is in the time asked for.

    ``moment`` is when a row was written. Where an index has it, the ids that were given in that time bound the search,
    which otherwise reads what is newer or older too; a day more of them, for clocks that were set back.
    """
    if wanted.since is not None:
        query = query.where(moment >= wanted.since)
        if _leads_an_index(moment):
            query = query.where(_key(moment.table) >= first_id(moment, moment >= earlier(wanted.since)))
    if wanted.until is not None:
        query = query.where(moment < wanted.until)
        if _leads_an_index(moment):
            query = query.where(_key(moment.table) <= last_id(moment, moment < later(wanted.until)))
    return query


def earlier(at: datetime) -> datetime:
    """Return a moment before which no row was written that says a later one."""
    return max(at, _FIRST) - _CLOCK_SET_BACK


def later(at: datetime) -> datetime:
    """Return a moment after which no row was written that says an earlier one."""
    return min(at, _LAST) + _CLOCK_SET_BACK


def first_id(moment: Column[Any], condition: ColumnElement[bool]) -> ColumnElement[int]:
    """Return the question for the id of the earliest row that fits; null: none does, and no id is at least that."""
    return select(_key(moment.table)).where(condition).order_by(moment).limit(1).scalar_subquery()


def last_id(moment: Column[Any], condition: ColumnElement[bool]) -> ColumnElement[int]:
    """Return the question for the id of the latest row that fits; null: none does."""
    return select(_key(moment.table)).where(condition).order_by(moment.desc()).limit(1).scalar_subquery()


def named(connection: Connection, column: Column[str], service: str) -> Sequence[str]:
    """Return the spellings of a service that a column holds; none where nobody wrote of it.

    Where the column leads an index, that takes one step in it for each name, not for each row.
    """
    wanted = casefold_key(service)
    names = each_value(column) if _leads_an_index(column) else select(column).where(column.is_not(None)).distinct()
    return [name for name in connection.execute(names).scalars() if casefold_key(name) == wanted]


def session_ids(connection: Connection, wanted: Reference) -> Sequence[int]:
    """Return the sessions that a reference fits, newest first, at most ten; a session's number stands before all."""
    by_number = select(sessions.c.id).where(sessions.c.id == wanted.number)
    numbered = [] if wanted.number is None else connection.execute(by_number).scalars().all()
    if numbered or wanted.prefix is None:
        return numbered
    name = sessions.c.cli_session_id
    # The bounds lead to an index, in the order of whichever language: digits, hyphens and letters to f can follow.
    begins = name.startswith(wanted.prefix, autoescape=True) & name.between(wanted.prefix, wanted.prefix + "z")
    query = select(sessions.c.id).where(begins).order_by(sessions.c.id.desc()).limit(_MOST_MATCHES)
    return connection.execute(query).scalars().all()


def _leads_an_index(column: Column[Any]) -> bool:
    whole = (index for index in column.table.indexes if index.dialect_options["sqlite"]["where"] is None)
    return any(next(iter(index.columns)) is column for index in whole)


def _key(table: Table) -> Column[int]:
    """Return the column of a table's ids, which grow."""
    (key,) = table.primary_key.columns
    return key
