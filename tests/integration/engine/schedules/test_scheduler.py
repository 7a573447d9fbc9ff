"""Every due time is fired for once, also when the database is away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel
import pytest

from claudeops.domain.schedules import Interval, Schedule
from claudeops.engine.schedules.scheduler import Scheduler
from claudeops.errors import ConfigurationError
from claudeops.structs import replace
from support.schedules import DAILY, DEADLINE_SECONDS, OFTEN, MachineClock, Record, SetClock, running, timer_of

pytestmark = pytest.mark.anyio

LAST = {"watch": datetime(2020, 11, 20, tzinfo=UTC)}


async def test_every_due_time_is_fired_for_once_and_in_order() -> None:
    record = Record()
    scheduler = record.scheduler(MachineClock(), replace(OFTEN, name="a"), replace(OFTEN, name="b"))
    async with running(scheduler):
        await record.until(fires=10)
    for name in ("a", "b"):
        found = record.due_times(name)
        assert found == sorted(set(found))
        assert all(due_at.microsecond % 50_000 == 0 for due_at in found)
    assert record.errors == []


async def test_recorded_due_time_carries_no_jitter() -> None:
    record = Record()
    schedule = Schedule(name="watch", cadence=Interval(seconds=0.2), jitter_seconds=0.1)
    scheduler = record.scheduler(MachineClock(), schedule)
    async with running(scheduler):
        await record.until(fires=2)
    assert all(due_at.microsecond % 200_000 == 0 for due_at in record.due_times())


async def test_fire_missed_while_no_daemon_ran_is_made_up_for_once() -> None:
    record = Record()
    clock = SetClock()
    last_due = {"watch": datetime(2020, 10, 1, tzinfo=UTC)}
    scheduler = record.scheduler(clock, DAILY, replace(DAILY, name="new"), last_due=last_due)
    async with running(scheduler):
        await record.until(fires=1)
        await clock.until_read(6)
    assert record.fires == [("watch", datetime(2020, 11, 21, tzinfo=UTC))]


async def test_fire_is_tried_again_while_the_database_is_away() -> None:
    record = Record(failures_to_come=3)
    clock = SetClock()
    scheduler = record.scheduler(clock, DAILY, last_due=LAST)
    async with running(scheduler):
        await record.until(fires=1, errors=3)
    due_at = datetime(2020, 11, 21, tzinfo=UTC)
    assert record.due_times()[0] == due_at
    assert [(name, tried_for) for name, tried_for, _ in record.errors] == [("watch", due_at)] * 3


async def test_newer_due_time_takes_the_place_of_one_that_could_not_be_recorded() -> None:
    record = Record(failures_to_come=1)
    clock = SetClock()
    scheduler = record.scheduler(clock, DAILY, last_due=LAST)
    async with running(scheduler):
        await record.until(errors=1)
        clock.at += timedelta(days=1)
        await record.until(fires=1)
    assert record.errors[0][1] == datetime(2020, 11, 21, tzinfo=UTC)
    assert record.due_times()[0] == datetime(2020, 11, 22, tzinfo=UTC)


async def test_slow_fire_of_one_schedule_holds_up_no_other() -> None:
    record = Record()
    held = anyio.Event()

    async def fire(name: str, due_at: datetime) -> None:
        await record.fire(name, due_at)
        if name == "slow":
            await held.wait()

    schedules = [replace(OFTEN, name=name) for name in ("slow", "quick")]
    scheduler = Scheduler(clock=MachineClock(), schedules=schedules, fire=fire, on_error=record.on_error)
    async with running(scheduler):
        while len(record.due_times("quick")) < 5 or not record.due_times("slow"):
            await record.changed.wait()
    assert len(record.due_times("slow")) == 1


async def test_nothing_fires_after_a_pause() -> None:
    record = Record()
    clock = SetClock()
    scheduler = record.scheduler(clock, DAILY)
    async with running(scheduler):
        scheduler.pause()
        clock.at += timedelta(days=1)
        await scheduler._hand_over("watch", scheduler._pending["watch"])  # as a job that was on its way would
        assert scheduler._firing == set()
        await anyio.wait_all_tasks_blocked()
    assert record.fires == []


class Holding:
    """Holds back fires until the test says otherwise, and knows how often that was looked at."""

    def __init__(self) -> None:
        self.holds = True
        self.looks = 0
        self._looked = anyio.Event()

    def __call__(self) -> bool:
        self.looks += 1
        self._looked.set()
        self._looked = anyio.Event()
        return self.holds

    async def until_looked(self, times: int) -> None:
        goal = self.looks + times
        while self.looks < goal:
            await self._looked.wait()


def held_scheduler(record: Record, clock: SetClock, holding: Holding) -> Scheduler:
    return Scheduler(
        clock=clock,
        schedules=[DAILY],
        fire=record.fire,
        on_error=record.on_error,
        last_due=LAST,
        held_back=holding,
        watch_seconds=0.01,
    )


async def test_due_time_that_came_while_fires_were_held_back_is_fired_for_afterwards() -> None:
    record, clock, holding = Record(), SetClock(), Holding()
    async with running(held_scheduler(record, clock, holding)):
        await holding.until_looked(5)
        assert record.fires == []
        holding.holds = False
        await record.until(fires=1)
        await clock.until_read(6)
    assert record.fires == [("watch", datetime(2020, 11, 21, tzinfo=UTC))]
    assert record.errors == []


async def test_due_times_to_come_are_not_used_up_by_a_clock_that_was_ahead_while_fires_were_held_back() -> None:
    record, clock, holding = Record(), SetClock(), Holding()
    clock.at = datetime(2020, 11, 24, 1, tzinfo=UTC)
    async with running(held_scheduler(record, clock, holding)):
        await holding.until_looked(5)
        clock.at = datetime(2020, 11, 20, 23, tzinfo=UTC)
        holding.holds = False
        await clock.until_read(6)
        assert record.fires == []
        clock.at = datetime(2020, 11, 21, 0, 0, 1, tzinfo=UTC)
        await record.until(fires=1)
    assert record.fires == [("watch", datetime(2020, 11, 21, tzinfo=UTC))]


async def test_pause_ends_the_retries() -> None:
    record = Record(failures_to_come=1_000_000)
    scheduler = record.scheduler(SetClock(), DAILY, last_due=LAST)
    async with running(scheduler):
        await record.until(errors=1)
        scheduler.pause()
        while scheduler._firing:
            await anyio.lowlevel.checkpoint()
    assert record.fires == []


async def test_nothing_is_left_running_after_a_cancel() -> None:
    record = Record()
    scheduler = record.scheduler(MachineClock(), OFTEN)
    async with running(scheduler):
        await record.until(fires=1)
        timer = timer_of(scheduler)
    assert not timer.running
    assert timer._eventloop is None
    assert timer.get_jobs() == []


async def test_bug_in_the_fire_is_not_hidden() -> None:
    async def fire(name: str, due_at: datetime) -> None:
        message = f"{name} at {due_at}"
        raise LookupError(message)

    scheduler = Scheduler(clock=MachineClock(), schedules=[OFTEN], fire=fire, on_error=Record().on_error)
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ExceptionGroup) as raised:
        await scheduler.run()
    assert raised.group_contains(LookupError)
    assert not timer_of(scheduler).running


def test_two_schedules_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        Record().scheduler(MachineClock(), OFTEN, DAILY)


async def test_a_hundred_schedules_due_at_once_fire_once_each() -> None:
    record = Record()
    clock = SetClock()
    names = [f"watch-{number}" for number in range(100)]
    last_due = dict.fromkeys(names, datetime(2020, 11, 20, tzinfo=UTC))
    scheduler = record.scheduler(clock, *[replace(DAILY, name=name) for name in names], last_due=last_due)
    async with running(scheduler):
        await record.until(fires=100)
        await clock.until_read(6)
    assert sorted(record.fires) == [(name, datetime(2020, 11, 21, tzinfo=UTC)) for name in sorted(names)]
    assert record.errors == []
