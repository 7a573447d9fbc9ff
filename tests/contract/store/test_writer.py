"""The writer's thread: order, urgency, errors, and an end."""

from __future__ import annotations

import io
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest

from claudeops import logs
from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.store.connection.writer import UNDO_TRIES, Writer
from support.waiting import PATIENCE_SECONDS, until


class Blocked:
    """A job that is under way until the test lets go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> str:
        self.inside.set()
        assert self.let_go.wait(PATIENCE_SECONDS)
        return "done"

    async def until_inside(self) -> None:
        assert await anyio.to_thread.run_sync(self.inside.wait, PATIENCE_SECONDS)


@pytest.fixture
async def writer() -> AsyncIterator[Writer]:
    writer = Writer(wait_seconds=PATIENCE_SECONDS)
    yield writer
    await writer.close()


@pytest.fixture
async def at_once() -> AsyncIterator[Writer]:
    """Return one that tries an undoing with every job."""
    writer = Writer(wait_seconds=PATIENCE_SECONDS, undo_pause_seconds=0)
    yield writer
    await writer.close()


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


async def test_verdicts_overtake_what_waits_and_the_rest_keeps_its_order(writer: Writer) -> None:
    blocked, ran = Blocked(), list[str]()

    async def write(name: str, urgent: bool) -> None:
        await writer.run(lambda: ran.append(name), urgent=urgent)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, blocked)
        await blocked.until_inside()
        for name, urgent in [("a", False), ("b", False), ("verdict 1", True), ("c", False), ("verdict 2", True)]:
            tasks.start_soon(write, name, urgent)
            await anyio.wait_all_tasks_blocked()
        blocked.let_go.set()

    assert ran == ["verdict 1", "verdict 2", "a", "b", "c"]


async def test_caller_gets_what_its_own_job_raises_and_the_thread_lives_on(writer: Writer) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await writer.run(fail)

    assert await writer.run(lambda: 42) == 42


async def test_jobs_run_in_one_thread_that_is_not_the_callers(writer: Writer) -> None:
    threads = {await writer.run(threading.get_ident) for _ in range(3)}

    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_job_that_was_begun_is_finished_though_its_caller_has_gone(writer: Writer) -> None:
    blocked, ended = Blocked(), threading.Event()

    def job() -> None:
        blocked()
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, job)
        await blocked.until_inside()
        tasks.cancel_scope.cancel()
    blocked.let_go.set()

    assert await anyio.to_thread.run_sync(ended.wait, PATIENCE_SECONDS)


async def test_stuck_job_lets_those_behind_it_go(writer: Writer) -> None:
    blocked, ran = Blocked(), list[str]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, blocked)
        await blocked.until_inside()
        writer._wait_seconds = 0.01
        with pytest.raises(DatabaseUnavailableError, match="nothing was written"):
            await writer.run(lambda: ran.append("withdrawn"))
        blocked.let_go.set()
    await writer.close()

    assert ran == []


async def test_caller_of_a_stuck_job_is_told_that_it_may_still_be_written() -> None:
    blocked = Blocked()

    class AtOnce(Writer):
        def _submit(self, *job: Any) -> None:
            super()._submit(*job)
            assert blocked.inside.wait(PATIENCE_SECONDS)  # the wait begins when the job is under way

    writer = AtOnce(wait_seconds=0.01)
    try:
        with pytest.raises(DatabaseUnavailableError, match="may still arrive"):
            await writer.run(blocked)
    finally:
        blocked.let_go.set()
        await writer.close()


async def test_closing_does_not_wait_for_ever_for_a_stuck_job(writer: Writer) -> None:
    blocked = Blocked()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, blocked)
        await blocked.until_inside()
        writer._wait_seconds = 0.01
        with anyio.fail_after(PATIENCE_SECONDS):
            await writer.close()
        blocked.let_go.set()


async def test_closing_runs_what_was_handed_in_and_refuses_what_comes_after(writer: Writer) -> None:
    blocked, ran = Blocked(), list[str]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, blocked)
        await blocked.until_inside()
        tasks.start_soon(writer.run, lambda: ran.append("handed in"))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(writer.close)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(StoreError, match="shutting down"):
            await writer.run(lambda: ran.append("too late"))
        blocked.let_go.set()

    assert ran == ["handed in"]


async def test_closing_is_not_cut_short_by_a_cancelled_caller() -> None:
    writer = Writer(wait_seconds=PATIENCE_SECONDS)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await writer.close()

    assert not writer._thread.is_alive()


class Undone:
    """An undoing that counts, and fails as often as the test says."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or DatabaseUnavailableError("the database is locked.")
        self.tries = 0
        self.count = 0
        self.undone: list[object] = []
        self.done = threading.Event()

    def __call__(self, result: object) -> None:
        self.tries += 1
        if self.failures:
            self.failures -= 1
            raise self.error
        self.undone.append(result)
        self.count += 1
        self.done.set()

    async def until_done(self) -> None:
        assert await anyio.to_thread.run_sync(self.done.wait, PATIENCE_SECONDS)


async def too_late(writer: Writer, undo: Undone) -> None:
    """Have a job done whose caller has stopped waiting for it."""
    blocked = Blocked()
    with anyio.CancelScope() as waiting:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: writer.run(blocked, undo=undo))
            await blocked.until_inside()
            waiting.cancel()
    blocked.let_go.set()


