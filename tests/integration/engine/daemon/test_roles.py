"""A role has one holder; whoever loses it, or only fears so, leaves its work alone, and writes nothing more of it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.owner import HOLD_SECONDS, LEASE_SECONDS, NOTICES, SCHEDULES, Lease
from claudeops.engine.daemon.roles import RENEW_SECONDS, FleetRole, Roles
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.leases import Leases
from claudeops.store.store import Store
from support.loop_time import loop_time
from support.store_values import OWNER
from support.stores import Database, opened
from support.waiting import until

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.dialect]

ENDED = "UPDATE leases SET ends_at = '2000-01-01 00:00:00.000000'"


@dataclass
class BootClock(Clock):
    """A machine whose time since its boot stands still until a test moves it."""

    passed: float = 100.0

    def since_boot(self) -> float:
        return self.passed


class LeasesOfTest(Leases):
    """Leases in a database that may be away."""

    def __init__(self, leases: Leases) -> None:
        self.__dict__ = leases.__dict__  # the fences of the store go by these terms
        self.away = False
        self.takes = 0

    async def take(
        self, names: Iterable[str], owner: str, *, seconds: float = LEASE_SECONDS, alone: bool = False
    ) -> Mapping[str, Lease]:
        if self.away:
            raise DatabaseUnavailableError("the database is away.")
        found = await super().take(names, owner, seconds=seconds, alone=alone)
        self.takes += 1
        return found


@dataclass
class Node:
    """A daemon as far as its roles go: a loop that writes under the schedules' term when it is stirred."""

    store: Store
    leases: LeasesOfTest
    roles: Roles
    clock: BootClock
    writes: int = 0
    loops: int = 0  # that run
    forgotten: int = 0
    stirred: anyio.Event = field(default_factory=anyio.Event)

    async def work(self) -> None:
        self.loops += 1
        fence = self.leases.fence(SCHEDULES)
        try:
            while True:
                await self.stirred.wait()
                self.stirred = anyio.Event()
                await self.store.database.write(fence)
                self.writes += 1
        finally:
            self.loops -= 1

    def forget(self) -> None:
        self.forgotten += 1


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


@asynccontextmanager
async def running_nodes(database: Database, count: int, **changes: object) -> AsyncIterator[list[Node]]:
    nodes = list[Node]()
    async with AsyncExitStack() as stack:
        for number in range(count):
            store, clock = await stack.enter_async_context(opened(database)), BootClock()
            leases = LeasesOfTest(store.leases)
            given = {"alone": False, "renew_seconds": 1e9, **changes}
            roles = Roles(leases=leases, owner=f"node-{number}", clock=clock, log=logs.get_logger(), **given)  # type: ignore[arg-type]
            node = Node(store=store, leases=leases, roles=roles, clock=clock)
            nodes.append(node)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for node in nodes:
            each = (FleetRole(name=SCHEDULES, loops=(node.work,), forget=node.forget), FleetRole(name=NOTICES))
            await tasks.start(node.roles.run, each)
        yield nodes
        tasks.cancel_scope.cancel()


async def test_each_role_has_one_holder_whoever_else_renews(database: Database, logged: io.StringIO) -> None:
    async with running_nodes(database, 3) as nodes:
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for node in nodes:
                    tasks.start_soon(node.roles.renew)

        assert sorted(name for node in nodes for name in node.roles.held()) == [NOTICES, SCHEDULES]
        assert sum(node.loops for node in nodes) == 1
    assert logged.getvalue().count('"role_taken"') <= 2


async def test_role_of_a_dead_node_is_taken_over_when_its_lease_is_over(database: Database) -> None:
    async with running_nodes(database, 2) as (dead, other):
        dead.leases.away = True
        await other.roles.renew()
        assert other.roles.held() == []

        database.execute(ENDED)
        await other.roles.renew()

        assert other.roles.held() == [NOTICES, SCHEDULES]
        await until(lambda: other.loops == 1)


async def test_node_that_was_stopped_writes_nothing_and_keeps_no_task(database: Database, logged: io.StringIO) -> None:
    async with running_nodes(database, 2) as (stopped, other):
        await until(lambda: stopped.loops == 1)
        database.execute(ENDED)
        await other.roles.renew()

        stopped.stirred.set()  # it goes on where it was, and has not looked at any clock

        await until(lambda: stopped.forgotten == 1)
        assert (stopped.writes, stopped.loops) == (0, 0)
        assert SCHEDULES not in stopped.roles.held()
        assert '"role_lost"' in logged.getvalue()
        await stopped.roles.renew()
        assert (stopped.roles.held(), other.roles.held()) == ([], [NOTICES, SCHEDULES])


async def test_node_that_slept_for_long_has_no_role_from_then_on(sqlite: Database) -> None:
    async with running_nodes(sqlite, 1) as (node,):
        await until(lambda: node.loops == 1)
        node.leases.away = True

        node.clock.passed += HOLD_SECONDS
        assert node.roles.held() == []  # before anything was done about it
        await node.roles.renew()

        await until(lambda: node.forgotten == 1)
        assert node.loops == 0
        with pytest.raises(BaseException, match="not this daemon's work"):
            await node.store.database.write(node.leases.fence(SCHEDULES))


async def test_roles_are_left_alone_in_time_although_nothing_comes_of_a_renewal(sqlite: Database) -> None:
    with loop_time() as passing:
        async with running_nodes(sqlite, 1) as (node,):
            await until(lambda: node.loops == 1)
            node.clock.passed += HOLD_SECONDS
            passing.leap(HOLD_SECONDS)

            await until(lambda: node.forgotten == 1)
            assert node.loops == 0


