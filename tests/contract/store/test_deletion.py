"""Any store: an operator deletes a session, and what others count by stays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.sessions import Session
from claudeops.store.acts.deletion import Deletion, NotDeleted
from claudeops.store.store import Store
from support.store_values import NOW, RULES, after, alarm, allow, ending, recorded, restart, started
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect


async def ended(store: Store, *, actions: bool = False, escalates: bool = False) -> Session:
    session = await started(store)
    await recorded(store, session, "toolu_1", allow(restart()) if actions else allow())
    await store.queue.finish(ending(session, alarm() if escalates else None, cost_usd=0.5), rules=RULES)
    return session


async def deleted(store: Store, session_id: int, *, chain: bool = False, hours: float = 24) -> Deletion:
    assert isinstance(store, Store)
    since = after(hours=1) - timedelta(hours=hours)
    return await store.deletion.delete(session_id, chain=chain, counted_since=since, now=after(hours=1))


async def test_rows_go_and_money_tombstones_and_events_stay(store: Store, database: Database) -> None:
    session = await ended(store)
    events = len(database.rows("events"))

    assert (await deleted(store, session.id)).session_ids == (session.id,)

    assert (database.rows("sessions"), database.rows("tool_calls")) == ([], [])
    assert [(row["amount_usd"], row["session_id"]) for row in database.rows("budget_entries")] == [(0.5, None)]
    assert [(row["session_id"], row["reason"], row["calls"]) for row in database.rows("audit_tombstones")] == [
        (session.id, "deleted", 1)
    ]
    assert [row["session_id"] for row in database.rows("events")] == [None] * events
    assert isinstance(store, Store)
    assert (await store.audit.verify()).faults == ()


async def test_a_second_time_there_is_nothing(store: Store) -> None:
    session = await ended(store)
    await deleted(store, session.id)
    assert (await deleted(store, session.id)).kept is NotDeleted.UNKNOWN


async def test_what_runs_or_waits_is_kept(store: Store, database: Database) -> None:
    session = await started(store)
    assert await deleted(store, session.id) == Deletion(kept=NotDeleted.UNDER_WAY, session_ids=(session.id,))
    assert len(database.rows("sessions")) == 1


async def test_what_others_followed_from_goes_with_them_or_not_at_all(store: Store, database: Database) -> None:
    first = await ended(store, escalates=True)
    assert await deleted(store, first.id, chain=True) == Deletion(kept=NotDeleted.UNDER_WAY, session_ids=(2,))
    assert await deleted(store, first.id) == Deletion(kept=NotDeleted.FOLLOWED, session_ids=(2,))
    database.execute("UPDATE sessions SET status = 'ended', outcome = 'cancelled' WHERE id = 2")
    assert (await deleted(store, first.id, chain=True)).session_ids == (1, 2)
    assert database.rows("sessions") == []


@pytest.mark.parametrize(
    ("hours", "kept"), [(24, NotDeleted.COUNTS), (0.5, None)], ids=["within the limit", "after it"]
)
async def test_actions_that_a_limit_counts_keep_their_session(
    store: Store, hours: float, kept: NotDeleted | None
) -> None:
    session = await ended(store, actions=True)
    assert after(hours=1) > NOW
    assert (await deleted(store, session.id, hours=hours)).kept is kept
