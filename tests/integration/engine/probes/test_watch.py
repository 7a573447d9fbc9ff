"""What is feared of the watch: a probe that is not looked at in time, a change that is lost, a chain too many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import anyio
import pytest

from claudeops.domain.probes.probe import HttpLook, Observation, PingVerb, Probe, ProbeState, Saw
from claudeops.domain.probes.record import StoredProbe, Stretch, Telling
from claudeops.engine.probes.declared import DeclaredNow
from claudeops.engine.probes.watch import ProbeWatch
from claudeops.logs import get_logger
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import heartbeat, probe
from support.store_values import OTHER_OWNER, OWNER, RULES, claimed, ending, report
from support.stores import Database, Row, opened
from support.told import ABOUT, chain_of
from support.waiting import PATIENCE_SECONDS
from support.watching import CountedStore, DeclaredByTest, Journey, Scripted


@dataclass
class Node:
    """A daemon's watch, its services and its database."""

    database: Database
    store: Store
    clock: Journey = field(default_factory=Journey)
    probes: CountedStore = field(init=False)
    alerts: Alerts = field(init=False)
    looker: Scripted = field(init=False)
    reading: DeclaredByTest = field(default_factory=DeclaredByTest)
    first: DeclaredNow = field(default_factory=DeclaredNow)  # beside the probes that a watch begins with
    queued: anyio.Event = field(default_factory=anyio.Event)
    never_decides: bool = False

    def __post_init__(self) -> None:
        self.looker = Scripted(self.clock)
        self.probes = CountedStore(self.store.probes, self.clock)
        self.alerts = cast("Alerts", CountedStore(self.store.alerts, self.clock))

    @asynccontextmanager
    async def watching(self, *probes: Probe, **changes: object) -> AsyncIterator[ProbeWatch]:
        """Run a watch for the length of a block."""
        self.reading.declared = replace(self.first, probes=(*self.first.probes, *probes))
        values: dict[str, object] = {
            "database": self.probes,
            "look": self.looker.look,
            "reading": self.reading,
            "rules": lambda: RULES,
            "alerts": self.alerts,
            "queued": self.wake,
            "owner": OWNER,
            "clock": self.clock,
            "log": get_logger(),
            "pause": self.clock.pause,
            **changes,
        }
        watch = ProbeWatch(**values)  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            await tasks.start(watch.run)
            tasks.start_soon(self._keep_ticking)
            tasks.start_soon(self._keep_deciding)
            yield watch
            tasks.cancel_scope.cancel()

    def wake(self) -> None:
        self.queued.set()

    async def _keep_deciding(self) -> None:
        """Decide about what waits, at the start and at each wake-up, as the daemon's own worker does."""
        while not self.never_decides:
            self.queued = anyio.Event()
            if not self.away:
                await self.alerts.decide(ABOUT, chain_of, now=self.clock.now())
            await self.queued.wait()

    @property
    def away(self) -> bool:
        return self.probes.is_away or cast("CountedStore", self.alerts).is_away

    @away.setter
    def away(self, is_away: bool) -> None:
        self.probes.is_away = cast("CountedStore", self.alerts).is_away = is_away

    @property
    def requests(self) -> list[Sequence[str]]:
        """Return the probes whose failures were queued together, oldest first."""
        return [names for names, *_ in cast("CountedStore", self.alerts).given("queue_failures")]

    async def _keep_ticking(self) -> None:
        """Have the alerts of what is up again be over, as the daemon's own worker does more often."""
        while True:
            await self.clock.sleep(30.0)
            if not self.away:
                await self.alerts.tick(ABOUT, chain_of, now=self.clock.now())

    async def ping(self, name: str) -> None:
        assert await self.store.probes.ping(name, PingVerb.SUCCESS, at=self.clock.now())

    async def end_chains(self) -> None:
        """Have every chain end."""
        while (session := await claimed(self.store, at=self.clock.now())) is not None:
            await self.store.queue.finish(ending(session, report(), ended_at=self.clock.now()), rules=RULES)

    async def kept(self, name: str) -> StoredProbe:
        return (await self.store.probes.kept())[name]

    async def state(self, name: str) -> ProbeState:
        return (await self.kept(name)).standing.state

    def chains(self) -> list[Row]:
        return self.database.rows("sessions")

    def tellings(self) -> list[Telling]:
        """Return what was written of changes, oldest first."""
        return [told for batch, *_ in self.probes.given("observed") for each in batch for told in each.tellings]

    def messages(self) -> list[str]:
        return [event.message for told in self.tellings() for event in (*told.events, *told.notes)]

    def stretches(self) -> list[Stretch]:
        return [stretch for (part,) in self.probes.given("add_history") for stretch in part]

    def looked(self, name: str) -> list[float]:
        """Return when a probe was looked at, in seconds after the first one."""
        return [round(at - 1_000.0, 3) for of, at in self.looker.looks if of == name]


