"""All schedules of a daemon, over a real database: restarts, edits of the file, and a day on which nothing happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from claudeops.dispatch.local import LocalDispatcher
from claudeops.domain.probes import state_machine
from claudeops.domain.probes.probe import HttpLook, Observation, Probe, ProbeState, Saw, Standing
from claudeops.domain.probes.record import StoredProbe
from claudeops.domain.probes.tier0 import Tier0
from claudeops.domain.schedules import Cron, Interval, Schedule, next_due
from claudeops.domain.schedules.plan import Fire, SchedulePlan
from claudeops.domain.schedules.windows import read_window
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.engine.operator_file import OperatorFile
from claudeops.engine.ports import UNCOUNTED, Counting, Uncounted
from claudeops.engine.schedules.runner import Plans, ScheduleRunner
from claudeops.engine.schedules.tier0 import ProbeGate
from claudeops.errors import ConfigurationError
from claudeops.logs import LogEvent, get_logger
from claudeops.store import database as stored
from claudeops.store.probes import Probes
from claudeops.store.store import Store
from claudeops.structs import replace
from support.schedules import DEADLINE_SECONDS, SetClock
from support.store_values import RULES, check, claimed, ending, report
from support.stores import Database, opened

pytestmark = pytest.mark.anyio
pytest_plugins = ("support.store_fixtures",)

MORNING: Final = datetime(2026, 3, 4, 10, 59, tzinfo=UTC)
HOURLY: Final = SchedulePlan(schedule=Schedule(name="hourly", cadence=Interval(seconds=3600)))


@dataclass
class Desk:
    """A database with keepers over it, one after another, and a clock that a test sets."""

    store: Store
    database: Database
    clock: SetClock
    file: Callable[[], Plans] | None = None
    counts: Counting = UNCOUNTED

    def keeper(self, *plans: SchedulePlan) -> ScheduleRunner:
        return ScheduleRunner(
            plans=plans,
            schedules=self.store.schedules,
            clock=self.clock,
            log=get_logger(),
            dispatcher=LocalDispatcher(),
            rules=lambda: RULES,
            new_session=lambda tier: NewSession(tier=tier, trigger=Trigger.SCHEDULED, model="haiku"),
            file=None if self.file is None else self.operator_file(plans),
            counts=self.counts,
        )

    def operator_file(self, plans: Plans) -> OperatorFile[Plans]:
        return OperatorFile(
            path=Path("schedules.toml"),
            value=plans,
            read=lambda _: self.file() if self.file else (),
            name="schedules",
            refused=LogEvent.SCHEDULES_REFUSED,
            events=self.store.schedules,
            clock=self.clock,
            log=get_logger(),
            beside=None,
            message=lambda fault: f"the schedules were not read again, the last good ones serve: {fault}",
            look_seconds=0.01,
            has_to_answer=True,
        )

    @asynccontextmanager
    async def running(self, *plans: SchedulePlan) -> AsyncIterator[ScheduleRunner]:
        """Run a daemon's schedules for the length of a block."""
        keeper = self.keeper(*plans)
        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                await tasks.start(lambda *, task_status: keeper.run(task_status=task_status))
                yield keeper
                tasks.cancel_scope.cancel()

    def fires(self) -> list[tuple[str, str, object]]:
        """Return schedule, due time and reason of every fire on record, in the order of their due times."""
        rows = sorted(self.database.rows("schedule_fires"), key=lambda row: (str(row["due_at"]), str(row["schedule"])))
        return [(str(row["schedule"]), f"{row['due_at']:%H:%M}", row["skipped_reason"]) for row in rows]

    async def until(self, count: int) -> None:
        """Wait until so many fires are on record; the scheduler's watchdog looks at the clock every second."""
        while len(self.database.rows("schedule_fires")) < count:
            await self.clock.until_read(1)

    async def rounds(self, count: int = 3) -> None:
        """Let the keeper have time for what it should not do."""
        await self.clock.until_read(count)

    async def end_all(self) -> None:
        """Have every queued session look and find all well."""
        while (session := await claimed(self.store, at=self.clock.at)) is not None:
            await self.store.queue.finish(ending(session, report(check("web")), cost_usd=0.05), rules=RULES)


@pytest.fixture
async def desk(sqlite: Database) -> AsyncIterator[Desk]:
    clock = SetClock()
    clock.at = MORNING
    async with opened(sqlite) as store:
        yield Desk(store=store, database=sqlite, clock=clock)


