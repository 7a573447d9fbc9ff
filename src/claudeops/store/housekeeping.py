"""What keeps the database small and quick: rows that are too old go, and SQLite's own log is cut.

A reader looks for old rows, the writer removes them in steps, each a short transaction.
A step is made of pieces, each a few statements on few rows. Once it has done enough, or somebody waits for the writer,
it does no further piece and commits; the next step goes on from there. A chain may take several of them, and each
leaves a record that can be verified: a session's tool calls go in the transaction that writes their tombstone, and the
sessions' own rows go last, all of a chain in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, and_, delete, false, or_, select, update
from sqlalchemy.engine import Engine

from claudeops.domain.model import Status
from claudeops.domain.retention import Aged, Cutoffs, Expired
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.calls import RETENTION, bury
from claudeops.store.database import Database, sqlite_file
from claudeops.store.tables import events, metadata, schedule_fires, service_checks, sessions

_GROWTH_BYTES: Final = 6_000_000  # two of them stay in the connection's memory; SQLite begins anew after four
_CUT_MILLISECONDS: Final = 100  # for readers to get out of the way of the log's cut

Key = tuple[object, ...]
"""A row's primary key; of chains the one of their first session."""

_LONG_TEXTS: Final = ("prompt_text", "context", "response", "last_assistant_text", "stderr_tail")
"""Columns of a session that go before its row does; what it concluded stays."""

STEP_SECONDS: Final = 0.05
"""So long a step goes on. What it overshoots is a piece and the commit."""

PIECE_ROWS: Final = 100
_ROWS_OF_A_CHAIN: Final = 20  # about

_TABLES: Final = {
    Aged.CHAINS: sessions,
    Aged.TEXTS: sessions,
    Aged.CHECKS: service_checks,
    Aged.EVENTS: events,
    Aged.FIRES: schedule_fires,
}


class SqlHousekeeping:
    """`claudeops.engine.ports.Housekeeping`, over SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def expire(self, aged: Aged, cutoffs: Cutoffs, *, now: datetime, rows: int) -> Expired:
        """Remove what is too old of a kind: what a reader found, in one short transaction."""
        found = await self._database.read(partial(look, aged=aged, cutoffs=cutoffs, limit=rows))
        if not found:
            return Expired()

        def step(connection: Connection) -> Expired:
            within = Step(rows=rows, awaited=self._database.is_awaited)
            return remove(connection, aged, found, cutoffs=cutoffs, now=now, step=within)

        return await self._database.write(step)

    async def checkpoint(self) -> bool:
        """Write SQLite's log back into the database and cut it to its usual length."""
        if sqlite_file(self._database.url) is None:
            return True
        await self._database.read(_copy_log)  # most of the work, while others write
        if not await self._database.write_outside(_cut_log):
            return False
        await self.make_room()
        return True

    async def make_room(self) -> None:
        """Let SQLite's write-ahead log have at once the length that it has later on; nothing of it is kept.

        Where the file grows, a commit waits for the journal of the file system too, which takes many times as long on a
        disk that others use as well. The log is overwritten from its beginning again and again, so this is once for
        all.
        """
        if sqlite_file(self._database.url) is not None:
            with suppress(DatabaseUnavailableError):
                await self._database.write_outside(_grow_log)


# --- SQLite's own log -------------------------------------------------------------------------------------


def _grow_log(engine: Engine) -> None:
    with engine.connect() as connection:  # left without a commit
        connection.exec_driver_sql("CREATE TABLE room (bytes BLOB)")
        connection.exec_driver_sql("INSERT INTO room VALUES (zeroblob(?))", (_GROWTH_BYTES,))


def _copy_log(connection: Connection) -> None:
    """Write as much of SQLite's log back as nobody is in the way of."""
    connection.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")  # not inside of a transaction either


