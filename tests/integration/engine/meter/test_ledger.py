"""The database goes away under the meter: money is not held for calls that are over, and all of it is booked."""

from __future__ import annotations

import anyio
import pytest

from claudeops.clock import Clock
from claudeops.domain.spending.budget import AdmittedCall
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.store import open_store
from support.booked import Tokens
from support.metering import MODEL, Bench, bench, paid
from support.store_values import claimed, ending, queued
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

SAYS = {"text": "I look at the services.", "times": 100}
MOST = 60_000  # tokens of output: 0.33 USD
RULES = paid(tier=0.5)  # so two such calls are never open at once


def over(the: Bench) -> list[bool]:
    return [call["ended_at"] is not None for call in the.calls]


async def test_a_session_does_not_wait_for_the_money_of_a_call_that_is_over(sqlite: Database) -> None:
    async with bench(sqlite, SAYS, with_rules=RULES) as the, the.account() as account:
        the.away.add("book")
        assert (await the.ask(account, max_tokens=MOST)).is_whole
        assert over(the) == [False]
        with anyio.fail_after(PATIENCE_SECONDS):
            assert (await the.ask(account, max_tokens=MOST)).is_whole
        assert over(the) == [True, False], "the first was written with the second"
        assert len(account.unbooked) == 1


async def test_a_session_does_not_wait_for_the_money_of_another_ones_call_that_is_over(sqlite: Database) -> None:
    async with (
        bench(sqlite, SAYS, with_rules=paid(tier=0.25, day=0.5)) as the,
        the.account() as one,
        the.account() as other,
    ):
        the.away.add("book")
        assert (await the.ask(one, max_tokens=MOST)).is_whole
        with anyio.fail_after(PATIENCE_SECONDS):
            assert (await the.ask(other, max_tokens=MOST)).is_whole
        assert one.unbooked == ()


async def test_what_is_owed_is_booked_when_the_database_is_back(sqlite: Database) -> None:
    async with bench(sqlite, SAYS, with_rules=RULES) as the, the.account() as account:
        the.away.add("book")
        assert (await the.ask(account, max_tokens=MOST)).is_whole
        [owed] = account.unbooked
        the.away.clear()
        await until(lambda: over(the) == [True])
        assert float(str(the.calls[0]["charged_usd"])) == pytest.approx(owed.charged_usd)
        assert Tokens.booked(the.calls) == Tokens.served(the.api.traffic)
        await until(lambda: account.unbooked == ())


async def test_what_is_owed_of_a_session_that_has_ended_is_booked_once(sqlite: Database) -> None:
    async with bench(sqlite, SAYS, with_rules=RULES) as the:
        the.away.add("book")
        async with the.account() as account:
            assert (await the.ask(account, max_tokens=MOST)).is_whole
        await the.store.queue.finish(ending(account.session, unbooked=account.unbooked), rules=RULES)
        before = the.calls
        the.away.clear()
        await until(lambda: the.meter.ledger.owed == ())
        assert the.calls == before
        assert over(the) == [True]


async def test_a_call_that_is_on_record_too_late_is_not_reserved_for_ever(sqlite: Database) -> None:
    now = Clock().now()
    async with opened(sqlite) as patient:
        await queued(patient, at=now)
        session = await claimed(patient, at=now, with_rules=RULES)
    assert session is not None
    store = open_store(sqlite.url, wait_seconds=0.5)
    try:
        begin = {"model": MODEL, "worst_usd": 0.386, "rules": RULES, "now": now}
        with sqlite.connect() as somebody:
            somebody.exec_driver_sql("BEGIN IMMEDIATE")
            with pytest.raises(DatabaseUnavailableError):
                await store.spending.begin_model_call(session, **begin)  # type: ignore[arg-type]
            somebody.rollback()
        await until(lambda: [row["ended_at"] is not None for row in sqlite.rows("model_calls")] == [True])
        [row] = sqlite.rows("model_calls")
        assert (row["charged_usd"], row["error"]) == (0, "never made")
    finally:
        await store.close()
    async with opened(sqlite) as patient:
        assert isinstance(await patient.spending.begin_model_call(session, **begin), AdmittedCall)  # type: ignore[arg-type]
