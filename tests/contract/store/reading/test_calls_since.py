"""Calls since a moment are found by their sessions, without a look at those of a long history."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import pytest
import sqlalchemy as sa

from claudeops.domain.sessions import Session
from claudeops.store.reading.calls_made import count_since, recorded_before
from claudeops.store.store import Store
from claudeops.store.tables.sessions import sessions, tool_calls
from support.store_values import NOW, after, started
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

SINCE = after(days=10)


def put(database: Database, session: Session, *moments: datetime) -> None:
    """Put calls on record; each has its moment for an id."""
    with database.connect() as connection:
        for at in moments:
            row = {"session_id": session.id, "tool_use_id": f"{at:%m-%d}", "tool_name": "Bash", "input": "{}"}
            row |= {"verdict": "allow", "reason": "looks", "previous_hash": "", "hash": ""}
            connection.execute(tool_calls.insert().values(**row, requested_at=at, decided_at=at))
        connection.commit()


def end(database: Database, session: Session, at: datetime) -> None:
    with database.connect() as connection:
        ended = {"status": "ended", "outcome": "success", "ended_at": at}
        connection.execute(sa.update(sessions).where(sessions.c.id == session.id).values(**ended))
        connection.commit()


async def pages(store: Store, limit: int) -> list[str]:
    found, before = list[str](), None
    while read := await store.database.read(partial(recorded_before, before=before, since=SINCE, limit=limit)):
        found += [f"{call.requested_at:%m-%d}" for call in read]
        before = read[-1].call_id
    return found


async def test_no_call_is_missing_whether_its_session_runs_or_has_ended_since(store: Store, database: Database) -> None:
    old, long, late = await started(store), await started(store), await started(store)
    put(database, old, NOW, after(days=1))
    end(database, old, after(days=2))
    put(database, long, after(days=3), after(days=11))
    end(database, long, after(days=12))
    put(database, late, after(days=13))

    assert await store.database.read(partial(count_since, since=SINCE)) == 2
    assert await pages(store, 1) == await pages(store, 10) == ["03-14", "03-12"]


async def test_there_are_none_since_the_last_session_has_ended(store: Store, database: Database) -> None:
    assert await store.database.read(partial(count_since, since=SINCE)) == 0
    old = await started(store)
    put(database, old, NOW)
    end(database, old, after(days=2))
    assert await store.database.read(partial(count_since, since=SINCE)) == 0
    assert await pages(store, 10) == []
