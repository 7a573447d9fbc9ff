"""What is feared of two sites on one database: a chain for what one of them cannot reach, two, or one by hearsay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, cast

import anyio
import pytest

from claudeops.domain.estate.estate import NO_ESTATE
from claudeops.domain.owner import Owner
from claudeops.domain.probes.dependencies import dependencies_of
from claudeops.domain.probes.probe import ProbeState
from claudeops.engine.probes.declared import DeclaredNow
from claudeops.engine.probes.watch import ProbeWatch
from claudeops.logs import get_logger
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import probe
from support.store_values import OTHER_OWNER, OWNER, RULES
from support.stores import Database, Row, opened
from support.told import ABOUT, chain_of
from support.watching import CountedStore, DeclaredByTest, Journey, Scripted

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.xdist_group("postgres")]

SHOP: Final = probe("shop", sites=("main", "dock"), quorum=2, failures=2)
"""Two sites look, and both must see it down."""
CART: Final = probe("cart", depends_on=("shop",))
"""Of the third site alone."""
CRANE: Final = replace(OTHER_OWNER, node="crane", site="dock")
TREE: Final = replace(OTHER_OWNER, name="node-3", node="tree", site="wood")


@dataclass
class Site:
    """A daemon's watch at a site, and what is reachable from there."""

    store: Store
    owner: Owner
    clock: Journey
    looker: Scripted = field(init=False)
    probes: CountedStore = field(init=False)
    alerts: CountedStore = field(init=False)
    _leave: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def __post_init__(self) -> None:
        self.looker = Scripted(self.clock)
        self.probes = CountedStore(self.store.probes, self.clock)
        self.alerts = CountedStore(self.store.alerts, self.clock)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Register the daemon and watch until it leaves."""
        await self.store.recovery.reconcile(self.owner, now=self.clock.now(), alive=lambda _: True)
        probes = (SHOP, CART) if self.owner is TREE else (SHOP,)
        declared = DeclaredNow(probes=probes, dependencies=dependencies_of(probes, NO_ESTATE))
        watch = ProbeWatch(
            database=self.probes,  # type: ignore[arg-type]  # the same calls
            look=self.looker.look,
            reading=DeclaredByTest(declared=declared),
            rules=lambda: RULES,
            alerts=cast("Alerts", self.alerts),
            queued=lambda: None,
            owner=self.owner,
            clock=self.clock,
            log=get_logger(),
            pause=self.clock.pause,
        )
        with self._leave:
            await watch.run(task_status=task_status)

    def die(self) -> None:
        self._leave.cancel()


@dataclass
class Fleet:
    """Sites that share a database, and time."""

    database: Database
    clock: Journey
    begin: Callable[[Owner], Awaitable[Site]]
    main: Site
    dock: Site
    wood: Site  # it declares the probe, which does not name it, and what depends on it

    async def state(self) -> ProbeState:
        return (await self.main.store.probes.kept())["shop"].standing.state

    def told(self) -> list[object]:
        return [row["message"] for row in self.database.rows("events")]

    async def travel(self, seconds: float) -> list[Row]:
        """Let time pass, and decide about what has failed; return the sessions that there are."""
        await self.clock.travel(seconds)
        while await self.main.alerts.decide(ABOUT, chain_of, now=self.clock.now()) is not None:
            pass
        return self.database.rows("sessions")


@pytest.fixture
async def fleet(postgresql: Database) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        clock = Journey()

        async def begin(owner: Owner) -> Site:
            site = Site(await stack.enter_async_context(opened(postgresql)), owner, clock)
            await tasks.start(site.run)
            return site

        yield Fleet(postgresql, clock, begin, *[await begin(owner) for owner in (OWNER, CRANE, TREE)])
        tasks.cancel_scope.cancel()


async def test_one_site_starts_nothing_nor_does_a_dead_one_with_it_and_two_start_one_chain(fleet: Fleet) -> None:
    await fleet.travel(40)
    fleet.dock.looker.down = {"shop"}
    alone = (await fleet.travel(120), await fleet.state())
    fleet.dock.die()  # its last word is that it is down
    await fleet.travel(200)
    fleet.main.looker.down = {"shop"}
    hearsay = (await fleet.travel(200), await fleet.state(), fleet.told())
    winch = await fleet.begin(replace(CRANE, name="node-4", node="winch"))  # the next one of the site
    winch.looker.down = {"shop"}
    both = (await fleet.travel(60), await fleet.state(), fleet.told())
    fleet.wood.looker.down = {"cart"}
    later = await fleet.travel(120)
    cart = (await fleet.wood.store.probes.kept())["cart"].standing

    assert alone == ([], ProbeState.UP)
    assert hearsay[:2] == ([], ProbeState.UNKNOWN)
    (blind,) = hearsay[2]
    assert str(blind).startswith("nothing is known of shop any more, by its probe shop: down at main, not known at")
    (session,), state, told = both
    assert (session["site"], state, len(told)) == ("main", ProbeState.DOWN, 2)
    assert "down at main, dock" in str(session["context"])
    assert [row["id"] for row in later] == [session["id"]]
    assert (cart.state, cart.explained_by) == (ProbeState.DOWN, "shop")  # known there by its row alone
    assert {name for name, _ in fleet.wood.looker.looks} == {"cart"}
