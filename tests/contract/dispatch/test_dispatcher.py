"""What every `Dispatcher` promises."""

from __future__ import annotations

from typing import Protocol

import anyio
import pytest

from claudeops import logs
from claudeops.dispatch.local import LocalDispatcher
from claudeops.dispatch.procrastinate import JobDispatcher
from claudeops.engine.ports import Dispatcher
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

NEVER_SECONDS = 3600.0  # an interval that no test lives to see


class MakeDispatcher(Protocol):
    def __call__(self, *, interval_seconds: float) -> Dispatcher: ...


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def of_jobs(*, interval_seconds: float) -> Dispatcher:
    """Return the one of several nodes, which takes no jobs yet: what is announced within the process needs none."""
    return JobDispatcher({}, site="main", log=logs.get_logger(), interval_seconds=interval_seconds)


@pytest.fixture(params=[pytest.param(LocalDispatcher, id="local"), pytest.param(of_jobs, id="procrastinate")])
def make(request: pytest.FixtureRequest) -> MakeDispatcher:
    factory: MakeDispatcher = request.param
    return factory


async def test_announcement_wakes_a_waiter(make: MakeDispatcher) -> None:
    dispatcher = make(interval_seconds=NEVER_SECONDS)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(dispatcher.wait)
            await anyio.wait_all_tasks_blocked()
            await dispatcher.announce()


async def test_announcement_wakes_every_waiter(make: MakeDispatcher) -> None:
    dispatcher = make(interval_seconds=NEVER_SECONDS)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(dispatcher.wait)
            await anyio.wait_all_tasks_blocked()
            await dispatcher.announce()


async def test_announcement_before_the_wait_is_not_lost(make: MakeDispatcher) -> None:
    dispatcher = make(interval_seconds=NEVER_SECONDS)
    await dispatcher.announce()
    with anyio.fail_after(PATIENCE_SECONDS):
        await dispatcher.wait()


async def test_announcement_between_two_waits_is_not_lost(make: MakeDispatcher) -> None:
    dispatcher = make(interval_seconds=NEVER_SECONDS)
    with anyio.fail_after(PATIENCE_SECONDS):
        for _ in range(3):
            await dispatcher.announce()
            await dispatcher.wait()


async def test_announcement_is_not_lost_with_a_cancelled_waiter(make: MakeDispatcher) -> None:
    dispatcher = make(interval_seconds=NEVER_SECONDS)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(dispatcher.wait)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            await dispatcher.announce()
        await dispatcher.wait()


async def test_announcement_does_not_wake_for_ever(make: MakeDispatcher) -> None:
    dispatcher = make(interval_seconds=NEVER_SECONDS)
    for _ in range(5):
        await dispatcher.announce()
    returned = []

    async def wait_twice() -> None:
        for number in range(2):
            await dispatcher.wait()
            returned.append(number)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(wait_twice)
            await anyio.wait_all_tasks_blocked()
            assert returned == [0]
            group.cancel_scope.cancel()


async def test_lost_announcement_delays_by_the_interval_only(make: MakeDispatcher) -> None:
    dispatcher = make(interval_seconds=0.01)
    with anyio.fail_after(PATIENCE_SECONDS):
        await dispatcher.wait()
        await dispatcher.wait()
