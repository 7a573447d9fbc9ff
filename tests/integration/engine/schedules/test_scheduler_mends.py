"""Neither a broken timer nor a clock that was set loses a fire or doubles one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from claudeops.domain.schedules import Interval, Schedule
from claudeops.errors import ClaudeopsError
from support.schedules import (
    DAILY,
    HOURLY,
    MOMENT,
    OFTEN,
    YEAR,
    HostileTrigger,
    MachineClock,
    Record,
    SetClock,
    callback_errors_collected,
    running,
    timer_of,
)

pytestmark = pytest.mark.anyio


async def nothing() -> None:
    pass


async def test_main_loop_that_died_of_an_exception_is_woken_up() -> None:
    record = Record()
    scheduler = record.scheduler(MachineClock(), OFTEN)
    trigger = HostileTrigger(times=1)
    with callback_errors_collected() as dead:
        async with running(scheduler):
            timer = timer_of(scheduler)
            timer.add_job(nothing, trigger, misfire_grace_time=None)
            await trigger.raised.wait()
            seen = len(record.fires)
            await record.until(fires=seen + 3)
            assert timer_of(scheduler) is timer
    assert len(dead) == 1
    assert len(set(record.fires)) == len(record.fires)


async def test_main_loop_that_dies_at_every_wake_up_is_renewed() -> None:
    record = Record()
    scheduler = record.scheduler(MachineClock(), OFTEN)
    with callback_errors_collected() as dead:
        async with running(scheduler):
            await record.until(fires=1)
            sick = timer_of(scheduler)
            sick.add_job(nothing, HostileTrigger(times=1_000_000), misfire_grace_time=None)
            await record.until(errors=1)
            seen = len(record.fires)
            await record.until(fires=seen + 3)
            assert timer_of(scheduler) is not sick
            assert not sick.running
    assert len(dead) > 1
    assert len(set(record.fires)) == len(record.fires)
    assert all(type(error) is ClaudeopsError for _, _, error in record.errors)


async def test_timer_that_somebody_shut_down_is_renewed() -> None:
    record = Record()
    scheduler = record.scheduler(MachineClock(), OFTEN)
    async with running(scheduler):
        await record.until(fires=1)
        timer_of(scheduler).shutdown(wait=False)
        seen = len(record.fires)
        await record.until(fires=seen + 3)
    assert len(set(record.fires)) == len(record.fires)


@pytest.mark.parametrize("harm", ["remove_all_jobs", "pause"])
async def test_timer_without_its_job_or_paused_by_somebody_is_mended(harm: str) -> None:
    record = Record()
    scheduler = record.scheduler(MachineClock(), OFTEN)
    async with running(scheduler):
        await record.until(fires=1)
        await anyio.wait_all_tasks_blocked()  # the fire is over and its next job is there
        timer = timer_of(scheduler)
        getattr(timer, harm)()
        seen = len(record.fires)
        await record.until(fires=seen + 3)
        assert timer_of(scheduler) is timer
    assert len(set(record.fires)) == len(record.fires)
    assert record.errors == []


async def test_job_that_runs_twice_fires_once() -> None:
    record = Record(hold=anyio.Event())
    clock = SetClock()
    due_at = MOMENT + timedelta(hours=1)
    scheduler = record.scheduler(clock, HOURLY)
    async with running(scheduler):
        clock.at = due_at
        await record.until(fires=1)
        await scheduler._hand_over("watch", due_at)  # under way
        await anyio.wait_all_tasks_blocked()
        assert record.hold is not None
        record.hold.set()
        await anyio.wait_all_tasks_blocked()
        await scheduler._hand_over("watch", due_at)  # over
        await anyio.wait_all_tasks_blocked()
    assert record.due_times() == [due_at]


async def test_clock_set_forward_makes_one_fire_and_not_hundreds() -> None:
    record = Record()
    clock = SetClock()
    scheduler = record.scheduler(clock, Schedule(name="watch", cadence=Interval(seconds=60)))
    async with running(scheduler):
        clock.at += YEAR
        await record.until(fires=1)
        clock.at += timedelta(seconds=60)
        await record.until(fires=2)
    assert record.due_times() == [MOMENT + YEAR, MOMENT + YEAR + timedelta(seconds=60)]


async def test_clock_set_back_fires_for_no_due_time_twice() -> None:
    record = Record(hold=anyio.Event())
    clock = SetClock()
    due_at = MOMENT + timedelta(hours=1)
    scheduler = record.scheduler(clock, HOURLY)
    async with running(scheduler):
        clock.at = due_at
        await record.until(fires=1)
        clock.at = due_at - timedelta(minutes=30)  # while the fire is under way
        assert record.hold is not None
        record.hold.set()
        await anyio.wait_all_tasks_blocked()
        clock.at = due_at + timedelta(minutes=1)
        await clock.until_read(6)
        clock.at = due_at - timedelta(minutes=1)  # while nothing is under way
        await clock.until_read(6)
        clock.at = due_at + timedelta(hours=1)
        await record.until(fires=2)
    assert record.due_times() == [due_at, due_at + timedelta(hours=1)]


async def test_clock_set_back_by_a_year_does_not_silence_for_a_year() -> None:
    record = Record()
    clock = MachineClock()
    clock.offset = YEAR
    scheduler = record.scheduler(clock, OFTEN)
    async with running(scheduler):
        clock.offset = timedelta(0)
        await record.until(fires=2)
        assert all(due_at <= clock.now() for due_at in record.due_times())


async def test_clock_set_back_by_a_year_during_a_fire_does_not_silence_for_a_year() -> None:
    record = Record(hold=anyio.Event())
    clock = SetClock()
    scheduler = record.scheduler(clock, DAILY)
    async with running(scheduler):
        clock.at = MOMENT + timedelta(days=1)
        await record.until(fires=1)
        clock.at = MOMENT - YEAR
        await clock.until_read(6)
        assert record.hold is not None
        record.hold.set()
        await anyio.wait_all_tasks_blocked()
        clock.at += timedelta(days=1)
        await record.until(fires=2)
    assert record.due_times()[1].date() == clock.at.date()


async def test_recorded_due_time_ahead_of_the_clock_does_not_silence_and_is_not_fired_again() -> None:
    record = Record()
    clock = SetClock()
    ahead = datetime(2020, 11, 23, tzinfo=UTC)
    scheduler = record.scheduler(clock, DAILY, last_due={"watch": ahead})
    async with running(scheduler):
        for day in (22, 23, 24):
            clock.at = datetime(2020, 11, day, tzinfo=UTC)
            await clock.until_read(6)
    assert [due_at.day for due_at in record.due_times()] == [22, 24]
