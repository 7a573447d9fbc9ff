"""Retention: expired rows are removed, and SQLite's write-ahead log is cut.

A reader looks for old rows; the writer removes them in steps, each a short transaction. A step consists of pieces, each
a few statements on few rows. Once a step has done enough, or something urgent waits for the writer, it starts no
further piece and commits; the next step continues from there. A chain may take several steps, and each leaves a record
that can be verified: a session's tool calls go in the transaction that writes their tombstone, and the sessions' own
rows go last, those of a chain together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Select, Table, and_, delete, false, or_, select, update
from sqlalchemy.engine import Engine

from claudeops.domain.probes.history import BUCKET, HOUR
from claudeops.domain.retention import Aged, Cutoffs, RemovalStep
from claudeops.domain.sessions import Status
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.calls import RETENTION, bury
from claudeops.store.connection.engines import sqlite_file
from claudeops.store.database import Database
from claudeops.store.tables.alerting import alert_decisions, alert_deliveries, alert_queue
from claudeops.store.tables.all_tables import metadata
from claudeops.store.tables.base import each_value
from claudeops.store.tables.daemon import schedule_fires
from claudeops.store.tables.events import events
from claudeops.store.tables.outbox import outbox
from claudeops.store.tables.probes import probe_history
from claudeops.store.tables.sessions import service_checks, sessions
from claudeops.store.tables.web import idempotency_keys

Key = tuple[object, ...]
"""A row's primary key; a chain goes by that of its first session."""

STEP_SECONDS: Final = 0.01
"""How long a step may go on; it overshoots by one piece and the commit."""

PIECE_ROWS: Final = 25
_ROWS_OF_A_CHAIN: Final = 20  # on average, roughly

_LONG_TEXTS: Final = ("prompt_text", "context", "response", "last_assistant_text", "stderr_tail")
"""Columns of a session that are emptied before its row goes; what it concluded stays."""

_TABLES: Final = {
    Aged.CHAINS: sessions,
    Aged.TEXTS: sessions,
    Aged.CHECKS: service_checks,
    Aged.EVENTS: events,
    Aged.STRETCHES: probe_history,
    Aged.HOURS: probe_history,
    Aged.NOTICES: outbox,
    Aged.KEYS: idempotency_keys,
    Aged.FIRES: schedule_fires,
    Aged.DECISIONS: alert_decisions,
    Aged.BODIES: alert_deliveries,
}

_GROWTH_BYTES: Final = 6_000_000  # 2 MB stay in the connection's memory, and SQLite starts the log over at 4 MB
_LONG_LOG_BYTES: Final = 8_000_000
"""From which length on the log is cut, which verdicts wait for: not before it has twice its usual length."""

_CUT_MILLISECONDS: Final = 100  # how long the cut of the log waits for readers