class Late(Uncounted):
    """Keeps by how much fires came late."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def fired(self, late_seconds: float) -> None:
        self.seconds.append(late_seconds)


async def test_by_how_much_a_fire_comes_late_is_counted_once(desk: Desk) -> None:
    late = Late()
    desk.counts = late
    async with desk.running(HOURLY):
        await desk.until(1)
        desk.clock.at = MORNING + timedelta(minutes=3)
        await desk.until(2)
        await desk.rounds()
    assert late.seconds == [59 * 60.0, 2 * 60.0]


async def test_a_first_daemon_looks_at_once_and_not_again_a_minute_later(desk: Desk) -> None:
    async with desk.running(HOURLY):
        await desk.until(1)
        await desk.end_all()
        desk.clock.at = MORNING + timedelta(minutes=1)
        await desk.until(2)
        desk.clock.at = MORNING + timedelta(minutes=61)
        await desk.until(3)
    assert desk.fires() == [
        ("hourly", "10:00", None),
        ("hourly", "11:00", "just_done"),
        ("hourly", "12:00", None),
    ]


async def test_a_restart_buys_no_look_that_was_made_a_minute_ago(desk: Desk) -> None:
    async with desk.running(HOURLY):
        await desk.until(1)
        await desk.end_all()
    async with desk.running(HOURLY) as keeper:
        assert keeper.next_fires() == {"hourly": MORNING + timedelta(minutes=1)}
        await desk.rounds()
    async with desk.running(HOURLY):
        desk.clock.at = MORNING + timedelta(minutes=2)
        await desk.until(2)
    assert desk.fires() == [("hourly", "10:00", None), ("hourly", "11:00", "just_done")]


async def test_a_restart_skips_no_look_that_came_due_meanwhile(desk: Desk) -> None:
    async with desk.running(HOURLY):
        await desk.until(1)
        await desk.end_all()
    desk.clock.at = MORNING + timedelta(hours=3, minutes=11)  # 14:10
    async with desk.running(HOURLY):
        await desk.until(2)
        await desk.end_all()
    assert desk.fires() == [("hourly", "10:00", None), ("hourly", "14:00", None)]


async def test_a_look_that_is_too_late_to_be_of_use_is_not_made_up_for(desk: Desk) -> None:
    plan = replace(HOURLY, grace_seconds=60.0)
    async with desk.running(plan):
        await desk.until(1)
        desk.clock.at = MORNING + timedelta(minutes=1, seconds=30)
        await desk.until(2)
    assert desk.fires() == [("hourly", "10:00", "missed"), ("hourly", "11:00", None)]


async def test_each_schedule_has_its_own_quiet_hours_and_a_crontab_line_waits(desk: Desk) -> None:
    quiet = replace(HOURLY, schedule=replace(HOURLY.schedule, name="quiet"), quiet_hours=(read_window("00:00-24:00"),))
    nightly = SchedulePlan(schedule=Schedule(name="nightly", cadence=Cron(expr="0 3 * * *")), begins_at_once=False)
    off = replace(HOURLY, schedule=replace(HOURLY.schedule, name="off"), enabled=False)
    async with desk.running(HOURLY, quiet, nightly, off) as keeper:
        await desk.until(2)
        assert keeper.next_fires()["nightly"] == datetime(2026, 3, 5, 3, tzinfo=UTC)
        assert keeper.next_fires()["off"] is None
        await desk.rounds()
    assert desk.fires() == [("hourly", "10:00", None), ("quiet", "10:00", "quiet_hours")]


async def test_what_a_schedule_asks_for_is_in_its_session(desk: Desk) -> None:
    plan = replace(HOURLY, tier=1, services=("db",), prompt="Look at the backups.", budget_usd=0.1)
    async with desk.running(plan):
        await desk.until(1)
    (row,) = desk.database.rows("sessions")
    assert (row["trigger"], row["tier"], row["budget_usd"]) == ("scheduled", 1, 0.1)
    assert row["prompt_text"] == "Look at the backups.\n\nLook at these services and at no others: db."


async def test_an_edit_of_the_file_counts_at_once_and_fires_nothing_twice(desk: Desk) -> None:
    now: list[Plans] = [(HOURLY,)]
    desk.file = lambda: now[-1]
    daily = SchedulePlan(schedule=Schedule(name="daily", cadence=Interval(seconds=86400)))
    async with desk.running(HOURLY) as keeper:
        await desk.until(1)
        now.append((HOURLY, daily))
        await desk.until(2)
        assert set(keeper.next_fires()) == {"hourly", "daily"}
        now.append((daily,))
        while set(keeper.next_fires()) != {"daily"}:
            await desk.clock.until_read(1)
        desk.clock.at = MORNING + timedelta(hours=2)
        await desk.rounds()
    assert desk.fires() == [("daily", "00:00", None), ("hourly", "10:00", None)]


class HeldBack:
    """The schedules' record; from its second answer on, what was fired last comes when the test says so."""

    def __init__(self, record: object) -> None:
        self._record = record
        self._answers = 0
        self.asked_again, self.released = anyio.Event(), anyio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._record, name)

    async def last_fires(self) -> object:
        self._answers += 1
        if self._answers > 1:
            self.asked_again.set()
            await self.released.wait()
        return await self._record.last_fires()  # type: ignore[attr-defined]


