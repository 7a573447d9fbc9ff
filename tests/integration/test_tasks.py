"""A task group for code whose errors have a caller to read them, and threads for work that may hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from claudeops.errors import DatabaseUnavailableError
from claudeops.tasks import AbandonedError, Threads, check_abandoned, open_tasks
from support.loop_time import loop_time
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def test_a_callers_own_error_comes_out_as_it_is_from_groups_within_groups() -> None:
    with pytest.raises(DatabaseUnavailableError, match="is locked"):  # noqa: PT012 - groups are what is tested
        async with open_tasks() as outer:
            outer.start_soon(anyio.sleep_forever)
            async with open_tasks() as inner:
                inner.start_soon(anyio.sleep_forever)
                raise DatabaseUnavailableError("the database is locked")


async def test_what_two_tasks_fail_of_is_told_of_both() -> None:
    both = anyio.Event()

    async def fail(error: Exception) -> None:
        both.set()
        raise error

    with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012 - two tasks are what is tested
        async with open_tasks() as tasks:
            tasks.start_soon(fail, ValueError("one"))
            tasks.start_soon(fail, OSError("another"))
            await both.wait()
    assert sorted(str(error) for error in caught.value.exceptions) == ["another", "one"]


# --- threads for work that may hang -------------------------------------------------------------------


class Hanging:
    """Work that hangs until it is let go, as an access to a dead disk does."""

    def __init__(self) -> None:
        self.began, self.let_go, self.over = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.began.set()
        self.let_go.wait(PATIENCE_SECONDS)
        return "too late"

    def undone(self, result: str) -> None:
        assert result == "too late"
        self.over.set()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    work = Hanging()
    yield work
    work.let_go.set()


async def test_work_gives_its_result_and_raises_its_own_error() -> None:
    threads = Threads(most=1)

    def fail() -> None:
        raise PermissionError("not for you")

    assert await threads.run(lambda: 7, seconds=PATIENCE_SECONDS, what="counting") == 7
    with pytest.raises(PermissionError, match="not for you"):
        await threads.run(fail, seconds=PATIENCE_SECONDS, what="reading")
    assert await threads.run(threading.get_ident, seconds=PATIENCE_SECONDS, what="looking") != threading.get_ident()


async def test_looks_that_follow_each_other_begin_no_thread_each() -> None:
    first, second = Threads(most=1), Threads(most=1)

    threads = {
        await each.run(threading.get_ident, seconds=PATIENCE_SECONDS, what="looking") for each in (first, second) * 5
    }

    assert len(threads) == 1


async def test_what_begins_in_one_moment_wakes_one_thread() -> None:
    threads = list[int]()

    async def look() -> None:
        threads.append(
            await Threads(most=1, joins=True).run(threading.get_ident, seconds=PATIENCE_SECONDS, what="looking")
        )

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(look)

    assert len(threads) == 5
    assert len(set(threads)) == 1


async def test_what_begins_in_one_moment_does_not_wait_for_a_place_that_hangs(hanging: Hanging) -> None:
    hung, free = Threads(most=1, joins=True), [Threads(most=1, joins=True) for _ in range(3)]
    found = list[int]()

    async def look(threads: Threads) -> None:
        found.append(await threads.run(lambda: 7, seconds=PATIENCE_SECONDS, what="looking"))

    with loop_time() as now:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look, free[0])
            tasks.start_soon(partial(hung.run, hanging, seconds=4 * PATIENCE_SECONDS, what="listing"))
            tasks.start_soon(look, free[1])
            with anyio.CancelScope() as cancelled:
                tasks.start_soon(hanging_wait, hanging, cancelled)
                await free[2].run(lambda: 7, seconds=PATIENCE_SECONDS, what="looking")
            now.leap(1.0)  # what has waited so long for its turn gets a thread of its own
            with anyio.fail_after(PATIENCE_SECONDS):
                while len(found) < 2:
                    await anyio.lowlevel.checkpoint()
                assert await free[2].run(lambda: 8, seconds=PATIENCE_SECONDS, what="looking") == 8
            tasks.cancel_scope.cancel()

    assert found == [7, 7]


async def hanging_wait(hanging: Hanging, cancelled: anyio.CancelScope) -> None:
    """Give up for another task, which waits behind what hangs."""
    await anyio.to_thread.run_sync(hanging.began.wait, PATIENCE_SECONDS)
    cancelled.cancel()


async def test_work_of_others_does_not_wait_for_a_thread_that_hangs(hanging: Hanging) -> None:
    with pytest.raises(TimeoutError):
        await Threads(most=1).run(hanging, seconds=0.05, what="listing")

    with anyio.fail_after(PATIENCE_SECONDS):
        assert await Threads(most=1).run(lambda: 7, seconds=PATIENCE_SECONDS, what="counting") == 7


async def test_a_thread_that_was_abandoned_serves_others_once_it_is_free(hanging: Hanging) -> None:
    threads = Threads(most=1)
    with pytest.raises(TimeoutError):
        await threads.run(hanging, seconds=0.05, what="listing", undo=hanging.undone)
    hanging.let_go.set()

    def is_wanted() -> bool:
        check_abandoned()  # of this work, and not of the one before
        return True

    assert [await threads.run(is_wanted, seconds=PATIENCE_SECONDS, what="looking") for _ in range(3)] == [True] * 3


async def test_work_that_hangs_costs_its_caller_no_more_than_its_time(hanging: Hanging) -> None:
    threads = Threads(most=1)

    with anyio.fail_after(PATIENCE_SECONDS), pytest.raises(OSError, match=r"listing took longer than 0\.05 s"):
        await threads.run(hanging, seconds=0.05, what="listing", undo=hanging.undone)

    hanging.let_go.set()
    assert hanging.over.wait(PATIENCE_SECONDS)  # what came too late was undone


async def test_a_caller_that_is_cancelled_does_not_wait_for_work_that_hangs(hanging: Hanging) -> None:
    threads = Threads(most=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(threads.run, hanging, seconds=600, what="listing", undo=hanging.undone))
            await anyio.to_thread.run_sync(hanging.began.wait)
            tasks.cancel_scope.cancel()

    hanging.let_go.set()
    assert hanging.over.wait(PATIENCE_SECONDS)


async def test_a_disk_that_stays_away_takes_so_many_threads_and_no_more(hanging: Hanging) -> None:
    threads, other = Threads(most=2), Threads(most=1)
    before = threading.active_count()

    for _ in range(4):
        with pytest.raises(TimeoutError):
            await threads.run(hanging, seconds=0.05, what="listing")
    assert threading.active_count() <= before + 2
    assert await other.run(lambda: "another disk", seconds=PATIENCE_SECONDS, what="listing") == "another disk"

    hanging.let_go.set()
    assert await threads.run(lambda: "it is back", seconds=PATIENCE_SECONDS, what="listing") == "it is back"


async def test_work_that_nobody_waits_for_any_more_ends_where_it_asks() -> None:
    threads, let_go, ended = Threads(most=1), threading.Event(), threading.Event()
    check_abandoned()  # on a thread that was started for something else it says nothing

    def walk() -> None:
        try:
            let_go.wait(PATIENCE_SECONDS)
            check_abandoned()
        except AbandonedError:
            ended.set()
            raise

    with pytest.raises(TimeoutError):
        await threads.run(walk, seconds=0.05, what="walking")
    let_go.set()

    assert ended.wait(PATIENCE_SECONDS)
