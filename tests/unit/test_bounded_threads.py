"""Threads for what may hang: waited for a while, counted until they end, never more than a number."""

from __future__ import annotations

import threading

import anyio
import pytest

from claudeops.engine.bounded_threads import AT_ONCE, MOST_GIVEN_UP, BoundedThreads, NotDoneError

pytestmark = pytest.mark.anyio


async def until(threads: BoundedThreads, given_up: int) -> None:
    with anyio.fail_after(20):
        while threads.given_up != given_up:
            await anyio.lowlevel.checkpoint()


async def test_what_the_work_returns_or_raises_is_handed_on() -> None:
    def fail() -> None:
        raise ValueError("bad")

    threads = BoundedThreads(seconds=20)
    assert await threads.run(lambda: threading.current_thread().daemon) is True
    with pytest.raises(ValueError, match="bad"):
        await threads.run(fail)
    assert threads.given_up == 0


async def test_work_that_never_ends_is_given_up_counted_and_begun_no_more() -> None:
    ending = threading.Event()
    threads = BoundedThreads(seconds=0.01)
    for _ in range(MOST_GIVEN_UP):
        with pytest.raises(NotDoneError, match=r"longer than 0\.01 seconds"):
            await threads.run(ending.wait)
    assert threads.given_up == MOST_GIVEN_UP
    for _ in range(50):
        with pytest.raises(NotDoneError, match="still run"):
            await threads.run(ending.wait)
    assert sum(thread.name == "bounded" for thread in threading.enumerate()) == MOST_GIVEN_UP
    ending.set()
    await until(threads, 0)
    threads.seconds = 20
    assert await threads.run(lambda: 1) == 1


async def test_who_stops_waiting_is_counted_too() -> None:
    ending = threading.Event()
    begun = threading.Event()
    threads = BoundedThreads(seconds=20)

    def work() -> None:
        begun.set()
        ending.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(threads.run, work)
        while not begun.is_set():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert threads.given_up == 1
    ending.set()
    await until(threads, 0)


async def test_no_more_run_at_once_than_there_are_places() -> None:
    running = 0
    most = 0
    lock = threading.Lock()
    full = threading.Event()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == AT_ONCE:
                full.set()
        full.wait(20)
        with lock:
            running -= 1

    threads = BoundedThreads(seconds=20)
    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE * 3):
            tasks.start_soon(threads.run, work)
    assert most == AT_ONCE


async def test_a_machine_without_threads_is_a_no_and_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = BoundedThreads(seconds=20)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(NotDoneError, match="no thread could be started"):
        await threads.run(lambda: 1)
    assert threads.given_up == 0