@pytest.fixture
async def node(sqlite: Database) -> AsyncIterator[Node]:
    async with opened(sqlite) as store:
        yield Node(sqlite, store)


pytest_plugins = ("support.store_fixtures",)

QUICK = probe("web", interval=30.0, retry_interval=5.0, failures=2, successes=2)


# --- due times --------------------------------------------------------------------------------------------


async def test_a_probe_is_looked_at_in_its_interval_and_keeps_its_phase(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(125)
    assert node.looked("web") == [0.0, 30.0, 60.0, 90.0, 120.0]


async def test_after_a_failure_it_is_looked_at_sooner_until_it_is_settled(node: Node) -> None:
    async with node.watching(replace(QUICK, starts_chain=False)):
        await node.clock.travel(31)
        node.looker.down = {"web"}
        await node.clock.travel(70)
    assert node.looked("web") == [0.0, 30.0, 60.0, 65.0, 95.0]
    assert await node.state("web") is ProbeState.DOWN


@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.long)])
async def test_many_probes_do_not_begin_at_once_and_none_is_late(node: Node, count: int) -> None:
    probes = [probe(f"web-{number}") for number in range(count)]
    async with node.watching(*probes) as watch:
        await node.clock.travel(0.5)
        assert len(node.looker.looks) < 50
        await node.clock.travel(119.49)
        assert watch.lateness.quantile(1.0) == pytest.approx(0.0)
    counts = [len(node.looked(each.name)) for each in probes]
    assert set(counts) == {4}
    assert node.looker.most_under_way < 10


async def test_few_probes_begin_within_a_moment(node: Node) -> None:
    async with node.watching(*(probe(f"web-{number}", interval=3600.0, timeout=10.0) for number in range(10))):
        await node.clock.travel(1)
    assert len(node.looker.looks) == 10


async def test_looks_that_hang_cost_their_slots_and_no_more(node: Node) -> None:
    node.looker.hanging = {f"dead-{number}" for number in range(10)}
    dead = [probe(name, timeout=10.0) for name in sorted(node.looker.hanging)]
    async with node.watching(*dead, probe("web", interval=5.0, timeout=5.0), at_once=4) as watch:
        await node.clock.travel(290)
        assert node.looker.most_under_way == 4
        assert len(node.looked("web")) >= 10
        assert watch.lateness.quantile(1.0) > 1.0
        assert watch.lateness.late > 0


async def test_a_watch_stops_at_once_though_looks_hang(node: Node) -> None:
    node.looker.hanging = {"web"}
    with anyio.fail_after(PATIENCE_SECONDS):
        async with node.watching(probe("web")):
            await node.clock.travel(1)
            assert node.looker.under_way == 1
    assert node.looker.under_way == 0


