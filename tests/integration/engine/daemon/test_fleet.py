"""What is wrong with a fleet is said once when it begins, once when it is over, and never while it lasts."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

import pytest

from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.commands import StopTarget
from claudeops.engine.daemon.fleet import FleetWatch
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after, queued, wanted
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio


class LaterClock(Clock):
    def __init__(self) -> None:
        self.at = after(minutes=10)

    def now(self) -> datetime:
        return self.at


@dataclass
class Fleet:
    store: Store
    database: Database
    logged: io.StringIO
    clock: LaterClock = field(default_factory=LaterClock)

    def watch(self) -> FleetWatch:
        """Return what looks for a node that has just taken the role."""
        return FleetWatch(
            database=self.store.database, events=self.store.probes, clock=self.clock, log=logs.get_logger()
        )

    async def has(self, **digests: str) -> None:
        """Have the second of two nodes decide by something."""
        await self.store.recovery.renew_lease(OWNER, now=NOW, digests={"probes": "one"})
        await self.store.recovery.renew_lease(OTHER_OWNER, now=NOW, digests=digests)

    def events(self) -> list[tuple[object, object, bool]]:
        rows = self.database.rows("events")
        return [(row["fingerprint"], row["count"], row["resolved_at"] is None) for row in rows]

    def lines(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.logged.getvalue().splitlines()]


@pytest.fixture
async def fleet(sqlite: Database) -> AsyncIterator[Fleet]:
    logged = io.StringIO()
    logs.configure(level="info", fmt="json", stream=logged, redact=str)
    async with opened(sqlite) as store:
        yield Fleet(store, sqlite, logged)


async def test_nodes_that_begin_to_differ_are_one_event_and_one_line_until_they_agree(fleet: Fleet) -> None:
    watch = fleet.watch()
    await fleet.has(probes="edited")
    await watch.look()
    assert fleet.events() == []  # the file may be on its way to the other machine

    for _ in range(3):
        await watch.look()

    assert fleet.events() == [("fleet:different", 1, True)]
    assert fleet.lines() == ["nodes_differ"]
    await fleet.has(probes="one")
    for _ in range(3):
        await watch.look()
    assert fleet.events() == [("fleet:different", 1, False)]
    assert fleet.lines() == ["nodes_differ", "nodes_agree"]


async def test_difference_that_passes_at_once_is_none(fleet: Fleet) -> None:
    watch = fleet.watch()
    for probes in ("edited", "one", "edited", "one"):
        await fleet.has(probes=probes)
        await watch.look()

    assert (fleet.events(), fleet.lines()) == ([], [])


async def test_node_that_takes_the_role_says_nothing_again_and_ends_what_is_over(fleet: Fleet) -> None:
    await fleet.has(probes="edited")
    for watch in (first := fleet.watch(), first, successor := fleet.watch(), successor):
        await watch.look()
    assert fleet.events() == [("fleet:different", 1, True)]

    await fleet.has(probes="one")
    await fleet.watch().look()

    assert fleet.events() == [("fleet:different", 1, False)]
    assert fleet.lines() == ["nodes_differ", "nodes_agree"]


async def test_sessions_without_a_node_are_one_event_of_their_site(fleet: Fleet) -> None:
    watch = fleet.watch()
    await fleet.has()
    await queued(fleet.store, wanted(site="north"))
    for _ in range(3):
        await watch.look()
    assert fleet.events() == [("fleet:unserved north", 1, True)]

    await fleet.store.recovery.renew_lease(replace(OTHER_OWNER, name="node-3", site="north"), now=NOW)
    await watch.look()

    assert fleet.events() == [("fleet:unserved north", 1, False)]
    assert fleet.lines() == ["site_unserved", "site_served"]


async def test_sessions_for_a_machine_without_a_node_are_one_event_of_it(fleet: Fleet) -> None:
    watch = fleet.watch()
    await fleet.has()
    waiting = await queued(fleet.store, wanted(for_node="loft"))
    for _ in range(3):
        await watch.look()
    assert fleet.events() == [("fleet:absent loft", 1, True)]

    await fleet.store.queue.end_queued(StopTarget(session_id=waiting.id), why="x", rules=RULES, now=NOW)
    await watch.look()

    assert fleet.events() == [("fleet:absent loft", 1, False)]
    assert fleet.lines() == ["node_absent", "node_present"]


async def test_death_of_a_node_is_left_as_it_is_until_it_is_forgotten(fleet: Fleet) -> None:
    watch = fleet.watch()
    for pid in (4712, 4812):  # it dies, comes back and dies again
        await fleet.has()
        await fleet.store.recovery.renew_lease(replace(OTHER_OWNER, name=f"node-{pid}", pid=pid), now=NOW)
        await fleet.store.recovery.reconcile(OWNER, now=NOW, alive=lambda owner: owner == OWNER, starts=False)
        for _ in range(2):
            await watch.look()
    assert fleet.events() == [("fleet:dead cellar", 1, False), ("fleet:dead cellar", 1, True)]

    fleet.clock.at = after(days=8)
    for _ in range(2):
        await watch.look()

    assert fleet.events() == [("fleet:dead cellar", 1, False), ("fleet:dead cellar", 1, False)]
    assert fleet.lines() == ["node_forgotten"]


async def test_node_that_starts_alone_ends_what_was_wrong_with_a_fleet(fleet: Fleet) -> None:
    watch = fleet.watch()
    await fleet.has(probes="edited")
    await watch.look()
    await watch.look()

    await fleet.store.recovery.reconcile(replace(OWNER, name="node-9", is_alone=True), now=NOW, alive=lambda _: False)

    assert fleet.events() == [("fleet:different", 1, False)]
