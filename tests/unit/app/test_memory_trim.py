"""Memory that sessions needed is given back when the last one has left, and not while another one runs."""

from __future__ import annotations

import queue

import anyio
import anyio.from_thread
import pytest

from claudeops.app.daemon import MemoryTrim
from claudeops.engine.control import RunningSessions, StopControl
from support.store_values import running

pytestmark = pytest.mark.anyio


async def test_memory_is_given_back_when_the_last_session_has_left() -> None:
    gone, given_back = running(), anyio.Event()
    trim = MemoryTrim(RunningSessions(), quiet_seconds=0, trim=lambda: anyio.from_thread.run_sync(given_back.set))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trim.run)
        trim.left(gone)
        await given_back.wait()
        tasks.cancel_scope.cancel()


async def test_nothing_is_given_back_while_another_session_runs() -> None:
    session, others, trims = running(), RunningSessions(), queue.SimpleQueue[int]()
    others[2] = (session, StopControl())
    given_back = anyio.Event()

    def give() -> None:
        trims.put(len(others))
        anyio.from_thread.run_sync(given_back.set)

    trim = MemoryTrim(others, quiet_seconds=0, trim=give)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trim.run)
        trim.left(session)
        await anyio.wait_all_tasks_blocked()
        others.clear()
        trim.left(session)
        await given_back.wait()
        tasks.cancel_scope.cancel()

    assert [trims.get_nowait() for _ in range(trims.qsize())] == [0]