async def test_what_was_done_too_late_for_its_caller_is_undone(writer: Writer) -> None:
    undo = Undone()
    await too_late(writer, undo)
    await undo.until_done()

    assert undo.count == 1
    assert undo.undone == ["done"]  # what the job returned


async def test_what_its_caller_was_told_is_not_undone(writer: Writer) -> None:
    undo = Undone()

    assert await writer.run(lambda: 42, undo=undo) == 42
    await writer.run(lambda: None)

    assert undo.count == 0


async def test_what_never_began_or_failed_needs_no_undoing(writer: Writer) -> None:
    undo, blocked = Undone(), Blocked()

    def fail() -> None:
        raise KeyError("mine")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run, blocked)
        await blocked.until_inside()
        with anyio.move_on_after(0.01):
            await writer.run(lambda: 42, undo=undo)
        blocked.let_go.set()
    with pytest.raises(KeyError):
        await writer.run(fail, undo=undo)
    await writer.run(lambda: None)

    assert undo.count == 0


async def test_an_undoing_waits_for_the_database(at_once: Writer) -> None:
    undo = Undone(failures=2)
    await too_late(at_once, undo)
    for _ in range(2):
        assert undo.count == 0
        await at_once.run(lambda: None)
    await undo.until_done()


async def test_between_two_tries_of_an_undoing_others_get_their_turns() -> None:
    writer, undo = Writer(wait_seconds=PATIENCE_SECONDS, undo_pause_seconds=3600), Undone(failures=2)
    await too_late(writer, undo)
    for _ in range(10):
        await writer.run(lambda: None)
    tries = undo.tries
    await writer.close()

    assert tries == 1


async def test_an_undoing_is_not_tried_for_ever(at_once: Writer, logged: io.StringIO) -> None:
    undo = Undone(failures=1000)
    await too_late(at_once, undo)
    for _ in range(UNDO_TRIES + 10):
        await at_once.run(lambda: None)

    assert undo.tries == UNDO_TRIES
    (told,) = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert (told["level"], told["event"], told["tries"]) == ("critical", "undo_given_up", UNDO_TRIES)
    assert "locked" in told["error"]


@pytest.mark.parametrize("error", [StoreError("the database refuses it."), KeyError("a fault of ours")])
async def test_an_undoing_that_cannot_succeed_is_given_up_and_the_thread_lives_on(
    at_once: Writer, logged: io.StringIO, error: Exception
) -> None:
    undo = Undone(failures=1000, error=error)
    await too_late(at_once, undo)

    assert [await at_once.run(lambda: 42) for _ in range(3)] == [42] * 3
    assert undo.tries == 1
    assert json.loads(logged.getvalue())["event"] == "undo_given_up"


async def test_an_undoing_is_tried_once_more_at_the_end() -> None:
    writer, undo = Writer(wait_seconds=PATIENCE_SECONDS), Undone(failures=1)
    await too_late(writer, undo)
    await writer.close()

    assert undo.count == 1


# --- the watch ------------------------------------------------------------------------------------------


async def test_jobs_run_however_often_the_thread_looks_and_it_looks_however_many_jobs_come(writer: Writer) -> None:
    looks = itertools.count(1)

    async def keep_busy() -> None:
        while True:
            await writer.run(lambda: None)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(keep_busy)
        with anyio.fail_after(PATIENCE_SECONDS):
            found = await writer.watch(lambda: next(looks), lambda count: count > 50, seconds=0.0)
            assert await writer.run(lambda: "done") == "done"
        tasks.cancel_scope.cancel()
    assert found == 51


async def test_a_look_that_is_due_comes_with_the_job_of_its_moment(writer: Writer) -> None:
    done: list[str] = []

    def look() -> bool:
        done.append("look")
        return len(done) > 2

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(writer.watch, look, bool, seconds=3600.0))
        await until(lambda: writer._watch is not None)
        assert writer._watch is not None
        writer._watch.at = due = time.monotonic() + 0.1
        with anyio.fail_after(PATIENCE_SECONDS):
            await writer.run(lambda: done.append("job before"))
            await until(lambda: time.monotonic() > due + 0.1)
            assert done == ["job before"]  # it is due, and waits a little for a job
            await writer.run(lambda: done.append("job"))
            await until(lambda: done == ["job before", "job", "look"])


async def test_a_look_that_fails_is_the_callers_and_jobs_go_on(writer: Writer) -> None:
    def fail() -> object:
        raise DatabaseUnavailableError("the database is away.")

    with pytest.raises(DatabaseUnavailableError, match="away"), anyio.fail_after(PATIENCE_SECONDS):
        await writer.watch(fail, bool, seconds=0.0)
    assert await writer.run(lambda: "done") == "done"


async def test_a_caller_who_goes_takes_the_watch_away(writer: Writer) -> None:
    looks: list[int] = []
    with anyio.move_on_after(0):
        await writer.watch(lambda: looks.append(0), bool, seconds=0.0)
    await writer.run(lambda: None)
    seen = len(looks)
    for _ in range(20):
        await writer.run(lambda: None)
    assert len(looks) == seen


async def test_a_watch_ends_with_its_writer(writer: Writer) -> None:
    ended: list[str] = []

    async def watch() -> None:
        try:
            await writer.watch(lambda: None, bool, seconds=3600.0)
        except StoreError as error:
            ended.append(str(error))

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            await writer.close()
    assert "shutting down" in ended[0]
