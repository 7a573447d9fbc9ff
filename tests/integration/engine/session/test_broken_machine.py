"""A machine that is not as it should be: no descriptors left, a CLI that comes and goes, a clock that is set."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from claudeops.clock import Clock
from claudeops.domain.schedules import Interval, Schedule
from claudeops.domain.schedules.plan import Fire
from claudeops.domain.sessions import Ending, NewSession, Outcome, Session, Trigger
from claudeops.engine.control import StopControl
from claudeops.engine.schedules.scheduler import Scheduler
from claudeops.engine.session.runner import SessionRunner
from support.estate import STAND_IN, Estate, deliver, look, report
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open ``count`` more descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as above


@pytest.mark.parametrize("left", [2, 6, 9, 11])
async def test_a_session_without_descriptors_fails_alone_and_is_tried_again(estate: Estate, left: int) -> None:
    await estate.finished(look(), deliver(report()))  # whatever is opened once and kept is open now
    before = descriptors()
    with descriptors_left(left):
        ending = await estate.run(look(), deliver(report()))
    await estate.store.queue.finish(ending, rules=estate.context.rules)

    assert ending.outcome is Outcome.SPAWN_FAILED
    assert "Too many open files" in str(ending.error)
    assert [row["trigger"] for row in estate.rows("SELECT * FROM sessions")] == ["manual", "manual", "retry"]
    assert descriptors() == before
    assert (await estate.run(look(), deliver(report()))).outcome is Outcome.SUCCESS


async def test_a_cli_that_is_removed_while_it_runs_ends_what_it_began_and_the_next_is_tried_again(
    estate: Estate, tmp_path: Path
) -> None:
    binary, reached = tmp_path / "claude", tmp_path / "reached"
    shutil.copy(STAND_IN, binary)
    estate.with_context(binaries={**estate.context.clis.binaries, "claude": binary})
    ended: list[Ending] = []

    async def run(session: Session) -> None:
        ended.append(await SessionRunner(context=estate.context).run(session, StopControl()))

    estate.script({"touch": str(reached)}, look(), deliver(report()))
    await estate.queue()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, await estate.claim())
        await until(reached.exists)
        binary.unlink()
    without = await estate.run(deliver(report()))
    await estate.store.queue.finish(without, rules=estate.context.rules)
    shutil.copy(STAND_IN, binary)
    again = await estate.run(look(), deliver(report()))

    assert ended[0].outcome is Outcome.SUCCESS
    assert (without.outcome, again.outcome) == (Outcome.SPAWN_FAILED, Outcome.SUCCESS)
    assert f"Claude CLI not found: {binary}" in str(without.error)
    (retry,) = estate.rows("SELECT * FROM sessions WHERE trigger = 'retry'")
    assert retry["parent_session_id"] == without.session_id
    assert Path(estate.log_path(1)).exists()


class SetClock(Clock):
    """The machine's clock, whose hands somebody moves; seconds pass as they do."""

    moved = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.moved


@pytest.mark.parametrize("by", [timedelta(days=-400), timedelta(days=400)], ids=["back", "forward"])
async def test_a_clock_that_is_set_during_a_session_ends_it_neither_early_nor_never(
    estate: Estate, tmp_path: Path, by: timedelta
) -> None:
    reached, go, clock = tmp_path / "reached", tmp_path / "go", SetClock()
    estate.with_context(clock=clock)
    estate.script({"touch": str(reached)}, {"await": str(go)}, look(), deliver(report()))
    await estate.queue()
    async with anyio.create_task_group() as tasks:
        supervisor = estate.supervisor()
        tasks.start_soon(supervisor.run)
        await until(reached.exists)
        clock.moved = by
        go.touch()
        await until(lambda: estate.row(1)["status"] == "ended")
        await supervisor.drain(0)

    row = estate.row(1)
    assert (row["outcome"], row["decision_reason"]) == ("success", "healthy")
    assert 0 < int(str(row["duration_ms"])) < estate.context.timeouts.session * 1000
    assert "stop_requested" not in estate.logged.getvalue()


async def test_a_hundred_fires_at_once_are_recorded_and_queued_once_each(estate: Estate) -> None:
    last = datetime(2020, 11, 20, tzinfo=UTC)
    names = [f"watch-{number:03}" for number in range(100)]
    fired: list[object] = []
    all_fired = anyio.Event()

    async def fire(name: str, due_at: datetime) -> None:
        new = NewSession(tier=1, trigger=Trigger.SCHEDULED, model="haiku")
        fired.append(
            await estate.store.schedules.fire(
                Fire(schedule=name, due_at=due_at), new, rules=estate.context.rules, now=estate.context.clock.now()
            )
        )
        if len(fired) == len(names):
            all_fired.set()

    scheduler = Scheduler(
        clock=estate.context.clock,
        schedules=[Schedule(name=name, cadence=Interval(seconds=86400)) for name in names],
        fire=fire,
        on_error=lambda name, due_at, error: pytest.fail(f"{name} {due_at}: {error}"),
        last_due=dict.fromkeys(names, last),
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(scheduler.run)
        with anyio.fail_after(PATIENCE_SECONDS):
            await all_fired.wait()
        tasks.cancel_scope.cancel()

    assert all(isinstance(session, Session) for session in fired)
    fires = estate.rows("SELECT schedule, session_id, skipped_reason FROM schedule_fires ORDER BY schedule")
    assert [row["schedule"] for row in fires] == names
    assert len({row["session_id"] for row in fires}) == len(names)
    assert [row["status"] for row in estate.rows("SELECT status FROM sessions")] == ["queued"] * len(names)
