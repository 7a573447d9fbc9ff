"""Any store: each of the closed set of decisions is on record with its reason, and only those that should start chains.

Each case is played through the store as the desk of a daemon would, and looked at in the rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pytest
from sqlalchemy import insert

from claudeops.domain.alerts.alert import Alert, AlertDecision, SenderBody, Silence, Unparsed
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.rules import AlertSource, FlapRules, Grouping, Heartbeat, InhibitRule, Rules, SenderKind
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.events import EventLevel
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.probes.dependencies import connected
from claudeops.domain.sessions import Handover, NewSession, Trigger
from claudeops.store.store import Store
from claudeops.store.tables.sessions import cooldown_actions
from support.alerts import AT_ONCE, SOURCE, alert, bring, over, rules_of
from support.store_values import NOW, RULES, after, started, wanted
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)


ABOUT: Final = AlertFiles(alerts=rules_of(), escalation=RULES)


@dataclass
class World:
    """A store, and the rules by which it decides."""

    store: Store
    database: Database
    about: AlertFiles = ABOUT
    bodies: int = 0

    def rule(self, rules: Rules) -> None:
        self.about = AlertFiles(alerts=rules, escalation=RULES)

    async def say(self, *alerts: Alert, minutes: float = 0, group: str = "g") -> None:
        self.bodies += 1
        said = SenderBody(source=SOURCE, key=f"body {self.bodies}", alerts=alerts, group_key=group)
        await self.take(ReceivedBody(content=said, received_at=after(minutes=minutes)), minutes)

    async def take(self, posted: ReceivedBody, minutes: float = 0) -> None:
        await bring(self.store.alerts, [posted], self.about, chain_of, now=after(minutes=minutes))

    async def tick(self, minutes: float) -> None:
        await self.store.alerts.tick(self.about, chain_of, now=after(minutes=minutes))

    async def hold(self, kind: HoldKind, reason: str, by: str | None = None) -> None:
        await self.store.holds.hold(Hold(kind=kind, reason=reason, by=by, since=NOW), now=NOW)

    async def acted(self, *actions: tuple[str, float]) -> None:
        """Note what a session has done to the shop, so many minutes ago."""
        session = await started(self.store, at=after(hours=-1))
        for number, (kind, ago) in enumerate(actions):
            row = {"session_id": session.id, "tool_use_id": f"toolu_{number}", "service": "shop", "tier": 2}
            values = {**row, "action_type": kind, "timestamp": after(minutes=-ago), "success": True}
            with self.database.connect() as connection:
                connection.execute(insert(cooldown_actions).values(values))
                connection.commit()

    def reasons(self) -> list[tuple[str, str]]:
        return [(str(row["decision"]), str(row["because"])) for row in self.database.rows("alert_decisions")]

    def chains(self) -> int:
        return sum(row["trigger"] == Trigger.ALERT.value for row in self.database.rows("sessions"))


def chain_of(tier: int, told: Handover) -> NewSession:
    return wanted(tier, trigger=Trigger.ALERT, context=told)


@pytest.fixture
def world(store: Store, database: Database) -> World:
    return World(store, database)


# --- one case for each ------------------------------------------------------------------------------------


async def is_started(world: World) -> None:
    await world.say(alert())


async def is_joined(world: World) -> None:
    await world.say(alert())
    await world.say(alert("Slow"), minutes=1, group="h")


async def is_grouped(world: World) -> None:
    world.rule(rules_of(Grouping(wait=timedelta(seconds=30))))
    await world.say(alert(), group="")


async def is_duplicate(world: World) -> None:
    await world.say(alert())
    await world.say(alert(), minutes=1)


async def is_silenced(world: World) -> None:
    end = after(minutes=30)
    matchers = read_matchers(['service="shop"'])
    silence = Silence(id=0, matchers=matchers, starts_at=NOW, ends_at=end, created_by="alice", comment="moving")
    await world.store.silences.add(silence)
    await world.say(alert(), minutes=1)


async def is_inhibited(world: World) -> None:
    rule = InhibitRule(source=read_matchers(["alertname=ClusterDown"]), target=read_matchers(["alertname=Down"]))
    world.rule(rules_of(inhibit=(rule,)))
    await world.say(alert("ClusterDown", "cluster", severity=EventLevel.INFO), alert())


async def is_flapping(world: World) -> None:
    world.rule(rules_of(flapping=FlapRules(changes=4)))
    await world.say(alert(), minutes=0)
    await world.say(over(), minutes=3)
    await world.say(alert(), minutes=6)
    await world.say(over(), minutes=9)
    await world.say(alert(), minutes=12)


async def is_below_severity(world: World) -> None:
    await world.say(alert(severity=EventLevel.INFO))


async def is_cooling(world: World) -> None:
    await world.acted(("restart", 30), ("restart", 40), ("redeployment", 50))
    await world.say(alert())


async def is_out_of_money(world: World) -> None:
    await world.hold(HoldKind.BUDGET, "the budget of the day is spent")
    await world.say(alert())


async def is_paused(world: World) -> None:
    await world.hold(HoldKind.PAUSED, "moving racks", by="alice")
    await world.say(alert())


async def is_resolved_first(world: World) -> None:
    await world.say(over())


async def is_self_inflicted(world: World) -> None:
    await world.acted(("restart", 0.3))
    await world.say(alert())


async def is_watchdog(world: World) -> None:
    beat = Heartbeat(name="prometheus", matchers=read_matchers(["alertname=Watchdog"]), every=timedelta(minutes=5))
    world.rule(rules_of(heartbeats=(beat,)))
    await world.say(alert("Watchdog"))


async def is_unparsed(world: World) -> None:
    unread = Unparsed(source=SOURCE, key="x", why="it is not JSON")
    await world.take(ReceivedBody(content=unread, received_at=NOW, raw="<html>"))


async def is_stale(world: World) -> None:
    source = AlertSource(name=SOURCE, kind=SenderKind.ALERTMANAGER, grouping=AT_ONCE, stale_after=timedelta(hours=1))
    world.rule(rules_of(sources=(source,)))
    await world.say(alert())
    await world.tick(61)


CASES: Final[dict[AlertDecision, tuple[Callable[[World], Awaitable[None]], str, int]]] = {
    AlertDecision.STARTED: (is_started, "a chain starts at tier 1: incident 1", 1),
    AlertDecision.JOINED: (is_joined, "the chain of session 1 is on it", 1),
    AlertDecision.GROUPED: (is_grouped, "it waits until 2026-03-01 12:00:30 UTC for others of its group", 0),
    AlertDecision.DUPLICATE: (is_duplicate, "a chain was started for it", 1),
    AlertDecision.SILENCED: (is_silenced, "alice has silenced it until 2026-03-01 12:30:00 UTC: moving", 0),
    AlertDecision.INHIBITED: (is_inhibited, "ClusterDown", 0),
    AlertDecision.FLAPPING: (is_flapping, "it has changed 4 times lately", 1),
    AlertDecision.BELOW_SEVERITY: (is_below_severity, "its severity info is below warning", 0),
    AlertDecision.COOLDOWN: (is_cooling, "shop", 0),
    AlertDecision.BUDGET: (is_out_of_money, "the budget of the day is spent", 0),
    AlertDecision.PAUSED: (is_paused, "alice has paused the daemon: moving racks", 0),
    AlertDecision.RESOLVED_FIRST: (is_resolved_first, "nobody had said that it fires", 0),
    AlertDecision.SELF_INFLICTED: (is_self_inflicted, "after our restart of shop, which may have caused it", 0),
    AlertDecision.WATCHDOG: (is_watchdog, "it is the sign of life of the heartbeat prometheus", 0),
    AlertDecision.UNPARSED: (is_unparsed, "the body could not be read: it is not JSON", 0),
    AlertDecision.STALE: (is_stale, "its source has not repeated it for", 1),
}


def test_there_is_a_case_for_every_decision() -> None:
    assert set(CASES) == set(AlertDecision)


@pytest.mark.parametrize("decision", AlertDecision)
async def test_every_decision_is_on_record_with_its_reason_and_starts_no_more_than_it_should(
    world: World, decision: AlertDecision
) -> None:
    play, because, chains = CASES[decision]
    await play(world)

    last, reason = world.reasons()[-1]
    assert (last, because in reason) == (decision.value, True), reason
    assert world.chains() == chains


# --- what holds beyond one row ----------------------------------------------------------------------------


@pytest.mark.dialect
async def test_a_flap_survives_its_resolve_and_a_new_daemon_and_is_told_when_it_is_quiet(world: World) -> None:
    await is_flapping(world)
    first = world.chains()
    await world.say(over(), minutes=13)
    async with opened(world.database) as store:
        other = World(store, world.database, world.about, bodies=10)
        await other.say(alert(), minutes=14)
        assert other.reasons()[-1][0] == "flapping"
        await other.tick(28)
        assert other.chains() == first
        await other.tick(30)

    assert world.reasons()[-1][0] in {"started", "joined"}


async def test_what_depends_on_a_broken_service_is_inhibited_in_any_order(world: World) -> None:
    edges = connected({"shop": ["db"], "db": []})
    world.about = AlertFiles(alerts=rules_of(), escalation=RULES, dependencies=edges)
    await world.say(alert(), group="a")
    await world.say(alert("Down", "db"), group="b", minutes=0.01)
    await world.tick(1)

    by_decision = {str(row["decision"]) for row in world.database.rows("alerts") if row["service"] == "shop"}
    assert by_decision == {"inhibited"}
    assert world.chains() == 1


async def test_a_blip_of_our_own_restart_is_marked_and_told_if_it_does_not_end(world: World) -> None:
    await is_self_inflicted(world)
    await world.tick(1)
    assert world.chains() == 0

    await world.tick(2)
    assert [decision for decision, _ in world.reasons()] == ["self_inflicted", "started"]
    assert world.chains() == 1
