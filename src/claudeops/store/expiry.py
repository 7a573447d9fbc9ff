"""Rows that are too old: removed a handful of chains at a time, so that no writer waits long behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, case, delete, func, or_, select, tuple_, update

from claudeops.domain.expiry import Expired
from claudeops.domain.model import Status
from claudeops.store.tables import events, metadata, schedule_fires, service_checks, sessions
from claudeops.store.tombstones import RETENTION, bury

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Column, ColumnElement, Connection, Table

    from claudeops.domain.expiry import Cutoffs

LONG_TEXTS: Final = ("prompt_text", "context", "response", "last_assistant_text", "stderr_tail")
"""Columns of a session that go before its row does; what it concluded stays."""


def expire(connection: Connection, *, cutoffs: Cutoffs, now: datetime, chains: int) -> Expired:
    """Remove what is too old, at most ``chains`` whole chains and ten times as many rows of the rest."""
    rows = chains * 10
    return Expired(
        sessions=_remove_chains(connection, cutoffs.audit, now=now, chains=chains),
        shortened=_shorten(connection, cutoffs.details, rows),
        checks=_remove(connection, service_checks, _old_checks(cutoffs.details), rows),
        events=_remove(connection, events, events.c.resolved_at < cutoffs.details, rows),
        fires=_remove_fires(connection, cutoffs.audit, rows),
    )


def references(table: Table) -> Iterator[Column[object]]:
    """Give every column that names rows of ``table``."""
    for other in metadata.sorted_tables:
        for column in other.columns:
            if column.references(table.c.id):
                yield column


def _remove_chains(connection: Connection, before: datetime, *, now: datetime, chains: int) -> int:
    unended = func.sum(case((sessions.c.status == Status.ENDED.value, 0), else_=1))
    over = (
        select(sessions.c.root_session_id)
        .group_by(sessions.c.root_session_id)
        .having(and_(unended == 0, func.max(sessions.c.ended_at) < before))
        .order_by(sessions.c.root_session_id)
        .limit(chains)
    )
    roots = connection.execute(over).scalars().all()
    ids = connection.execute(select(sessions.c.id).where(sessions.c.root_session_id.in_(roots))).scalars().all()
    if not ids:
        return 0
    bury(connection, ids, reason=RETENTION, at=now)
    return _delete(connection, sessions, ids)


def _shorten(connection: Connection, before: datetime, limit: int) -> int:
    long = [sessions.c[name] for name in LONG_TEXTS]
    found = (
        select(sessions.c.id)
        .where(sessions.c.ended_at < before, or_(*(column.is_not(None) for column in long)))
        .order_by(sessions.c.id)
        .limit(limit)
    )
    ids = connection.execute(found).scalars().all()
    emptied = dict.fromkeys(LONG_TEXTS)
    return connection.execute(update(sessions).where(sessions.c.id.in_(ids)).values(emptied)).rowcount if ids else 0


def _old_checks(before: datetime) -> ColumnElement[bool]:
    # The latest check of a service says how it stands, however long ago that was.
    latest = select(func.max(service_checks.c.id)).group_by(service_checks.c.service)
    return and_(service_checks.c.checked_at < before, service_checks.c.id.not_in(latest))


def _remove_fires(connection: Connection, before: datetime, limit: int) -> int:
    fires = schedule_fires.c
    latest = select(fires.schedule, func.max(fires.due_at)).group_by(fires.schedule)
    named = tuple_(fires.schedule, fires.due_at)
    old = connection.execute(
        select(fires.schedule, fires.due_at).where(fires.due_at < before, named.not_in(latest)).limit(limit)
    ).all()
    for row in old:
        connection.execute(delete(schedule_fires).where(fires.schedule == row.schedule, fires.due_at == row.due_at))
    return len(old)


def _remove(connection: Connection, table: Table, old: ColumnElement[bool], limit: int) -> int:
    ids = connection.execute(select(table.c.id).where(old).order_by(table.c.id).limit(limit)).scalars().all()
    return _delete(connection, table, ids) if ids else 0


def _delete(connection: Connection, table: Table, ids: Sequence[int]) -> int:
    """Delete rows; what must name one of them goes with it, what may name one forgets it."""
    for column in references(table):
        if column.table is table:
            continue  # a chain goes as a whole, in one statement
        named = column.in_(ids)
        if column.nullable:
            connection.execute(update(column.table).where(named).values({column.name: None}))
        else:
            connection.execute(delete(column.table).where(named))
    return connection.execute(delete(table).where(table.c.id.in_(ids))).rowcount