async def test_the_status_between_an_edit_and_its_first_timing_names_what_is_in_force(desk: Desk) -> None:
    other = SchedulePlan(schedule=Schedule(name="other", cadence=Interval(seconds=86400)))
    now: list[Plans] = [(HOURLY,)]
    desk.file = lambda: now[-1]
    keeper = desk.keeper(HOURLY)
    held = HeldBack(keeper.schedules)
    keeper.schedules = held  # type: ignore[assignment]
    desk.clock.at = MORNING - timedelta(minutes=30)  # due at no moment of the test
    await desk.store.schedules.fire(
        Fire(schedule="hourly", due_at=MORNING - timedelta(minutes=59), overlap=HOURLY.overlap),
        keeper.new_session(1),
        rules=RULES,
        now=desk.clock.at,
    )
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: keeper.run(task_status=task_status))
            now.append((HOURLY, other))
            await held.asked_again.wait()
            assert list(keeper.next_fires()) == ["hourly"]
            held.released.set()
            while list(keeper.next_fires()) != ["hourly", "other"]:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_a_wrong_edit_is_an_event_and_the_last_good_schedules_serve(desk: Desk) -> None:
    faults: list[str | None] = ["/etc/schedules.toml, line 3: the key 'cronn' is not known here."]

    def read() -> Plans:
        if faults[-1] is not None:
            raise ConfigurationError(faults[-1])
        return (HOURLY,)

    desk.file = read
    async with desk.running(HOURLY) as keeper:
        await desk.until(1)
        while not desk.database.rows("events"):
            await anyio.lowlevel.checkpoint()
        assert set(keeper.next_fires()) == {"hourly"}
        faults.append(None)
        while desk.database.rows("events")[0]["resolved_at"] is None:
            await anyio.lowlevel.checkpoint()
    (event,) = desk.database.rows("events")
    assert (event["level"], event["count"]) == ("warning", 1)
    assert "line 3: the key 'cronn' is not known here" in str(event["message"])


async def test_a_fault_that_an_earlier_daemon_told_of_is_over_once_the_file_can_be_read(desk: Desk) -> None:
    def refuse() -> Plans:
        raise ConfigurationError("/etc/schedules.toml, line 3: the key 'cronn' is not known here.")

    desk.file = refuse
    async with desk.running(HOURLY):
        while not desk.database.rows("events"):
            await anyio.lowlevel.checkpoint()
    desk.file = lambda: (HOURLY,)
    async with desk.running(HOURLY):
        while desk.database.rows("events")[0]["resolved_at"] is None:
            await anyio.lowlevel.checkpoint()


async def test_a_paused_keeper_starts_nothing_more(desk: Desk) -> None:
    async with desk.running(HOURLY) as keeper:
        await desk.until(1)
        keeper.pause()
        desk.clock.at = MORNING + timedelta(hours=2)
        await anyio.wait_all_tasks_blocked()
    assert len(desk.fires()) == 1


# --- a day on which nothing happens, but for one thing ----------------------------------------------------

SHOP: Final = Probe(name="shop", look=HttpLook(url="http://shop.test/"), service="web", origin="probes.toml:1")
DIES_AT: Final = MORNING.replace(hour=15, minute=17, second=11)
MENDED_AT: Final = DIES_AT + timedelta(minutes=2)