async def test_roles_are_renewed_whatever_the_sign_of_life_waits_for(sqlite: Database) -> None:
    with loop_time() as passing:
        async with running_nodes(sqlite, 1, renew_seconds=RENEW_SECONDS) as (node,):
            for _ in range(4):
                node.clock.passed += HOLD_SECONDS / 2
                takes = node.leases.takes
                passing.leap(HOLD_SECONDS / 2)
                await until(lambda takes=takes: node.leases.takes > takes)  # type: ignore[misc]

            assert node.roles.held() == [NOTICES, SCHEDULES]
            assert (node.loops, node.forgotten) == (1, 0)


async def test_renewal_counts_from_its_beginning(sqlite: Database) -> None:
    async with running_nodes(sqlite, 1) as (node,):

        async def slow(*given: object, **named: object) -> Mapping[str, Lease]:
            node.clock.passed += HOLD_SECONDS / 2
            return await Leases.take(node.leases, *given, **named)  # type: ignore[arg-type]

        node.leases.take = slow  # type: ignore[method-assign]
        await node.roles.renew()
        node.clock.passed += HOLD_SECONDS / 2

        assert node.roles.held() == []


async def test_node_whose_database_was_away_goes_on_where_no_other_was_faster(sqlite: Database) -> None:
    async with running_nodes(sqlite, 1) as (node,):
        await until(lambda: node.loops == 1)
        node.leases.away = True
        node.clock.passed += HOLD_SECONDS
        await node.roles.renew()
        await until(lambda: node.forgotten == 1)

        node.leases.away = False
        await node.roles.renew()
        await until(lambda: node.loops == 1)
        node.stirred.set()
        await until(lambda: node.writes == 1)


async def test_node_whose_clock_is_wrong_gives_its_roles_back(database: Database) -> None:
    right = [True]
    async with running_nodes(database, 2, may_hold=lambda: right[0]) as (wrong, other):
        await until(lambda: wrong.loops == 1)
        right[0] = False
        await wrong.roles.renew()
        await until(lambda: wrong.forgotten == 1)
        await until(lambda: not wrong.roles._held)
        right[0] = True

        await other.roles.renew()
        assert other.roles.held() == [NOTICES, SCHEDULES]


# --- a daemon that is the only one ------------------------------------------------------------------------


async def test_only_daemon_has_all_roles_at_once_whatever_a_dead_one_has_left(database: Database) -> None:
    async with opened(database) as store:
        await store.leases.take((SCHEDULES, NOTICES), "killed")

    async with running_nodes(database, 1, alone=True) as (node,):
        assert node.roles.held() == [NOTICES, SCHEDULES]
        node.stirred.set()
        await until(lambda: node.writes == 1)


async def test_only_daemon_renews_nothing_and_loses_nothing_while_the_database_is_away(sqlite: Database) -> None:
    async with running_nodes(sqlite, 1, alone=True) as (node,):
        await until(lambda: node.loops == 1)
        for _ in range(5):
            await node.roles.renew()
        assert node.leases.takes == 1

        node.leases.away = True
        node.clock.passed += 1_000 * LEASE_SECONDS
        await node.roles.renew()

        assert node.roles.held() == [NOTICES, SCHEDULES]
        assert (node.loops, node.forgotten) == (1, 0)


async def test_only_daemon_that_finds_anothers_term_begins_anew(sqlite: Database) -> None:
    async with running_nodes(sqlite, 1, alone=True) as (node,):
        await until(lambda: node.loops == 1)
        sqlite.execute("UPDATE leases SET owner = 'other', term = term + 1")
        node.stirred.set()
        await until(lambda: node.forgotten == 1)
        assert node.writes == 0

        await node.roles.renew()  # the lock is its own again
        await until(lambda: node.loops == 1)
        node.stirred.set()
        await until(lambda: node.writes == 1)


async def test_daemon_that_starts_while_the_database_is_away_takes_its_roles_later(sqlite: Database) -> None:
    async with running_nodes(sqlite, 1, alone=True) as (node,):
        assert node.roles.held()
    async with opened(sqlite) as store, anyio.create_task_group() as tasks:
        leases = LeasesOfTest(store.leases)
        leases.away = True
        roles = Roles(leases=leases, owner="late", clock=BootClock(), log=logs.get_logger(), alone=True)
        await tasks.start(roles.run, (FleetRole(name=SCHEDULES),))
        assert roles.held() == []

        leases.away = False
        await roles.renew()
        assert roles.held() == [SCHEDULES]
        tasks.cancel_scope.cancel()


async def test_stop_waits_for_a_renewal_that_would_end_after_the_departure(sqlite: Database) -> None:
    begun, goes_on, ends = anyio.Event(), anyio.Event(), list[str]()
    async with opened(sqlite) as store:
        leases = LeasesOfTest(store.leases)
        roles = Roles(leases=leases, owner="node", clock=BootClock(), log=logs.get_logger(), alone=False)

        async def slow(*given: object, **named: object) -> Mapping[str, Lease]:
            begun.set()
            await goes_on.wait()
            found = await Leases.take(leases, *given, **named)  # type: ignore[arg-type]
            ends.append("renewal")
            return found

        async def run() -> None:
            try:
                await roles.run([FleetRole(name=SCHEDULES)])
            finally:
                ends.append("daemon")

        leases.take = slow  # type: ignore[method-assign]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await begun.wait()
            tasks.cancel_scope.cancel()
            goes_on.set()

    assert ends == ["renewal", "daemon"]


async def test_daemon_that_stops_leaves_no_lease(database: Database) -> None:
    async with opened(database) as store:
        await store.leases.take((SCHEDULES, NOTICES), OWNER.name)
        await store.recovery.depart(OWNER)

        assert await store.leases.holders() == {}
