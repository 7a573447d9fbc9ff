"""Leases: one owner at a time, by the database's clock, and nothing is written under a term that is over."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa

from claudeops.domain.owner import ALERTS, NOTICES, SCHEDULES, Lease, service_lease
from claudeops.errors import StaleTermError
from claudeops.store import leases
from claudeops.store.store import Store
from support.store_values import NOW, after, queued
from support.stores import POSTGRES, Database, opened
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

ONE, OTHER = "a" * 32, "b" * 32
OVER = 0.0  # seconds: a lease that ends as it begins
WAITS = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


async def taken(store: Store, owner: str, *names: str, seconds: float = 15.0) -> Mapping[str, Lease]:
    return await store.leases.take(names or (SCHEDULES,), owner, seconds=seconds)


async def test_lease_that_is_held_is_not_given_to_another(store: Store) -> None:
    mine = await taken(store, ONE)

    assert mine == {SCHEDULES: Lease(name=SCHEDULES, owner=ONE, term=1)}
    assert await taken(store, OTHER) == {}
    assert await store.leases.holders() == mine


async def test_renewal_keeps_the_term_and_takes_nothing_of_others(store: Store) -> None:
    await taken(store, OTHER, NOTICES)
    first = await taken(store, ONE, SCHEDULES, ALERTS)
    second = await taken(store, ONE, SCHEDULES, NOTICES, ALERTS)

    assert second == first
    assert set(second) == {ALERTS, SCHEDULES}


async def test_lease_that_has_ended_goes_to_another_under_a_new_term(store: Store) -> None:
    mine = (await taken(store, ONE, seconds=OVER))[SCHEDULES]
    theirs = (await taken(store, OTHER))[SCHEDULES]

    assert theirs == Lease(name=SCHEDULES, owner=OTHER, term=mine.term + 1)
    assert await taken(store, ONE) == {}


async def test_owner_who_renews_too_late_goes_on_where_no_other_was_faster(store: Store) -> None:
    mine = await taken(store, ONE, seconds=OVER)

    assert await taken(store, ONE) == mine


async def test_lease_that_is_given_back_is_free_at_once_and_its_term_is_over(store: Store) -> None:
    mine = await taken(store, ONE)
    await store.leases.give_back(mine.values())

    assert await store.leases.holders() == {}
    with pytest.raises(StaleTermError):
        await store.database.write(lambda connection: leases.check(connection, mine[SCHEDULES]))
    again = (await taken(store, ONE))[SCHEDULES]
    assert again.term == mine[SCHEDULES].term + 1


async def test_lease_of_another_is_not_given_back(store: Store) -> None:
    mine = await taken(store, ONE, seconds=OVER)
    theirs = await taken(store, OTHER)
    await store.leases.give_back(mine.values())

    assert await store.leases.holders() == theirs


async def test_only_daemon_takes_what_a_dead_one_has_left(store: Store) -> None:
    await taken(store, ONE, SCHEDULES, NOTICES)

    mine = await store.leases.take((SCHEDULES, NOTICES), OTHER, alone=True)

    assert {lease.term for lease in mine.values()} == {2}


async def test_write_under_a_term_that_is_over_leaves_nothing(store: Store, database: Database) -> None:
    mine = (await taken(store, ONE, seconds=OVER))[SCHEDULES]
    await taken(store, OTHER)
    await queued(store)

    def write(connection: sa.Connection) -> None:
        connection.exec_driver_sql("DELETE FROM sessions WHERE id = 1")
        leases.check(connection, mine)

    with pytest.raises(StaleTermError, match="schedules"):
        await store.database.write(write)
    assert len(database.rows("sessions")) == 1


async def test_write_under_a_lease_that_has_ended_is_in_order_until_another_takes_it(store: Store) -> None:
    mine = (await taken(store, ONE, seconds=OVER))[SCHEDULES]

    await store.database.write(lambda connection: leases.check(connection, mine))


async def test_chain_takes_a_service_within_the_transaction_of_its_verdict(store: Store) -> None:
    name = service_lease("web")

    def take(connection: sa.Connection, chain: int, *, hours: float = 0) -> Mapping[str, Lease]:
        return leases.take(connection, (name,), str(chain), now=after(hours=hours), seconds=60)

    mine = await store.database.write(lambda connection: take(connection, 1))
    assert await store.database.write(lambda connection: take(connection, 2)) == {}
    assert await store.database.write(lambda connection: leases.give_back(connection, mine[name], now=NOW))
    assert (await store.database.write(lambda connection: take(connection, 2)))[name].term == 2


async def test_name_that_is_too_long_for_its_column_is_one_lease_under_its_own_name(store: Store) -> None:
    name = service_lease("x" * 300)

    (lease,) = (await taken(store, ONE, name)).values()

    assert lease.name == name
    assert await taken(store, OTHER, name) == {}
    await store.database.write(lambda connection: leases.check(connection, lease))


async def test_two_owners_who_race_do_not_both_win(database: Database) -> None:
    won: list[tuple[str, Lease]] = []
    async with opened(database) as one, opened(database) as other:

        async def race(store: Store, owner: str) -> None:
            won.extend((owner, lease) for lease in (await taken(store, owner, ALERTS, NOTICES, SCHEDULES)).values())

        for _ in range(20):
            before = len(won)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(race, one, ONE)
                tasks.start_soon(race, other, OTHER)
            found = won[before:]
            assert sorted(lease.name for _, lease in found) == [ALERTS, NOTICES, SCHEDULES]
            await one.leases.give_back(lease for _, lease in found)

    terms = [(lease.name, lease.term) for _, lease in won]
    assert len(set(terms)) == len(terms) == 60  # no term has two owners


@pytest.mark.parametrize("postgresql", [pytest.param(None, marks=POSTGRES)], indirect=True)
async def test_take_over_waits_for_the_transaction_that_has_checked(postgresql: Database) -> None:
    checked, go_on = threading.Event(), threading.Event()
    async with opened(postgresql) as one, opened(postgresql) as other:
        mine = (await taken(one, ONE, seconds=OVER))[SCHEDULES]

        def write(connection: sa.Connection) -> None:
            leases.check(connection, mine)
            checked.set()
            assert go_on.wait(PATIENCE_SECONDS)
            assert connection.scalar(sa.text("SELECT owner FROM leases")) == ONE

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.database.write, write)
            await anyio.to_thread.run_sync(checked.wait, PATIENCE_SECONDS)
            tasks.start_soon(taken, other, OTHER)
            with postgresql.connect().execution_options(isolation_level="AUTOCOMMIT") as looking:
                await until(lambda: looking.scalar(WAITS) == 1)
            go_on.set()

        assert (await other.leases.holders())[SCHEDULES].owner == OTHER
        with pytest.raises(StaleTermError):
            await one.database.write(lambda connection: leases.check(connection, mine))


@pytest.mark.parametrize("postgresql", [pytest.param(None, marks=POSTGRES)], indirect=True)
async def test_lease_does_not_wait_for_the_turn_of_a_writer(postgresql: Database) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def stand_still(_: sa.Connection) -> None:
        inside.set()
        assert go_on.wait(PATIENCE_SECONDS)

    async with opened(postgresql) as stuck, opened(postgresql) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(stuck.database.write, stand_still)
        await anyio.to_thread.run_sync(inside.wait, PATIENCE_SECONDS)
        assert set(await taken(other, OTHER)) == {SCHEDULES}
        assert set(await taken(stuck, ONE, NOTICES)) == {NOTICES}
        go_on.set()


@pytest.mark.parametrize("postgresql", [pytest.param(None, marks=POSTGRES)], indirect=True)
async def test_end_of_a_lease_is_judged_by_the_servers_clock(postgresql: Database) -> None:
    async with opened(postgresql) as store:  # its own clock stands still, far from the server's
        await taken(store, ONE)

    with postgresql.connect() as connection:
        left = connection.scalar(sa.text("SELECT extract(epoch FROM ends_at - now()) FROM leases"))
    assert left is not None
    assert 0 < left <= 15