async def test_a_probe_that_names_other_sites_by_now_is_left_to_them(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(61)
        node.reading.declared = replace(node.first, probes=(replace(QUICK, sites=("dock",), quorum=1),))
        await node.clock.travel(61)
        looks = len(node.looker.looks)
        await node.clock.travel(120)
        left = len(node.looker.looks)
        node.reading.declared = replace(node.first, probes=(replace(QUICK, sites=("main",), quorum=1),))
        await node.clock.travel(61)

        assert left == looks < len(node.looker.looks)
        assert await node.state("web") is ProbeState.UP


# --- what is written --------------------------------------------------------------------------------------


async def test_looks_that_change_nothing_are_written_together_every_few_seconds(node: Node) -> None:
    probes = [probe(f"web-{number}") for number in range(200)]
    async with node.watching(*probes):
        await node.clock.travel(60)  # all of them are known to be up
        before = len(node.probes.given("observed"))
        await node.clock.travel(60)
        assert len(node.probes.given("observed")) - before <= 13


async def test_a_change_is_written_at_once(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(31)
        node.looker.down = {"web"}
        await node.clock.travel(34.1)  # the second failure comes 65 s after the start
        assert await node.state("web") is ProbeState.DOWN
        assert node.messages() == ["web is down, by its probe web: connection refused"]


async def test_a_look_that_disagrees_is_on_record_at_once_so_that_no_round_is_left_out(node: Node) -> None:
    async with node.watching(replace(QUICK, failures=3)):
        await node.clock.travel(31)
        written = len(node.probes.given("observed"))
        node.looker.down = {"web"}
        await node.clock.travel(30)
        assert (await node.kept("web")).standing.failures == 1
        await node.clock.travel(0.5)
        assert len(node.probes.given("observed")) == written + 1


async def test_another_probe_of_the_same_name_is_heard_whatever_the_one_before_had_told(node: Node) -> None:
    async with node.watching(replace(QUICK, failures=1, successes=1)) as watch:
        for _ in range(3):
            node.looker.down ^= {"web"}
            await node.clock.travel(31)
        before = watch.watched.by_name["web"]
        node.reading.declared = DeclaredNow(probes=(heartbeat("web"),))
        await node.clock.travel(6)
        assert watch.watched._numbered >= before.standing.tellings > 0
        watch.watched._tell(watch.watched.by_name["web"], Telling(at=node.clock.now()))
        assert watch.watched.by_name["web"].standing.tellings > before.standing.tellings


async def test_what_was_seen_last_is_on_record_after_an_orderly_stop(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(30.5)
    assert (await node.kept("web")).standing.last_checked_at == node.clock.at - timedelta(seconds=0.5)
    assert [each.bucket.checks for each in node.stretches()] == [2]


async def test_history_is_written_when_a_stretch_is_over(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(299)
        assert node.stretches() == []
        await node.clock.travel(10)
        (first,) = node.stretches()
        assert (first.probe, first.bucket.checks, first.bucket.failures) == ("web", 10, 0)


async def test_a_database_that_is_away_costs_no_change_and_no_order(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(31)
        node.away = True
        node.looker.down = {"web"}
        await node.clock.travel(60)
        node.looker.down = set()
        await node.clock.travel(60)
        assert len(node.tellings()) == 1  # that it is up at all
        node.away = False
        await node.clock.travel(10)
    _, first, second = node.tellings()
    assert first.at < second.at
    assert "web is down" in first.events[0].message
    assert second.events == ()
    assert node.chains() == []  # it was over before anybody could be told


async def test_a_database_that_is_away_for_hours_costs_a_bounded_memory(node: Node) -> None:
    flip = {"up": True}

    def saw(_: Probe) -> Saw:
        flip["up"] = not flip["up"]
        return Saw.UP if flip["up"] else Saw.DOWN

    node.looker.saw = saw
    async with node.watching(replace(QUICK, failures=1, successes=1, interval=5.0, timeout=5.0)) as watch:
        node.away = True
        await node.clock.travel(1800)
        (watched,) = watch.watched
        assert len(watched.tellings) <= 20


# --- chains -----------------------------------------------------------------------------------------------


async def test_a_failure_starts_a_chain_with_the_facts_as_data(node: Node) -> None:
    async with node.watching(QUICK, probe("db")):
        await node.clock.travel(31)
        node.looker.down = {"web"}
        await node.clock.travel(34.1 + 3)
        (chain,) = node.chains()
    assert node.requests == [("web",)]
    assert (chain["trigger"], chain["tier"], chain["prompt_text"]) == ("alert", 1, None)
    assert "connection refused" in str(chain["context"])


async def test_what_fails_together_is_one_chain(node: Node) -> None:
    names = ("web", "shop", "mail")
    async with node.watching(*(replace(QUICK, name=name, service=name) for name in names)):
        await node.clock.travel(31)
        node.looker.down = set(names)
        await node.clock.travel(60)
        assert len(node.chains()) == 1
    assert [set(request) for request in node.requests] == [set(names)]


async def test_what_recovers_by_itself_in_time_starts_nothing_and_leaves_a_note(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(31)
        node.looker.down = {"web"}
        await node.clock.travel(34.1)  # down after 65 s
        assert await node.state("web") is ProbeState.DOWN
        node.looker.down = set()
        await node.clock.travel(60)
    assert node.chains() == []
    assert "recovered by itself; no session was started" in node.messages()[-1]


async def test_a_probe_that_starts_no_chain_starts_none(node: Node) -> None:
    async with node.watching(replace(QUICK, starts_chain=False)):
        node.looker.down = {"web"}
        await node.clock.travel(120)
    assert await node.state("web") is ProbeState.DOWN
    assert node.chains() == []


async def test_a_flapping_probe_starts_one_chain(node: Node) -> None:
    async with node.watching(replace(QUICK, interval=5.0, timeout=5.0)):
        for _ in range(60):
            node.looker.down = {"web"}
            await node.clock.travel(30)
            await node.end_chains()  # its chain has ended meanwhile, each time
            node.looker.down = set()
            await node.clock.travel(30)
    assert len(node.chains()) == 1
    assert any("is flapping" in message for message in node.messages())


async def test_a_service_that_fails_again_later_starts_another_chain(node: Node) -> None:
    async with node.watching(QUICK):
        for _ in range(2):
            node.looker.down = {"web"}
            await node.clock.travel(120)
            await node.end_chains()
            node.looker.down = set()
            await node.clock.travel(3600)
    assert len(node.chains()) == 2


async def test_a_service_that_fails_again_soon_and_stays_down_is_told_after_a_while(node: Node) -> None:
    async with node.watching(QUICK):
        node.looker.down = {"web"}
        await node.clock.travel(60)
        await node.end_chains()
        node.looker.down = set()
        await node.clock.travel(60)
        node.looker.down = {"web"}
        await node.clock.travel(120)
        assert len(node.chains()) == 1
        await node.clock.travel(15 * 60)
        assert len(node.chains()) == 2


async def test_a_daemon_that_dies_before_its_chain_leaves_it_to_the_next(node: Node) -> None:
    cast("CountedStore", node.alerts).is_away = True
    async with node.watching(QUICK):
        node.looker.down = {"web"}
        await node.clock.travel(60)
        assert await node.state("web") is ProbeState.DOWN
    node.away = False
    assert node.requests == []

    async with node.watching(QUICK, owner=OTHER_OWNER):
        await node.clock.travel(1)
        assert len(node.chains()) == 1
        await node.clock.travel(600)
    async with node.watching(QUICK):
        await node.clock.travel(600)
    assert len(node.chains()) == 1


async def test_a_daemon_that_dies_between_queue_and_decision_leaves_it_to_the_rows(node: Node) -> None:
    node.never_decides = True
    async with node.watching(QUICK):
        node.looker.down = {"web"}
        await node.clock.travel(60)
    assert (node.requests, node.chains()) == ([("web",)], [])
    # No watch, and nothing of the one before: the next decider has the rows alone.
    for _ in range(2):
        await Alerts(node.store.database).decide(ABOUT, chain_of, now=node.clock.now())
    assert len(node.chains()) == 1
    assert (await node.kept("web")).handled_state is ProbeState.DOWN


async def test_a_database_that_is_away_when_the_chain_is_due_gets_it_once(node: Node) -> None:
    async with node.watching(QUICK):
        node.looker.down = {"web"}
        await node.clock.travel(6)
        assert await node.state("web") is ProbeState.DOWN
        node.away = True
        await node.clock.travel(30)
        node.away = False
        await node.clock.travel(30)
    assert len(node.chains()) == 1


async def test_a_stop_in_the_middle_of_a_write_of_history_counts_nothing_twice(node: Node) -> None:
    node.probes.never_returns = "add_history"  # it is committed, and who has written it does not know yet
    async with node.watching(QUICK):
        await node.clock.travel(310)
        assert len(node.stretches()) == 1
    assert [each.bucket.checks for each in node.stretches()] == [10, 1]


# --- heartbeats -------------------------------------------------------------------------------------------


async def test_a_heartbeat_that_falls_silent_is_down_and_its_next_ping_brings_it_back(node: Node) -> None:
    beat = heartbeat("backup", every=60.0, failures=1, successes=1)
    async with node.watching(beat):
        for _ in range(3):
            await node.ping("backup")
            await node.clock.travel(60)
        assert await node.state("backup") is ProbeState.UP
        await node.clock.travel(60)
        assert await node.state("backup") is ProbeState.DOWN
        await node.ping("backup")
        await node.clock.travel(2)
        assert await node.state("backup") is ProbeState.UP
    assert node.looker.looks == []


async def test_what_could_not_be_heard_is_no_silence(node: Node) -> None:
    beat = heartbeat("backup", every=60.0, failures=1, successes=1)
    async with node.watching(beat):
        await node.ping("backup")
        await node.clock.travel(10)
        node.away = True
        await node.clock.travel(600)
        node.away = False
        await node.clock.travel(7)
        assert await node.state("backup") is ProbeState.UP
        await node.clock.travel(100)
        assert await node.state("backup") is ProbeState.DOWN


async def test_a_restart_makes_no_silent_heartbeat_well(node: Node) -> None:
    beat = heartbeat("backup", every=60.0, interval=5.0, timeout=5.0, failures=1, successes=1)
    async with node.watching(beat):
        await node.ping("backup")
        await node.clock.travel(120)
        assert await node.state("backup") is ProbeState.DOWN
    told = len(node.tellings())
    async with node.watching(beat):
        await node.clock.travel(300)
        assert await node.state("backup") is ProbeState.DOWN
    assert (len(node.tellings()), len(node.chains())) == (told, 1)


async def test_an_hour_without_a_daemon_is_nobodys_silence(node: Node) -> None:
    beat = heartbeat("backup", every=600.0, interval=5.0, timeout=5.0, failures=1, successes=1)
    async with node.watching(beat):
        await node.ping("backup")
        await node.clock.travel(120)
    await node.clock.travel(3600)
    async with node.watching(beat):
        await node.clock.travel(600)
        assert await node.state("backup") is ProbeState.UP
        await node.clock.travel(30)
        assert await node.state("backup") is ProbeState.DOWN


async def test_an_hour_without_a_daemon_makes_nothing_down_and_shows_nothing_up(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(1200)
    began = (await node.kept("web")).healthy_since
    await node.clock.travel(3600)
    async with node.watching(QUICK):
        await node.clock.travel(60)
    kept = await node.kept("web")
    assert kept.standing.state is ProbeState.UP
    assert began is not None
    assert kept.healthy_since is not None
    assert kept.healthy_since > began + timedelta(hours=1)
    assert len(node.tellings()) == 1


# --- what is declared -------------------------------------------------------------------------------------


async def test_a_new_declaration_is_watched_and_what_is_gone_is_not(node: Node) -> None:
    async with node.watching(QUICK, probe("old")):
        await node.clock.travel(31)
        node.reading.declared = DeclaredNow(probes=(QUICK, probe("new")))
        await node.clock.travel(60)
        assert set(await node.store.probes.kept()) == {"web", "new"}
        assert len(node.looked("new")) == 2
        assert max(node.looked("old")) < 40
    assert node.looked("web") == [0.0, 30.0, 60.0, 90.0]


async def test_an_edit_counts_at_once_however_far_the_next_look_is(node: Node) -> None:
    rare = replace(QUICK, interval=86400.0)
    async with node.watching(rare):
        await node.clock.travel(100)
        other = replace(rare, look=HttpLook(url="http://other.test/"))
        for count, edited in enumerate(((QUICK,), (other,), (other, probe("db"))), 2):
            node.reading.declared = DeclaredNow(probes=edited)
            await node.clock.travel(6)
            assert len(node.looked("web")) == min(count, 3)


async def test_what_manifests_declare_stays_on_record_until_they_can_be_read(node: Node) -> None:
    of_manifest = replace(QUICK, name="shop", service="shop")
    async with node.watching(QUICK, of_manifest):
        node.looker.down = {"shop"}
        await node.clock.travel(60)
    await node.end_chains()
    node.first = DeclaredNow(is_whole=False)
    async with node.watching(QUICK, probe("new")) as watch:
        await node.clock.travel(60)
        assert [each.probe.name for each in watch.watched] == ["web"]
        node.reading.declared = DeclaredNow(probes=(QUICK, probe("new"), of_manifest))
        await node.clock.travel(60)
        assert [each.probe.name for each in watch.watched] == ["web", "new", "shop"]
    assert len(node.chains()) == 1


async def test_a_wrong_edit_is_told_and_the_last_good_one_serves(node: Node) -> None:
    async with node.watching(QUICK):
        await node.clock.travel(1)
        for fault in ("line 3: no such kind", "line 3: no such kind", ""):
            node.reading.declared = DeclaredNow(probes=(QUICK,), fault=fault)
            await node.clock.travel(5)
    noted = [(event.message, named["over"]) for name, (event, *_), named in node.probes.calls if name == "note"]
    assert [over for _, over in noted] == [True, False, True]
    assert "line 3: no such kind" in noted[1][0]


# --- what its log says ------------------------------------------------------------------------------------


async def test_a_look_that_breaks_its_promise_to_end_is_left(node: Node) -> None:
    class Stuck(Scripted):
        async def look(self, probe: Probe) -> Observation:
            self.looks.append((probe.name, self.clock.monotonic()))
            await anyio.sleep_forever()
            raise AssertionError

    node.looker = Stuck(node.clock)
    quick = probe("web", timeout=0.0)
    async with node.watching(quick) as watch:
        await node.clock.travel(1)
        with anyio.fail_after(PATIENCE_SECONDS):
            (watched,) = watch.watched
            while watched.looking:
                await anyio.lowlevel.checkpoint()
        assert watched.standing.detail == "the look did not end in its time"