class Retention:
    """What keeps the database small and quick."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def expire(self, aged: Aged, cutoffs: Cutoffs, *, now: datetime, rows: int) -> RemovalStep:
        """Remove what is older than ``cutoffs`` of a kind, in one short transaction that gives way to verdicts.

        A reader has found the rows before. At most about ``rows`` rows are written; call it again for as long as there
        is more. A chain is removed with everything that belongs to it once all its sessions ended before
        ``cutoffs.audit``, over several calls if it is long; of its tool calls tombstones stay. Sessions that ended
        before ``cutoffs.details`` lose their long texts. The latest check of a service, the latest fire of a schedule
        and open events always stay.
        """
        found = await self._database.read(partial(look, aged=aged, cutoffs=cutoffs, limit=rows))
        if not found:
            return RemovalStep()

        def step(connection: Connection) -> RemovalStep:
            bounds = RetentionStep(rows=rows, awaited=self._database.is_awaited)
            return remove(connection, aged, found, cutoffs=cutoffs, now=now, step=bounds)

        return await self._database.write(step)

    async def checkpoint(self) -> bool:
        """Write the database's own log back into it; ``False`` if another connection was in the way, so try again.

        SQLite's log is cut to its usual length if it has become much longer.
        """
        file = sqlite_file(self._database.url)
        if file is None:
            return True
        if not await self._database.checkpoint():
            return False
        if _log_bytes(file) > _LONG_LOG_BYTES:
            if not await self._database.write_outside(_cut_log):
                return False
            await self.make_room()
        return True

    async def make_room(self) -> None:
        """Prepare the database so that the first writes are as quick as later ones; failing that, they are slower.

        SQLite's write-ahead log grows to its later length at once; nothing is kept of what is written for that. A
        commit that makes the file grow also waits for the file system's journal, which takes many times as long on a
        shared disk. SQLite overwrites the log from its beginning again and again, so growing it once is enough.
        """
        if sqlite_file(self._database.url) is not None:
            with suppress(DatabaseUnavailableError):
                await self._database.write_outside(_grow_log)


class RetentionStep(msgspec.Struct):
    """The bounds of one step; made when its transaction begins."""

    rows: int
    awaited: Callable[[], bool]  # tells whether something urgent waits for the writer
    until: float = msgspec.field(default_factory=lambda: monotonic() + STEP_SECONDS)

    def is_over(self, written: int) -> bool:
        """Tell whether the step has done enough."""
        return written >= self.rows or self.awaited() or monotonic() >= self.until


def look(connection: Connection, aged: Aged, cutoffs: Cutoffs, limit: int) -> list[Key]:
    """Return the keys of expired rows of one kind for `remove`: at most ``limit``, fewer where each means many rows."""
    most = max(1, limit // _ROWS_OF_A_CHAIN) if aged is Aged.CHAINS else limit
    return [tuple(row) for row in connection.execute(old(aged, cutoffs).limit(most))]


def remove(
    connection: Connection, aged: Aged, found: Sequence[Key], *, cutoffs: Cutoffs, now: datetime, step: RetentionStep
) -> RemovalStep:
    """Remove found rows until the step is over, at least one piece; rows that are no longer too old stay."""
    written = done = 0
    for piece in _pieces(connection, aged, found, cutoffs, now, most=min(step.rows, PIECE_ROWS)):
        written += piece.written
        done += piece.done
        # Only after something was written: under a stream of verdicts no step would get anywhere otherwise.
        if written and step.is_over(written):
            break
    return RemovalStep(done=done, more=written > 0)


def old(aged: Aged, cutoffs: Cutoffs) -> Select[Key]:
    """Return the query for the keys of expired rows, in the order in which they are removed."""
    return _OLD[aged](cutoffs)


def _old_chains(cutoffs: Cutoffs) -> Select[Key]:
    later = sessions.alias("later")
    not_over = select(later.c.id).where(
        later.c.root_session_id == sessions.c.id,
        or_(later.c.status != Status.ENDED.value, later.c.ended_at >= cutoffs.audit),
    )
    is_root = sessions.c.root_session_id == sessions.c.id
    over = and_(sessions.c.ended_at < cutoffs.audit, is_root, ~not_over.exists())
    return select(sessions.c.id).where(over).order_by(sessions.c.ended_at)


def _old_texts(cutoffs: Cutoffs) -> Select[Key]:
    long = or_(*(sessions.c[name].is_not(None) for name in _LONG_TEXTS))
    # Youngest first: the older ones have lost their texts already, and each look would pass over all of them.
    query = select(sessions.c.id).where(sessions.c.ended_at < cutoffs.details, long)
    return query.order_by(sessions.c.ended_at.desc())


def _old_checks(cutoffs: Cutoffs) -> Select[Key]:
    # The latest check of a service is its state, however old, so it stays.
    later = service_checks.alias("later")
    checks = service_checks.c
    newer = select(later.c.id).where(later.c.service == checks.service, later.c.id > checks.id)
    query = select(checks.id).where(checks.checked_at < cutoffs.details, newer.exists())
    return query.order_by(checks.checked_at)


def _old_history(length: timedelta, too_old: datetime) -> Select[Key]:
    of_kind = probe_history.c.resolution == int(length.total_seconds())
    query = select(*probe_history.primary_key).where(of_kind, probe_history.c.bucket < too_old)
    return query.order_by(probe_history.c.bucket)


def _over(over_at: Column[datetime], cutoffs: Cutoffs) -> Select[Key]:
    return select(over_at.table.c.id).where(over_at < cutoffs.details).order_by(over_at)


def _old_keys(cutoffs: Cutoffs) -> Select[Key]:
    keys = idempotency_keys.c
    return select(keys.id).where(keys.created_at <= cutoffs.keys).order_by(keys.created_at)


def _old_bodies(cutoffs: Cutoffs) -> Select[Key]:
    bodies = alert_deliveries.c
    named = select(alert_decisions.c.id).where(alert_decisions.c.delivery_id == bodies.id)
    waits = select(alert_queue.c.id).where(alert_queue.c.delivery_id == bodies.id)
    query = select(bodies.id).where(bodies.received_at < cutoffs.details, ~named.exists(), ~waits.exists())
    return query.order_by(bodies.received_at)


def _old_fires(cutoffs: Cutoffs) -> Select[Key]:
    later = schedule_fires.alias("later")
    fires = schedule_fires.c
    newer = select(later.c.due_at).where(later.c.schedule == fires.schedule, later.c.due_at > fires.due_at)
    name = each_value(fires.schedule).subquery()
    query = select(fires.schedule, fires.due_at).join(name, name.c.name == fires.schedule)
    return query.where(fires.due_at < cutoffs.audit, newer.exists()).order_by(fires.schedule, fires.due_at)


_OLD: Final[Mapping[Aged, Callable[[Cutoffs], Select[Key]]]] = {
    Aged.CHAINS: _old_chains,
    Aged.TEXTS: _old_texts,
    Aged.CHECKS: _old_checks,
    Aged.EVENTS: lambda cutoffs: _over(events.c.resolved_at, cutoffs),
    Aged.STRETCHES: lambda cutoffs: _old_history(BUCKET, cutoffs.fine_history),
    Aged.HOURS: lambda cutoffs: _old_history(HOUR, cutoffs.history),
    Aged.NOTICES: lambda cutoffs: _over(outbox.c.delivered_at, cutoffs),
    Aged.DECISIONS: lambda cutoffs: _over(alert_decisions.c.at, cutoffs),
    Aged.BODIES: _old_bodies,
    Aged.KEYS: _old_keys,
    Aged.FIRES: _old_fires,
}


def among(table: Table, keys: Sequence[Key]) -> ColumnElement[bool]:
    """Return the condition that a row is one of ``keys``, in a form for which both databases use the primary key."""
    columns = list(table.primary_key)
    if len(columns) == 1:
        return columns[0].in_([value for (value,) in keys])
    # For an IN over pairs SQLite would read the whole table.
    return or_(false(), *(and_(*(column == value for column, value in zip(columns, key, strict=True))) for key in keys))


@cache  # to look through all columns takes a quarter of the time in which a piece is removed
def references(table: Table) -> Sequence[Column[object]]:
    """Return every column that refers to ``table``."""
    columns = (column for other in metadata.sorted_tables for column in other.columns)
    return tuple(column for column in columns if column.references(table.c.id))


class _Piece(NamedTuple):
    written: int  # rows of any table
    done: int = 0  # rows of the kind that was asked for


def _pieces(
    connection: Connection, aged: Aged, found: Sequence[Key], cutoffs: Cutoffs, now: datetime, *, most: int
) -> Iterator[_Piece]:
    """Do one piece for each value that is drawn from the iterator."""
    if aged is Aged.CHAINS:
        yield from _chain_pieces(connection, found, cutoffs, now)
        return
    table = _TABLES[aged]
    for first in range(0, len(found), most):
        wanted = among(table, found[first : first + most])
        # The condition is checked again: the rows may have changed since the reader looked.
        keys = [tuple(row) for row in connection.execute(old(aged, cutoffs).where(wanted))]
        if aged is Aged.TEXTS:
            emptied = update(sessions).where(among(table, keys)).values(dict.fromkeys(_LONG_TEXTS))
            count = connection.execute(emptied).rowcount
        else:
            count = _delete(connection, table, keys)
        yield _Piece(written=count, done=count)


def _chain_pieces(connection: Connection, found: Sequence[Key], cutoffs: Cutoffs, now: datetime) -> Iterator[_Piece]:
    """Remove a few chains, the rows that refer to their sessions first."""
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
            yield from (_Piece(written=count) for count in _clearing(connection, column, ids))
    count = connection.execute(delete(sessions).where(sessions.c.id.in_(ids))).rowcount
    yield _Piece(written=count, done=count)


def clear_references(connection: Connection, column: Column[object], ids: Sequence[int]) -> int:
    """Clear or delete the rows whose column refers to some sessions; return how many."""
    return sum(_clearing(connection, column, ids))


def _clearing(connection: Connection, column: Column[object], ids: Sequence[int]) -> Iterator[int]:
    """Clear or delete the rows whose column refers to some sessions, a piece at a time."""
    table = column.table
    some = select(*table.primary_key).where(column.in_(ids)).limit(PIECE_ROWS)
    # By keys: neither database takes a LIMIT on UPDATE or DELETE.
    while keys := [tuple(row) for row in connection.execute(some)]:
        yield _clear(connection, column, among(table, keys))


def _delete(connection: Connection, table: Table, keys: Sequence[Key]) -> int:
    """Delete a few rows; rows that refer to them are deleted too, or cleared where the column is nullable."""
    if "id" in table.c:
        for column in references(table):
            _clear(connection, column, column.in_([number for (number,) in keys]))
    return connection.execute(delete(table).where(among(table, keys))).rowcount


def _clear(connection: Connection, column: Column[object], named: ColumnElement[bool]) -> int:
    table = column.table
    if column.nullable:
        return connection.execute(update(table).where(named).values({column.name: None})).rowcount
    return connection.execute(delete(table).where(named)).rowcount


def _grow_log(engine: Engine) -> None:
    with engine.connect() as connection:  # left without a commit
        connection.exec_driver_sql("CREATE TABLE room (bytes BLOB)")
        connection.exec_driver_sql("INSERT INTO room VALUES (zeroblob(?))", (_GROWTH_BYTES,))


def _log_bytes(file: Path) -> int:
    """Return how long the log is, all that SQLite has written back included."""
    with suppress(FileNotFoundError):
        return Path(f"{file}-wal").stat().st_size
    return 0


def _cut_log(engine: Engine) -> bool:
    """Cut the log; ``False``: a reader was in the way."""
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        (usual,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        # A read may take long, and verdicts wait behind this.
        cursor.execute(f"PRAGMA busy_timeout = {_CUT_MILLISECONDS}")
        try:
            busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {usual}")
    finally:
        connection.close()
    return not busy
