"""What a scrape reads of the database: right on both kinds of it, and never by reading a big table through."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest
import sqlalchemy as sa

from claudeops.domain.events import EventLevel
from claudeops.domain.figures import Figures
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.spending.budget import Budgets
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError
from claudeops.store.reading.scraped import HEALTHY_WITHIN
from claudeops.store.store import Store, open_store
from support.store_values import NOW, RULES, after, alarm, check, claimed, ending, queued, report, started, wanted
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

BUDGETS: Final = Budgets(chain_usd=3, day_usd=20)
SMALL: Final = {"flags"}


async def read(store: Store, *, minutes: float = 0, days: float = 0) -> Figures:
    return await store.figures.read(lowest_tier=1, budgets=BUDGETS, now=after(minutes=minutes, days=days))


async def test_an_empty_database_has_nothing_to_show(database: Database) -> None:
    async with opened(database) as store:
        found = await read(store)
    assert found == Figures(
        at=NOW,
        queued=0,
        queued_since=None,
        approvals=0,
        incidents=dict.fromkeys(EventLevel, 0),
        outbox=0,
        outbox_since=None,
        memories=0,
        spent_usd=0.0,
        is_paused=False,
        parked_until=None,
        healthy_at=None,
    )


async def test_what_waits_counts_from_when_it_was_due(database: Database) -> None:
    async with opened(database) as store:
        await queued(store)
        await queued(store, wanted(not_before=after(minutes=30)))
        early = await read(store, minutes=10)
        assert (early.queued, early.queued_since) == (2, NOW)
        assert await claimed(store, at=after(minutes=10)) is not None
        assert (await read(store, minutes=20)).queued_since is None
        late = await read(store, minutes=40)
        assert (late.queued, late.queued_since) == (1, after(minutes=30))


async def test_money_holds_and_notices_are_those_of_now(database: Database) -> None:
    async with opened(database) as store:
        session = await started(store)
        await store.queue.finish(ending(session, alarm(), cost_usd=0.75), rules=RULES)
        await store.holds.hold(Hold(kind=HoldKind.PAUSED, reason="x", since=NOW), now=NOW)
        until = after(minutes=90)
        await store.holds.hold(Hold(kind=HoldKind.PARKED, reason="x", since=NOW, until=until), now=NOW)
        found = await read(store, minutes=5)
        assert (found.spent_usd, found.is_paused, found.parked_until) == (0.75, True, until)
        assert found.outbox > 0
        assert found.outbox_since is not None
        await store.holds.release(HoldKind.PAUSED, now=NOW)
        later = await read(store, days=1)
        assert (later.spent_usd, later.is_paused) == (0.0, False)


async def test_only_a_whole_usual_round_counts_as_healthy_and_it_is_not_forgotten(database: Database) -> None:
    async with opened(database) as store:
        question = await started(store, wanted(prompt_text="look at the shop"))
        await store.queue.finish(ending(question, report(check("shop"))), rules=RULES)
        assert (await read(store, minutes=2)).healthy_at is None
        session = await started(store)
        done = ending(session, report(check("shop")))
        await store.queue.finish(done, rules=RULES)
        assert (await read(store, minutes=3)).healthy_at == done.ended_at
        assert (await read(store, days=30)).healthy_at == done.ended_at  # seen once, it needs no second look
    async with opened(database) as another:
        beyond = done.ended_at + HEALTHY_WITHIN + timedelta(minutes=1)
        assert (await another.figures.read(lowest_tier=1, budgets=None, now=beyond)).healthy_at is None


async def test_every_write_is_timed_and_what_the_database_does_not_take_is_a_failure(sqlite: Database) -> None:
    noted: list[float | None] = []
    store = open_store(sqlite.url, busy_seconds=0.1, wrote=noted.append)
    try:
        session = await started(store)
        count = len(noted)
        assert count > 0
        assert None not in noted
        with sqlite.connect() as connection:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            with pytest.raises(DatabaseUnavailableError):
                await queued(store)
        assert noted[count:] == [None]
        done = ending(session, report(check("shop")))
        await store.queue.finish(done, rules=RULES)
        with pytest.raises(StaleAttemptError):  # that is an answer
            await store.queue.finish(done, rules=RULES)
        assert noted.count(None) == 1
    finally:
        await store.close()


async def test_no_big_table_is_read_through(sqlite: Database) -> None:
    statements: list[tuple[str, object]] = []
    async with opened(sqlite) as store:
        engine = store.database._reading

        def note(_: object, __: object, statement: str, parameters: object, *___: object) -> None:
            statements.append((statement, parameters))

        sa.event.listen(engine, "before_cursor_execute", note)
        await read(store)
        sa.event.remove(engine, "before_cursor_execute", note)
    with sqlite.connect() as connection:
        plans = [
            (statement, row[3])
            for statement, parameters in statements
            if statement.startswith("SELECT")
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)  # type: ignore[arg-type]
        ]
    assert len(plans) > 10
    assert [plan for plan in plans if plan[1].startswith("SCAN") and plan[1].split()[1] not in SMALL] == []
