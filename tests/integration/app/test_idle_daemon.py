"""A daemon that has nothing to do rests, and is woken for all that it looks at in the same moments."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

import anyio
import pytest
import sqlalchemy as sa

from claudeops.app.node import Node
from claudeops.store.connection.writer import FIRST_PAGES
from support.daemon_within import daemon_within
from support.estate import deliver, look, report
from support.stand_in_daemon import stand_in_node
from support.waiting import until

pytestmark = pytest.mark.anyio

TICK_SECONDS: Final = 5.0
SIGN_OF_LIFE: Final = ["BEGIN IMMEDIATE", "UPDATE instances", "SELECT alembic_version.version_num,"]
"""All that an idle daemon asks a database in a tick."""

LATE_SECONDS: Final = 0.02  # of a timer after its tick: it is set by a loop that has just been woken


def between_ticks(daemon: Node) -> list[float]:
    """Return for which moments before the next tick but one a timer is set, in seconds from now.

    Timers are those of the event loop, and that of the writer's thread.
    """
    loop = asyncio.get_running_loop()
    now, timers = loop.time(), loop._scheduled  # type: ignore[attr-defined]  # there is no other way to see them
    due = [timer.when() for timer in timers if not timer.cancelled() and timer.when() < now + TICK_SECONDS]
    if (watch := daemon.database._writer._watch) is not None:
        due.append(watch.at)
    return [when - now for when in due if (when + LATE_SECONDS) % TICK_SECONDS > 2 * LATE_SECONDS]


class Work:
    """What the process does in a tick: statements, by their first words, and threads that are begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.threads: list[str] = []
        start = threading.Thread.start

        def noted(thread: threading.Thread) -> None:
            self.threads.append(thread.name)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", noted)

    def note(self, *about: object) -> None:
        self.statements.append(" ".join(str(about[2]).split()[:2]))

    def is_signs_of_life(self) -> bool:
        """Return whether there was nothing but these; the last of them may not be complete yet."""
        whole = SIGN_OF_LIFE * (len(self.statements) // len(SIGN_OF_LIFE) + 1)
        return self.statements == whole[: len(self.statements)] and not self.threads

    def forget(self) -> None:
        self.statements.clear()
        self.threads.clear()


async def test_an_idle_daemon_is_woken_only_by_the_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand_in_node(tmp_path) as node:
        node.script(look(), deliver(report()))
        async with daemon_within(node) as daemon:
            await node.until_idle()
            work = Work(monkeypatch)
            sa.event.listen(sa.Engine, "before_cursor_execute", work.note)
            other = anyio.current_time()  # when another timer was last seen

            def rests() -> bool:
                nonlocal other
                now = anyio.current_time()
                if between_ticks(daemon) or not work.is_signs_of_life():  # a reader may still be at work
                    other = now
                    work.forget()
                return bool(work.statements) and now > other + TICK_SECONDS

            try:
                await until(rests)
            finally:
                sa.event.remove(sa.Engine, "before_cursor_execute", work.note)


async def test_what_others_wrote_into_sqlite_s_log_is_written_back_by_the_daemon(tmp_path: Path) -> None:
    async with stand_in_node(tmp_path) as node:
        node.script(look(), deliver(report()))
        async with daemon_within(node):
            await node.until_idle()
            file = Path(node.operator.database)
            with closing(sqlite3.connect(file)) as other, other:
                other.execute("PRAGMA wal_autocheckpoint = 0")
                other.execute("CREATE TABLE other (bytes BLOB)")
                other.execute("INSERT INTO other VALUES (zeroblob(?))", (FIRST_PAGES * 4096,))
            before = file.stat().st_size
            await node.queue(1)
            await until(lambda: file.stat().st_size >= before + FIRST_PAGES * 4096)