def _cut_log(engine: Engine) -> bool:
    """Cut the log; ``False``: somebody was in the way."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        (usual,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        # Whoever reads may read for long, and verdicts wait behind this.
        cursor.execute(f"PRAGMA busy_timeout = {_CUT_MILLISECONDS}")
        try:
            busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {usual}")
    finally:
        connection.close()
    return not busy


# --- rows that are too old --------------------------------------------------------------------------------


@dataclass(slots=True)
class Step:
    """How long one step may go on; made when its transaction begins."""

    rows: int
    awaited: Callable[[], bool]  # somebody who must not wait waits for the writer
    until: float = field(default_factory=lambda: monotonic() + STEP_SECONDS)

    def is_over(self, written: int) -> bool:
        """Tell whether it has done enough."""
        return written >= self.rows or self.awaited() or monotonic() >= self.until


class _Piece(NamedTuple):
    written: int  # rows, of whatever table
    done: int = 0  # rows of the kind that was asked for


def look(connection: Connection, aged: Aged, cutoffs: Cutoffs, limit: int) -> list[Key]:
    """Return what is too old of a kind, at most ``limit`` keys, fewer where each means many rows; for a reader."""
    most = max(1, limit // _ROWS_OF_A_CHAIN) if aged is Aged.CHAINS else limit
    return [tuple(row) for row in connection.execute(old(aged, cutoffs).limit(most))]


def remove(
    connection: Connection, aged: Aged, found: Sequence[Key], *, cutoffs: Cutoffs, now: datetime, step: Step
) -> Expired:
    """Remove what was found as far as the step goes, a little in any case. What is young by now stays."""
    written = done = 0
    for piece in _pieces(connection, aged, found, cutoffs, now):
        written += piece.written
        done += piece.done
        # Not before something was written: under a stream of verdicts each step would end where it began.
        if written and step.is_over(written):
            break
    return Expired(done=done, more=written > 0)


def references(table: Table) -> Iterator[Column[object]]:
    """Give every column that names rows of ``table``."""
    for other in metadata.sorted_tables:
        for column in other.columns:
            if column.references(table.c.id):
                yield column


# --- looking ----------------------------------------------------------------------------------------------


def old(aged: Aged, cutoffs: Cutoffs) -> Select[Key]:
    """Return the query for the keys of what is too old, in the order in which it goes."""
    match aged:
        case Aged.CHAINS:
            later = sessions.alias("later")
            in_the_way = select(later.c.id).where(
                later.c.root_session_id == sessions.c.id,
                or_(later.c.status != Status.ENDED.value, later.c.ended_at >= cutoffs.audit),
            )
            is_root = sessions.c.root_session_id == sessions.c.id
            over = and_(sessions.c.ended_at < cutoffs.audit, is_root, ~in_the_way.exists())
            return select(sessions.c.id).where(over).order_by(sessions.c.ended_at)
        case Aged.TEXTS:
            long = or_(*(sessions.c[name].is_not(None) for name in _LONG_TEXTS))
            # Youngest first: beyond them come all those that have lost their texts already.
            query = select(sessions.c.id).where(sessions.c.ended_at < cutoffs.details, long)
            return query.order_by(sessions.c.ended_at.desc())
        case Aged.CHECKS:
            # The latest check of a service says how it stands, however long ago that was.
            later = service_checks.alias("later")
            checks = service_checks.c
            newer = select(later.c.id).where(later.c.service == checks.service, later.c.id > checks.id)
            query = select(checks.id).where(checks.checked_at < cutoffs.details, newer.exists())
            return query.order_by(checks.checked_at)
        case Aged.EVENTS:
            return select(events.c.id).where(events.c.resolved_at < cutoffs.details).order_by(events.c.resolved_at)
        case Aged.FIRES:
            later = schedule_fires.alias("later")
            fires = schedule_fires.c
            newer = select(later.c.due_at).where(later.c.schedule == fires.schedule, later.c.due_at > fires.due_at)
            query = select(fires.schedule, fires.due_at).where(fires.due_at < cutoffs.audit, newer.exists())
            return query.order_by(fires.schedule, fires.due_at)


# --- removing ---------------------------------------------------------------------------------------------


def _pieces(
    connection: Connection, aged: Aged, found: Sequence[Key], cutoffs: Cutoffs, now: datetime
) -> Iterator[_Piece]:
    """Do a piece whenever the next one is asked for."""
    if aged is Aged.CHAINS:
        yield from _chains(connection, found, cutoffs, now)
        return
    table = _TABLES[aged]
    for first in range(0, len(found), PIECE_ROWS):
        wanted = among(table, found[first : first + PIECE_ROWS])
        # Asked once more, for since the reader looked somebody may have written.
        keys = [tuple(row) for row in connection.execute(old(aged, cutoffs).where(wanted))]
        if aged is Aged.TEXTS:
            emptied = update(sessions).where(among(table, keys)).values(dict.fromkeys(_LONG_TEXTS))
            count = connection.execute(emptied).rowcount
        else:
            count = _delete(connection, table, keys)
        yield _Piece(written=count, done=count)


def _chains(connection: Connection, found: Sequence[Key], cutoffs: Cutoffs, now: datetime) -> Iterator[_Piece]:
    """Take a few chains apart, what hangs on their sessions first."""
    of_found = sessions.c.root_session_id.in_([root for (root,) in found])
    still = select(old(Aged.CHAINS, cutoffs).where(of_found).subquery().c.id)
    whole = select(sessions.c.id).where(sessions.c.root_session_id.in_(still)).order_by(sessions.c.id)
    ids = connection.execute(whole).scalars().all()
    if not ids:
        return
    for session_id in ids:
        yield _Piece(written=bury(connection, [session_id], reason=RETENTION, at=now))
    for column in references(sessions):
        if column.table is not sessions:
            yield from _let_go(connection, column, ids)
    count = connection.execute(delete(sessions).where(sessions.c.id.in_(ids))).rowcount
    yield _Piece(written=count, done=count)


def _let_go(connection: Connection, column: Column[object], ids: Sequence[int]) -> Iterator[_Piece]:
    """Have a column name none of some rows any more, a piece at a time."""
    table = column.table
    some = select(*table.primary_key).where(column.in_(ids)).limit(PIECE_ROWS)
    # By their keys: neither database bounds what a condition updates or deletes.
    while keys := [tuple(row) for row in connection.execute(some)]:
        yield _Piece(written=_unname(connection, column, among(table, keys)))


def _delete(connection: Connection, table: Table, keys: Sequence[Key]) -> int:
    """Delete few rows; what must name one of them goes with it, what may name one forgets it."""
    if "id" in table.c:
        for column in references(table):
            _unname(connection, column, column.in_([number for (number,) in keys]))
    return connection.execute(delete(table).where(among(table, keys))).rowcount


def _unname(connection: Connection, column: Column[object], named: ColumnElement[bool]) -> int:
    table = column.table
    if column.nullable:
        return connection.execute(update(table).where(named).values({column.name: None})).rowcount
    return connection.execute(delete(table).where(named)).rowcount


def among(table: Table, keys: Sequence[Key]) -> ColumnElement[bool]:
    """Return the condition of being one of some rows, in words for which both databases take the primary key."""
    columns = list(table.primary_key)
    if len(columns) == 1:
        return columns[0].in_([value for (value,) in keys])
    # Of pairs SQLite would read the whole table.
    return or_(false(), *(and_(*(column == value for column, value in zip(columns, key, strict=True))) for key in keys))
