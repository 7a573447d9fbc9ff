"""Any store: rows whose numbers need more than 31 bits are written, read, listed, copied and removed as others are."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import pytest

from claudeops.domain.listing import Listing
from claudeops.domain.retention import Aged, cutoffs
from claudeops.domain.sessions import Session
from claudeops.domain.spending.budget import AdmittedCall, Budgets
from claudeops.domain.spending.tokens import CallState
from claudeops.store.copying.copy import copy_database
from claudeops.store.reading.calls_made import audit_links, of_the_model, of_tools
from claudeops.store.reading.services import checks
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.web.listings import Paged, cursor, listing
from support.store_values import NOW, RULES, after, allow, check, claimed, ending, queued, recorded, report
from support.stores import MIGRATIONS, Database, opened

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

LAST: Final = 2**31 - 1  # of 31 bits
MANY: Final = ("tool_calls", "model_calls", "service_checks", "budget_entries")
PAID: Final = replace(
    RULES,
    tiers=tuple(replace(tier, max_budget_usd=5) for tier in RULES.tiers),
    budgets=Budgets(chain_usd=100, day_usd=100),
)


def advance(database: Database) -> None:
    """Use up the numbers of 31 bits."""
    for name in MANY:
        if database.url.startswith("sqlite"):
            database.execute("DELETE FROM sqlite_sequence WHERE name = :name", name=name)
            database.execute("INSERT INTO sqlite_sequence VALUES (:name, :last)", name=name, last=LAST)
        else:
            database.execute("SELECT setval(CAST(:sequence AS regclass), :last)", sequence=f"{name}_id_seq", last=LAST)


async def one_of_each(store: Store, *, at: datetime = NOW) -> Session:
    """Run a session that calls a tool and the model, looks at a service and spends money."""
    await queued(store, at=at)
    session = await claimed(store, at=at, with_rules=PAID)
    assert session is not None
    await recorded(store, session, "toolu_1", allow(), at=at)
    call = await store.spending.begin_model_call(session, model="haiku", worst_usd=0.2, rules=PAID, now=at)
    assert isinstance(call, AdmittedCall)
    await store.spending.book_model_call(CallState(id=call.id, cost_usd=0.1, charged_usd=0.1, ended_at=at))
    await store.queue.finish(ending(session, report(check("web"))), rules=PAID)
    return session


def numbers(database: Database) -> dict[str, int]:
    """Return the largest number in each table."""
    return {name: max((int(str(row["id"])) for row in database.rows(name)), default=0) for name in MANY}


async def test_the_number_after_the_last_of_31_bits_is_given_and_read(database: Database) -> None:
    advance(database)
    async with opened(database) as store:
        session = await one_of_each(store)

        given = numbers(database)
        assert min(given.values()) > LAST, given
        assert (await store.audit.verify()).verified
        tools = await store.database.read(partial(of_tools, wanted=Listing(), session_id=session.id))
        model = await store.database.read(partial(of_the_model, wanted=Listing(), session_id=session.id))
        links = await store.database.read(partial(audit_links, wanted=Listing()))
        for entries in (tools.items, model.items, links.items):
            assert msgspec.json.decode(msgspec.json.encode(entries))[0]["call_id"] > LAST

        older = listing(Paged(before=cursor(given["tool_calls"] + 1) or ""), NOW)
        found = await store.database.read(partial(of_tools, wanted=older, session_id=session.id))
        assert [entry.call_id for entry in found.items] == [given["tool_calls"]]
        assert len((await store.database.read(partial(checks, wanted=Listing()))).items) == 1


async def test_rows_with_long_numbers_are_removed_when_they_are_old(database: Database) -> None:
    advance(database)
    async with opened(database) as store:
        await one_of_each(store)
        await one_of_each(store, at=after(days=1))  # the latest check of a service stays
        late = NOW + timedelta(days=400)
        for kind in (Aged.CHECKS, Aged.CHAINS):
            while (await store.retention.expire(kind, cutoffs(late, retention_days=30), now=late, rows=50)).more:
                pass

    assert (database.rows("tool_calls"), database.rows("model_calls")) == ([], [])
    assert len(database.rows("service_checks")) == 1


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
async def test_long_numbers_are_copied_and_the_copy_goes_on_behind_them(
    sqlite: Database, copy_target: Database
) -> None:
    advance(sqlite)
    async with opened(sqlite) as store:
        await one_of_each(store)

    done = copy_database(sqlite.url, copy_target.url, migrations_dir=MIGRATIONS, progress=lambda *_: None)

    assert done.differ == 0
    assert numbers(copy_target) == numbers(sqlite)
    before = numbers(copy_target)
    async with opened(copy_target) as store:
        await one_of_each(store, at=after(days=1))
    assert all(number > before[name] for name, number in numbers(copy_target).items())
    assert copy_target.rows("settled_sums")[0]["amount_usd"] == pytest.approx(0.1)