class ShopRow(Probes):
    """Rows that say how the shop stands."""

    def __init__(self, database: stored.Database, standing: Callable[[], Standing]) -> None:
        super().__init__(database)
        self._standing = standing

    async def kept(self, names: Sequence[str] | None = None) -> Mapping[str, StoredProbe]:  # noqa: ARG002 - as the port has it
        standing = self._standing()
        row = StoredProbe(name=SHOP.name, service="web", kind="http", standing=standing, interval=SHOP.interval)
        return {SHOP.name: row}


async def shop_alone(_: Container[str]) -> Sequence[Probe]:
    return (SHOP,)


def looks_of_a_day(until: datetime) -> tuple[Mapping[datetime, Standing], datetime]:
    """Return how the probe stands after each look, and when it first stands down."""
    standing, at = Standing(), MORNING - timedelta(hours=1)
    standings: dict[datetime, Standing] = {}
    while at <= until:
        saw = Saw.DOWN if DIES_AT <= at < MENDED_AT else Saw.UP
        step = state_machine.step(standing, Observation(saw=saw, at=at), SHOP)
        standing = standings[at] = step.standing
        at += timedelta(seconds=step.wait_seconds)
    return standings, next(at for at, each in standings.items() if each.state is ProbeState.DOWN)


async def test_a_day_of_an_unchanged_estate_saves_nine_sessions_in_ten_and_misses_nothing(desk: Desk) -> None:
    end = MORNING + timedelta(days=1)
    standings, down_at = looks_of_a_day(end)
    every_quarter = replace(HOURLY, schedule=replace(HOURLY.schedule, cadence=Interval(seconds=900)))

    def standing() -> Standing:
        return standings[max(at for at in standings if at <= desk.clock.at)]

    keeper = desk.keeper(every_quarter)
    keeper.gate = ProbeGate(
        mode=Tier0.GATE,
        max_age_seconds=86400,
        schedules=desk.store.schedules,
        on_record=ShopRow(desk.store.database, standing),
        watched=shop_alone,
        rules=lambda: replace(RULES, expected=("web",)),
    )
    due_at = MORNING
    while (due_at := next_due(every_quarter.schedule.cadence, due_at)) <= end:
        desk.clock.at = due_at
        await keeper._fire(every_quarter, due_at)
        await desk.end_all()

    fires = desk.fires()
    made = [at for _, at, reason in fires if reason is None]
    assert len(fires) == 96
    assert len(made) <= 0.1 * len(fires)
    assert {reason for _, _, reason in fires} == {None, "unchanged"}
    # One look to begin with, and one after the change: the verdict before it says nothing about what came since.
    assert made == ["11:00", "15:30"]
    assert down_at - DIES_AT <= timedelta(seconds=SHOP.interval + SHOP.failures * SHOP.retry_interval)
    assert next(at for at in standings if at >= DIES_AT) - DIES_AT <= timedelta(seconds=SHOP.interval)
    saved = await desk.store.schedules.saved(MORNING)
    assert saved.skipped == {"unchanged": 94}
    assert saved.usd == pytest.approx(94 * 0.05)


@pytest.mark.parametrize(
    ("changes", "is_skipped"),
    [
        ({}, True),
        ({"prompt": "Look at the backups."}, False),
        ({"tier": 2}, False),
        ({"services": ("web",)}, True),
        ({"services": ("web", "db")}, False),
    ],
)
async def test_only_a_usual_round_is_left_to_probes(desk: Desk, changes: dict[str, object], is_skipped: bool) -> None:
    plan = replace(HOURLY, **changes)  # type: ignore[arg-type]
    await desk.keeper(HOURLY)._fire(HOURLY, MORNING)
    await desk.end_all()
    desk.clock.at = MORNING + timedelta(hours=1)
    up = Standing(
        state=ProbeState.UP,
        since=MORNING - timedelta(hours=1),
        last_checked_at=desk.clock.at,
        successes=9,
        ups=9,
        beneath=ProbeState.UP,
    )
    gate = ProbeGate(
        mode=Tier0.GATE,
        max_age_seconds=86400,
        schedules=desk.store.schedules,
        on_record=ShopRow(desk.store.database, lambda: up),
        watched=shop_alone,
        rules=lambda: RULES,
    )
    assert (await gate(plan, desk.clock.at)).may_skip is is_skipped
    assert not (await replace(gate, mode=Tier0.INFORM)(plan, desk.clock.at)).may_skip
    assert (await gate.table(desk.clock.at))[1].startswith("shop (http")
    assert await replace(gate, mode=Tier0.OFF).table(desk.clock.at) == ()
