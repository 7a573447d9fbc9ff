"""An operator's file on a disk that does not answer: what it said before serves, and what comes late is read anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from claudeops.engine.operator_file import OperatorFile
from claudeops.logs import LogEvent, get_logger
from support.schedules import DEADLINE_SECONDS, SetClock
from support.stores import Database, opened

pytestmark = pytest.mark.anyio
pytest_plugins = ("support.store_fixtures",)

SILENT: Final = "[Errno 110] reading the schedules took longer than 0.05 s"


class Disk:
    """Hands out what is in a file once it answers."""

    def __init__(self) -> None:
        self.answers = Event()
        self.text = "old"

    def read(self, _path: Path) -> str:
        text = self.text
        assert self.answers.wait(DEADLINE_SECONDS)
        return text


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    disk = Disk()
    yield disk
    disk.answers.set()


@pytest.mark.parametrize("has_to_answer", [True, False])
async def test_a_disk_that_hangs_is_told_of_where_it_has_to_answer_and_hides_no_later_edit(
    sqlite: Database, disk: Disk, *, has_to_answer: bool
) -> None:
    async with opened(sqlite) as store:
        file = OperatorFile(
            path=Path("schedules.toml"),
            value="old",
            read=disk.read,
            name="schedules",
            refused=LogEvent.SCHEDULES_REFUSED,
            events=store.schedules,
            clock=SetClock(),
            log=get_logger(),
            beside=None,
            about="schedules",
            read_seconds=0.05,
            has_to_answer=has_to_answer,
        )
        disk.text = "new"
        await file.look()
        assert file.value == "old"
        told = [row["message"] for row in sqlite.rows("events")]
        assert told == ([f"{SILENT} What it said before serves."] if has_to_answer else [])

        disk.answers.set()
        file.read_seconds = DEADLINE_SECONDS
        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(file.change)
                await anyio.lowlevel.checkpoint()
                await file.look()
        assert file.value == "new"


async def test_a_file_that_is_paused_is_read_no_more(sqlite: Database, disk: Disk) -> None:
    disk.answers.set()
    async with opened(sqlite) as store:
        file = OperatorFile(
            path=Path("schedules.toml"),
            value="old",
            read=disk.read,
            name="schedules",
            refused=LogEvent.SCHEDULES_REFUSED,
            events=store.schedules,
            clock=SetClock(),
            log=get_logger(),
            beside=None,
            look_seconds=0.001,
        )
        disk.text = "new"
        file.pause()
        with anyio.move_on_after(0.05):
            await file.run()
        assert file.value == "old"
