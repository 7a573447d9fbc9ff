"""Ten thousand alerts within minutes, through the desk and SQLite: all are decided about, and sessions stay few."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

import anyio
import pytest

from claudeops.clock import Clock
from claudeops.domain.alerts.alert import Silence
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.rules import AlertSource, InhibitRule, Rules, SenderKind
from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies, connected
from claudeops.domain.sessions import Handover, NewSession, Trigger
from claudeops.engine.alerts.worker import AlertWorker
from claudeops.logs import get_logger
from claudeops.store.store import Store
from support.store_values import NOW, RULES, wanted
from support.stores import Database
from support.waiting import until

pytest_plugins = ("support.store_fixtures",)

SERVICES: Final = 200
FEW: Final = 600
MANY: Final = 10_000
MOST_SESSIONS: Final = 5
STEP: Final = timedelta(seconds=2)
EVERYTHING: Final = read_matchers(['source="am"'])
BELOW: Final = connected({**{f"s{number}": ["core"] for number in range(SERVICES)}, "core": []})

Message = dict[str, object]
T = TypeVar("T")


@dataclass
class SetClock(Clock):
    """A clock that a test sets; the other one stands still with it, so that the desk ticks when told to."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - NOW).total_seconds()


@dataclass
class World:
    store: Store
    database: Database
    rules: Rules = field(default_factory=lambda: Rules(sources=(AlertSource(name="am", kind=SenderKind.ALERTMANAGER),)))
    dependencies: Dependencies = NO_DEPENDENCIES
    clock: SetClock = field(default_factory=SetClock)

    @asynccontextmanager
    async def desk(self) -> AsyncIterator[AlertWorker]:
        async def announce() -> None:
            pass

        async def dependencies() -> Dependencies:
            return self.dependencies

        def chain(tier: int, told: Handover) -> NewSession:
            return wanted(tier, trigger=Trigger.ALERT, context=told)

        desk = AlertWorker(
            alerts=self.store.alerts,
            probes=self.store.probes,
            read_rules=lambda: self.rules,
            escalation=lambda: RULES,
            dependencies=dependencies,
            new_chain=chain,
            redact=str,
            announce=announce,
            clock=self.clock,
            log=get_logger(),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.keep_writing)
            tasks.start_soon(desk.keep_deciding)
            yield desk
            tasks.cancel_scope.cancel()

    async def storm(self, desk: AlertWorker, bodies: Sequence[bytes], lasts: timedelta) -> None:
        """Bring bodies in within a time, several at once, and let the desk look at the clock every two seconds."""
        rounds = max(1, int(lasts / STEP))
        for some in parts(bodies, -(-len(bodies) // rounds)):
            self.clock.at += STEP
            async with anyio.create_task_group() as posts:
                for each in some:
                    posts.start_soon(self._post, desk, each)
            await until(lambda: not self.database.rows("alert_queue"))
            await desk.tick()

    async def _post(self, desk: AlertWorker, content: bytes) -> None:
        await desk.take("am", content, {}, self.clock.now(), query={})

    def decided(self) -> Counter[str]:
        return Counter(str(row["decision"]) for row in self.database.rows("alert_decisions"))

    def chains(self) -> list[str]:
        """Return what the sessions are about."""
        return [str(row["service"]) for row in self.database.rows("incidents") if row["root_session_id"] is not None]


@pytest.fixture
def world(store: Store, database: Database) -> World:
    return World(store, database)


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


def parts(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(things), max(1, size)):
        yield things[first : first + size]


def message(name: str, service: str, *, resolved: bool = False, at: datetime = NOW) -> Message:
    return {
        "status": "resolved" if resolved else "firing",
        "labels": {"alertname": name, "service": service, "severity": "critical", "site": "one"},
        "startsAt": at.isoformat(),
        "endsAt": at.isoformat() if resolved else "0001-01-01T00:00:00Z",
    }


def bodies(messages: Sequence[Message], size: int = 10) -> list[bytes]:
    """Return bodies of a sender that has not grouped."""
    return [json.dumps({"version": "4", "alerts": some}).encode() for some in parts(messages, size)]


def storm(count: int) -> list[Message]:
    """Return alerts of two hundred services, in no order."""
    messages = [message(f"A{number}", f"s{number % SERVICES}") for number in range(count)]
    random.Random(1).shuffle(messages)  # noqa: S311 - reproducible, not secret
    return messages


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
async def test_a_broken_parent_is_one_session_and_as_many_decisions_as_alerts(world: World, count: int) -> None:
    world.dependencies = BELOW
    messages = storm(count)
    messages.insert(count // 20, message("Down", "core"))  # a moment behind its children
    async with world.desk() as desk:
        await world.storm(desk, bodies(messages), timedelta(minutes=1))
        await world.storm(desk, [], timedelta(minutes=1))
        world.clock.at += timedelta(minutes=1)
        await desk.tick()

    decided = world.database.rows("alert_decisions")
    assert len({row["alert_id"] for row in decided}) == count + 1
    assert all(row["because"] for row in decided)
    assert world.chains() == ["core"]
    assert len(world.database.rows("sessions")) == 1
    assert {row["decision"] for row in world.database.rows("alerts") if row["service"] != "core"} == {"inhibited"}


async def test_a_storm_that_nothing_explains_is_five_sessions(world: World) -> None:
    async with world.desk() as desk:
        await world.storm(desk, bodies(storm(FEW)), timedelta(minutes=1))
        for _ in range(6):
            world.clock.at += timedelta(minutes=1)
            await desk.tick()

    assert len({row["alert_id"] for row in world.database.rows("alert_decisions")}) == FEW
    assert len(world.database.rows("sessions")) == MOST_SESSIONS
    assert "" not in {row["decision"] for row in world.database.rows("alerts")}


async def test_what_is_silenced_costs_nothing_and_is_counted(world: World) -> None:
    end = NOW + timedelta(hours=2)
    await world.store.silences.add(
        Silence(id=0, matchers=EVERYTHING, starts_at=NOW, ends_at=end, created_by="alice", comment="moving")
    )
    async with world.desk() as desk:
        await world.storm(desk, bodies(storm(FEW)), timedelta(minutes=1))

    assert world.decided() == {"silenced": FEW}
    assert world.database.rows("sessions") == []
    assert [row["suppressed_count"] for row in world.database.rows("silences")] == [FEW]


async def test_what_a_rule_inhibits_costs_nothing(world: World) -> None:
    rule = InhibitRule(
        source=read_matchers(["alertname=SiteDown"]), target=read_matchers(["alertname=~A.*"]), equal=("site",)
    )
    world.rules = Rules(sources=world.rules.sources, inhibit=(rule,))
    quiet = message("SiteDown", "site")
    quiet["labels"] = {"alertname": "SiteDown", "service": "site", "severity": "info", "site": "one"}
    async with world.desk() as desk:
        await world.storm(desk, bodies([quiet, *storm(FEW)]), timedelta(minutes=1))
        world.clock.at += timedelta(minutes=5)
        await desk.tick()

    assert world.decided() == {"inhibited": FEW, "below_severity": 1}
    assert world.database.rows("sessions") == []


async def test_what_flaps_costs_nothing_for_as_long_as_it_goes_on(world: World) -> None:
    async with world.desk() as desk:
        for flip in range(10):
            at = world.clock.now()
            said = [message("Flap", f"s{number}", resolved=flip % 2 == 1, at=at) for number in range(50)]
            await world.storm(desk, bodies(said, 50), timedelta(seconds=20))

    assert world.database.rows("sessions") == []
    decided = world.decided()
    assert sum(decided.values()) >= 10 * 50
    assert set(decided) == {"grouped", "resolved_first", "flapping"}
    assert {row["flapping"] for row in world.database.rows("alerts")} == {True}
