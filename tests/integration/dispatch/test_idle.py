"""An idle daemon waits to be woken: where nothing can become due, no loop asks the database anything by itself.

What has to be looked at again and again is looked at in the same moments, so that the process rests in between.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import sqlalchemy as sa

from claudeops import logs
from claudeops.clock import Clock
from claudeops.dispatch.local import LocalDispatcher
from claudeops.dispatch.wake_ups import WakeUps
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import Notice, Topic
from claudeops.engine.control import RunningSessions
from claudeops.engine.daemon.commands import CommandRunner
from claudeops.engine.schedules.follow_ups import FollowUpWorker
from claudeops.notify.sender import LOOK_SECONDS, NoticeSender
from claudeops.store.store import Store
from claudeops.tasks import Waiter
from claudeops.wording.notices.texts import Wording
from support.store_values import NOW, OWNER, RULES, wanted
from support.stores import Database, opened
from support.waiting import until

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

LOOKS: Final = 300
"""Of the daemon, at whether anything was written."""


class Waits(Waiter):
    """Notes how long it is to wait, and waits for a wake-up however long that takes."""

    def __init__(self) -> None:
        super().__init__(longest_seconds=math.inf)
        self.seconds: list[float] = []

    async def pause(self, seconds: float = math.inf) -> None:
        self.seconds.append(seconds)
        await super().pause()


@pytest.fixture
async def store(sqlite: Database) -> AsyncIterator[Store]:
    async with opened(sqlite) as store:
        yield store


def runner(store: Store, waiter: Waiter) -> CommandRunner:
    return CommandRunner(
        commands=store.commands,
        queue=store.queue,
        running=RunningSessions(),
        rules=lambda: RULES,
        clock=Clock(),
        owner=OWNER,
        log=logs.get_logger(),
        waiter=waiter,
    )


def sender(store: Store, waiter: Waiter) -> NoticeSender:
    return NoticeSender(
        outbox=store.outbox,
        targets=(),
        carriers={},
        wording=Wording(redact=str),
        now=lambda: NOW,
        log=logs.get_logger(),
        waiter=waiter,
    )


def follow_ups(store: Store, waiter: Waiter) -> FollowUpWorker:
    return FollowUpWorker(
        follow_ups=store.follow_ups,
        clock=Clock(),
        log=logs.get_logger(),
        dispatcher=LocalDispatcher(),
        rules=lambda: RULES,
        waiter=waiter,
    )


@asynccontextmanager
async def loops(store: Store, *waits: Waits) -> AsyncIterator[None]:
    first, second, third = waits
    async with anyio.create_task_group() as tasks:
        for run in (runner(store, first).run, sender(store, second).run, follow_ups(store, third).run):
            tasks.start_soon(run)
        await until(lambda: all(waiter.seconds for waiter in waits))
        yield
        tasks.cancel_scope.cancel()


async def test_an_idle_daemon_asks_the_database_nothing_however_often_it_looks(store: Store, tmp_path: Path) -> None:
    looks = 0

    async def next_version(is_news: Callable[[object], bool], seconds: float) -> object:
        def counted(found: object) -> bool:
            nonlocal looks
            looks += 1
            return is_news(found)

        return await store.database.next_version(counted, seconds)

    ups = WakeUps(file=tmp_path / "wake.sock", log=logs.get_logger(), look_seconds=0.0)
    waits = tuple(Waits() for _ in range(3))
    statements: list[str] = []

    def note(*about: object) -> None:
        statements.append(str(about[2]))

    async with loops(store, *waits), anyio.create_task_group() as tasks:
        tasks.start_soon(ups.run, next_version)
        await until(lambda: looks > 2)
        for waiter in waits:
            ups.join(waiter.wake)
        sa.event.listen(sa.Engine, "before_cursor_execute", note)
        try:
            await until(lambda: looks > LOOKS)
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", note)
        tasks.cancel_scope.cancel()
    assert statements == []
    assert [waiter.seconds for waiter in waits] == [[math.inf], [math.inf], [math.inf]]


async def test_a_look_that_finds_nothing_wakes_no_event_loop(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, looks, woken = asyncio.get_running_loop(), list[object](), list[object]()
    wake = loop.call_soon_threadsafe

    def counted(*about: Any) -> object:
        woken.append(about)
        return wake(*about)

    def is_news(found: object) -> bool:
        looks.append(found)
        return len(looks) == LOOKS

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    await store.database.next_version(is_news, 0.0)
    assert (len(looks), len(woken)) == (LOOKS, 1)


async def test_a_notice_that_waits_for_later_is_looked_for_again(store: Store, sqlite: Database) -> None:
    waits = Waits()
    notice = Notice(topic=Topic.EVENT, level=EventLevel.WARNING, text="web is down", key="web")
    await store.outbox.add(notice, now=NOW)
    later = (NOW + timedelta(hours=1)).strftime("%Y-%m-%d %H:%M:%S.%f")
    sqlite.execute("UPDATE outbox SET not_before = :later", later=later)  # as quiet hours do
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sender(store, waits).run)
        await until(lambda: bool(waits.seconds))
        tasks.cancel_scope.cancel()
    assert not await store.outbox.is_empty()
    assert waits.seconds[0] <= LOOK_SECONDS


async def test_the_queue_says_when_its_next_session_may_start(store: Store) -> None:
    assert await store.claims.next_due(OWNER, rules=RULES) is None
    later = NOW + timedelta(minutes=5)
    await store.queue.enqueue(wanted(not_before=later), rules=RULES, now=NOW)
    assert await store.claims.next_due(OWNER, rules=RULES) == later
    await store.queue.enqueue(wanted(), rules=RULES, now=NOW)
    assert await store.claims.next_due(OWNER, rules=RULES) == NOW
    assert await store.claims.next_due(OWNER, rules=RULES, chain=1) == later


async def test_only_what_others_write_changes_the_version(store: Store, sqlite: Database) -> None:
    before = await store.database.version()
    await store.queue.enqueue(wanted(), rules=RULES, now=NOW)
    assert await store.database.version() == before
    async with opened(sqlite) as other:
        await other.queue.enqueue(wanted(), rules=RULES, now=NOW)
    assert await store.database.version() != before
