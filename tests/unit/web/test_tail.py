"""The lines that readers of one session share: one that falls behind them reads the log by itself."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.lowlevel
import pytest

from claudeops.web.sse import Write
from claudeops.web.tail import BATCH, SHARED, LinesReader, SessionTail
from support.loop_time import loop_time
from support.streaming import EventReader, HeldLog
from support.waiting import PATIENCE_SECONDS, until


def reader_of(log: HeldLog, tail: SessionTail, write: Write) -> LinesReader:
    async def join(_: int) -> SessionTail:
        return tail

    return LinesReader(session_id=7, log=log, at=0, render=None, write=write, join=join)


def lines(events: EventReader) -> list[int]:
    return [int(event.id.removeprefix("7.")) for event in events.named("line")]


async def test_a_reader_that_falls_behind_what_is_shared_still_gets_every_line() -> None:
    log, quick, slow, may = HeldLog(["first"]), EventReader(), EventReader(), anyio.Event()
    tail = SessionTail(log, last=1)

    async def at_once(content: bytes) -> None:
        quick.feed(content)

    async def later(content: bytes) -> None:
        if slow.events:
            await may.wait()
        slow.feed(content)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader_of(log, tail, at_once).send)
            tasks.start_soon(reader_of(log, tail, later).send)
            await until(lambda: len(log.reads) > 3)
            for _ in range(3 * SHARED // BATCH):
                log.texts += ["x"] * BATCH
                tail.stir()
                await until(lambda: len(lines(quick)) == len(log.texts))
            may.set()
            await until(lambda: len(lines(slow)) == len(log.texts))
            log.ended = True

    assert lines(quick) == lines(slow) == list(range(1, len(log.texts) + 1))
    assert [events.events[-1].name for events in (quick, slow)] == ["ended"] * 2


async def test_a_log_that_cannot_be_read_any_more_ends_the_reading() -> None:
    log = HeldLog(["first"])
    tail = SessionTail(log, last=1)

    async def write(_: bytes) -> None:
        log.error = OSError("the disk is away")

    with anyio.fail_after(PATIENCE_SECONDS), pytest.raises(OSError, match="away"):
        await reader_of(log, tail, write).send()


async def turns() -> None:
    """Let everybody come to where they wait."""
    for _ in range(100):
        await anyio.lowlevel.checkpoint()


async def test_when_the_one_who_looks_for_all_has_gone_another_looks_at_once() -> None:
    log, stays = HeldLog(["first"]), EventReader()
    tail = SessionTail(log, last=1)

    async def write(content: bytes) -> None:
        stays.feed(content)

    async def nowhere(_: bytes) -> None:
        return

    with loop_time(slowness=100):  # nobody looks because a while has passed
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(reader_of(log, tail, nowhere).send)
                await turns()
                tasks.start_soon(reader_of(log, tail, write).send)
                await turns()
                leaving.cancel_scope.cancel()
            log.texts.append("second")
            tail.stir()
            while len(lines(stays)) < 2:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert lines(stays) == [1, 2]


async def test_many_readers_look_no_more_often_than_one() -> None:
    log, readers = HeldLog(["first"]), [EventReader() for _ in range(30)]
    tail = SessionTail(log, last=1)

    async def feed(events: EventReader, content: bytes) -> None:
        events.feed(content)

    with loop_time(slowness=100):
        async with anyio.create_task_group() as tasks:
            for events in readers:
                tasks.start_soon(reader_of(log, tail, partial(feed, events)).send)
            await turns()
            before = len(log.reads)
            log.texts.append("second")
            tail.stir()
            while any(len(lines(events)) < 2 for events in readers):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert len(log.reads) == before + 1
