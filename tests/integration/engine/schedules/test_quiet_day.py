"""A day on which one thing happens: what tier 0 saves of it, and how soon the one thing is known.

Watch, state machine, gate, keeper and scheduler are the daemon's own, the database is SQLite. Time is scripted, and so
is what the probes see; the sessions' part is played by the test, which ends each of them with a verdict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, cast

import anyio
import pytest

from claudeops.app.wiring import plans
from claudeops.dispatch.local import LocalDispatcher
from claudeops.domain.probes.news import SETTLING
from claudeops.domain.probes.probe import Probe
from claudeops.domain.probes.tier0 import Tier0
from claudeops.domain.schedules.plan import Saved
from claudeops.domain.sessions import NewSession, Session, Trigger
from claudeops.engine.probes.declared import DeclaredNow
from claudeops.engine.probes.watch import ProbeWatch
from claudeops.engine.schedules.runner import ScheduleRunner
from claudeops.engine.schedules.tier0 import ProbeGate
from claudeops.logs import get_logger
from claudeops.settings import Settings
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.probes import Probes
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import probe
from support.settings_world import make_world
from support.store_values import OWNER, RULES, check, claimed, ending, report
from support.stores import Database, opened
from support.told import ABOUT, chain_of
from support.waiting import PATIENCE_SECONDS, until
from support.watching import CountedStore, DeclaredByTest, Journey, Scripted

pytestmark = pytest.mark.anyio
pytest_plugins = ("support.store_fixtures",)

BEGIN: Final = datetime(2020, 11, 21, 7, 59, tzinfo=UTC)  # long over on APScheduler's own clock
DIES_AFTER: Final = timedelta(hours=7, minutes=23, seconds=11)
SERVICES: Final = ("web", "db", "mail")
PROBES: Final = tuple(probe(name, interval=120.0) for name in SERVICES)
"""Down after three failures, 5 s apart. A look every two minutes, since each is a transaction that reaches the disk."""
RULES_OF_ESTATE: Final = replace(RULES, expected=SERVICES)
ABOUT_ESTATE: Final = replace(ABOUT, escalation=RULES_OF_ESTATE)
COST_USD: Final = 0.05


@dataclass
class Node:
    """A daemon as far as this test needs one."""

    settings: Settings
    store: Store
    database: Database
    tier0: Tier0
    day: Journey = field(default_factory=lambda: Journey(at=BEGIN))
    alerts: Alerts = field(init=False)
    looker: Scripted = field(init=False)
    watch: ProbeWatch = field(init=False)
    keeper: ScheduleRunner = field(init=False)
    queued: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.looker = Scripted(self.day)
        self.alerts = cast("Alerts", CountedStore(self.store.alerts, self.day))
        reading = DeclaredByTest(declared=DeclaredNow(probes=PROBES))
        self.watch = ProbeWatch(
            database=cast("Probes", CountedStore(self.store.probes, self.day)),
            look=self.looker.look,
            reading=reading,
            rules=lambda: RULES_OF_ESTATE,
            alerts=self.alerts,
            queued=self.wake,
            owner=OWNER,
            clock=self.day,
            log=get_logger(),
            pause=self.day.pause,
        )
        self.keeper = ScheduleRunner(
            plans=plans(self.settings),
            schedules=self.store.schedules,
            clock=self.day,
            log=get_logger(),
            dispatcher=LocalDispatcher(),
            rules=lambda: RULES_OF_ESTATE,
            new_session=lambda tier: NewSession(tier=tier, trigger=Trigger.SCHEDULED, model="haiku"),
            gate=ProbeGate(
                mode=self.tier0,
                max_age_seconds=self.settings.ladder.tier0_max_age_seconds,
                schedules=self.store.schedules,
                on_record=self.store.probes,
                watched=reading.watched,
                rules=lambda: RULES_OF_ESTATE,
            ),
            watch_seconds=0.02,
        )

    def wake(self) -> None:
        self.queued.set()

    async def _keep_deciding(self) -> None:
        while True:
            await self.queued.wait()
            self.queued = anyio.Event()
            await self.alerts.decide(ABOUT_ESTATE, chain_of, now=self.day.now())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_deciding)
            await tasks.start(lambda *, task_status: self.watch.run(task_status=task_status))
            await self.day.travel(180)
            await tasks.start(lambda *, task_status: self.keeper.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    async def live_until(self, end: datetime) -> None:
        """Let time pass; what is due is fired before time goes on, and what is queued is looked at by a session."""
        while self.day.at < end:
            due = self.keeper.next_fires()["default"]
            assert due is not None
            await self._fired(due)
            await self._sessions()
            await self.day.travel(min(60.0, (end - self.day.at).total_seconds()))

    async def _fired(self, due: datetime) -> None:
        # The scheduler's own timer is not the test's.
        await until(lambda: due > self.day.at or self.keeper.next_fires()["default"] != due)

    async def _sessions(self) -> None:
        while (session := await claimed(self.store, at=self.day.at, with_rules=RULES_OF_ESTATE)) is not None:
            await self._looks(session)

    async def _looks(self, session: Session) -> None:
        """Have a session repair what is down, see all well again, and say so."""
        self.looker.down.clear()
        await self.day.travel(180)  # until the probes have seen it too
        said = report(*map(check, SERVICES))
        ended = ending(session, said, cost_usd=COST_USD, ended_at=self.day.at)
        await self.store.queue.finish(ended, rules=RULES_OF_ESTATE)

    def rows(self, table: str) -> list[dict[str, object]]:
        return self.database.rows(table)


@dataclass(frozen=True)
class Account:
    """What is left of a day."""

    fires: Mapping[str, int]  # by reason; "": a session was started
    saved: Saved
    sessions: Mapping[str, int]  # by trigger
    died_at: datetime
    looked_at: datetime  # that somebody first looked at the dead service
    down_at: datetime
    alert_at: datetime  # that the session was queued


async def a_day(database: Database, root: Path, tier0: Tier0) -> Account:
    """Live through a day on which one service dies once; return the account of it."""
    settings = make_world(root).settings()
    async with opened(database) as store:
        node = Node(settings, store, database, tier0)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with node.running():
                await node.live_until(BEGIN + DIES_AFTER)
                died_at, before = node.day.at, len(node.looker.looks)
                node.looker.down = {"web"}
                await node.live_until(BEGIN + timedelta(days=1))
                saved = node.keeper.saved
    assert saved is not None
    looked = next(at for name, at in node.looker.looks[before:] if name == "web")
    fires = [str(row["skipped_reason"] or "") for row in node.rows("schedule_fires")]
    triggers = [str(row["trigger"]) for row in node.rows("sessions")]
    (alert,) = [row for row in node.rows("sessions") if row["trigger"] == "alert"]
    (event,) = [row for row in node.rows("events") if str(row["message"]).startswith("web is down")]
    return Account(
        fires={reason: fires.count(reason) for reason in fires},
        saved=saved,
        sessions={trigger: triggers.count(trigger) for trigger in triggers},
        died_at=died_at,
        looked_at=died_at + timedelta(seconds=looked - (node.day.passed - (node.day.at - died_at).total_seconds())),
        down_at=cast("datetime", event["first_seen"]),
        alert_at=cast("datetime", alert["created_at"]),
    )


def _found_in_time(account: Account, about: Probe) -> None:
    interval, retries = (
        timedelta(seconds=about.interval),
        timedelta(seconds=about.retry_interval * (about.failures - 1)),
    )
    assert timedelta() <= account.looked_at - account.died_at <= interval
    assert account.down_at - account.looked_at == retries
    assert account.alert_at - account.down_at <= SETTLING.settling + timedelta(seconds=1)


async def test_the_gate_saves_nine_sessions_in_ten_and_the_one_change_is_found_within_an_interval(
    sqlite: Database, tmp_path: Path
) -> None:
    account = await a_day(sqlite, tmp_path, Tier0.GATE)

    _found_in_time(account, PROBES[0])
    due = sum(account.fires.values())
    # One round to begin with, and one after the change: the verdict before it says nothing about what came since.
    assert (due, account.fires[""], account.sessions) == (24, 2, {"scheduled": 2, "alert": 1})
    assert account.fires["unchanged"] >= 0.9 * due
    assert account.saved.skipped == {"unchanged": 22}
    assert account.saved.usd == pytest.approx(22 * COST_USD)


@pytest.mark.long  # that this mode skips nothing is seen in test_keeper.py
async def test_the_same_day_with_inform_starts_every_session(sqlite: Database, tmp_path: Path) -> None:
    account = await a_day(sqlite, tmp_path, Tier0.INFORM)

    _found_in_time(account, PROBES[0])
    assert account.fires == {"": 24}
    assert account.sessions == {"scheduled": 24, "alert": 1}
    assert account.saved.skipped == {}
