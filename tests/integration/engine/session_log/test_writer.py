"""The session's files: what is written, in which order, and what happens when the disk does not take it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from claudeops.engine.session_log.reader import LogIndexReader
from claudeops.engine.session_log.writer import MOST_WAITING_BYTES, SessionLog
from support.loop_time import loop_time
from support.waiting import PATIENCE_SECONDS, until

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LINES = [b'{"a":1}', b"", b"not JSON \xff", b'{"b":"' + b"x" * 100_000 + b'"}']


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Have the kernel refuse to make any file of this process longer, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def told(path: Path) -> list[datetime | None]:
    """Return when each line of a log arrived, as its index says."""
    arrivals, offset = LogIndexReader(path), 0
    times = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        times.append(arrivals.next(number, offset))
        offset += len(line)
    arrivals.close()
    return times


async def test_lines_are_on_disk_as_they_came_each_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "session-000001.ndjson"
    async with SessionLog(path) as log:
        log.append(LINES[0], NOON)
        log.extend(LINES, NOON + timedelta(seconds=1))
        log.extend([], NOON)
        log.append_stderr(b"oh dear\n")
        await log.sync()
        assert path.read_bytes() == b"".join(line + b"\n" for line in [LINES[0], *LINES])
        assert path.with_suffix(".stderr").read_bytes() == b"oh dear\n"
        assert log.failed is None
    assert told(path) == [NOON] + [NOON + timedelta(seconds=1)] * len(LINES)


async def test_many_small_and_few_huge_lines_keep_their_offsets(tmp_path: Path) -> None:
    path = tmp_path / "session-000001.ndjson"
    huge = b"y" * 9_000_000  # longer than what is written before the disk is asked to keep it
    async with SessionLog(path) as log:
        for number in range(300):
            log.extend([b"%d" % number] * (number % 5), NOON)
        log.append(huge, NOON)
        log.extend([b"", b"last"], NOON)
    lines = path.read_bytes().split(b"\n")
    assert lines[-5:] == [b"299", huge, b"", b"last", b""]
    assert told(path) == [NOON] * (len(lines) - 1)


async def test_what_is_given_away_before_closing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "session-000001.ndjson"
    async with SessionLog(path) as log:
        for _ in range(1000):
            log.extend((b"{}", b"{}"), NOON)
    assert path.read_bytes() == b"{}\n" * 2000


@pytest.mark.parametrize("suffix", [".ndjson", ".index", ".stderr"])
async def test_no_file_is_ever_written_over(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "session-000001.ndjson"
    path.with_suffix(suffix).write_bytes(b"somebody else's")
    with pytest.raises(FileExistsError):
        SessionLog(path)
    assert path.with_suffix(suffix).read_bytes() == b"somebody else's"


async def test_a_full_disk_is_told_and_the_index_points_at_nothing_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "session-000001.ndjson"
    async with SessionLog(path) as log:
        log.append(b"first", NOON)
        await log.sync()
        with files_no_longer_than(1000):
            log.extend([b"x" * 600] * 3, NOON)
            await log.sync()
        log.append(b"too late", NOON)
        await log.sync()
        assert log.failed is not None
        assert log.failed.errno == errno.EFBIG
    content = path.read_bytes()
    assert content.startswith(b"first\n" + b"x" * 600 + b"\nxxx")
    assert len(content) == 1000
    assert told(path) == [NOON, None, None]


class Stalling:
    """A disk that takes nothing until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = threading.Event()
        self._write = os.writev
        monkeypatch.setattr(os, "writev", self._stalled)

    def _stalled(self, file: int, parts: tuple[bytes, ...]) -> int:
        self.goes_on.wait(PATIENCE_SECONDS)
        return self._write(file, parts)


@pytest.fixture
def stalling(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stalling]:
    disk = Stalling(monkeypatch)
    yield disk
    disk.goes_on.set()


async def test_a_disk_that_stalls_lets_nobody_take_more_until_it_has_caught_up(
    tmp_path: Path, stalling: Stalling
) -> None:
    path = tmp_path / "session-000001.ndjson"
    line = b"x" * (3 * 1024 * 1024)
    async with SessionLog(path) as log:
        taken = 0

        async def take() -> None:
            nonlocal taken
            while taken < 20:
                await log.room()
                log.append(line, NOON)
                taken += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await until(lambda: taken == 3)  # 9 MiB: the last one before there was too much
            with suppress(TimeoutError):
                await until(lambda: taken > 3, seconds=0.2)
            tasks.cancel_scope.cancel()
        assert taken == 3
        stalling.goes_on.set()
        with anyio.fail_after(PATIENCE_SECONDS):
            await log.room()
        log.append(line, NOON)
    assert log.failed is None
    assert path.stat().st_size == (taken + 1) * (len(line) + 1)


async def test_a_disk_that_stalls_while_stderr_floods_lets_nobody_take_more(tmp_path: Path, stalling: Stalling) -> None:
    path = tmp_path / "session-000001.ndjson"
    async with SessionLog(path) as log:
        log.append_stderr(b"x" * (MOST_WAITING_BYTES + 1))
        with anyio.move_on_after(0.2) as waiting:
            await log.room()
        assert waiting.cancelled_caught
        stalling.goes_on.set()
        with anyio.fail_after(PATIENCE_SECONDS):
            await log.room()
    assert path.with_suffix(".stderr").stat().st_size == MOST_WAITING_BYTES + 1


async def test_lines_that_wait_for_the_disk_are_held_once(tmp_path: Path, stalling: Stalling) -> None:
    path = tmp_path / "session-000001.ndjson"
    tracemalloc.start()
    try:
        async with SessionLog(path) as log:
            for _ in range(20):  # 4 MB in all
                log.extend([b"%d" % number + b"x" * 200 for number in range(1000)], NOON)
            held, _ = tracemalloc.get_traced_memory()
            stalling.goes_on.set()
    finally:
        tracemalloc.stop()
    assert held < 5_500_000
    assert told(path) == [NOON] * 20_000


async def test_a_flood_of_empty_lines_does_not_fill_the_memory_with_their_index(tmp_path: Path) -> None:
    path = tmp_path / "session-000001.ndjson"
    tracemalloc.start()
    try:
        async with SessionLog(path) as log:
            log.extend([b""] * 200_000, NOON, joined=b"\n" * 199_999)  # their entries: 9 MB
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6_000_000
    assert path.read_bytes() == b"\n" * 200_000
    assert path.with_suffix(".index").read_bytes().count(b"\n") == 200_000


async def test_a_disk_that_takes_nothing_any_more_has_failed(tmp_path: Path, stalling: Stalling) -> None:
    path = tmp_path / "session-000001.ndjson"
    line = b"x" * (MOST_WAITING_BYTES + 1)
    async with SessionLog(path, stall_seconds=0.1) as log:
        log.append(line, NOON)
        with anyio.fail_after(PATIENCE_SECONDS):
            await log.room()
        assert "takes nothing any more" in str(log.failed)
        log.append(b"too late", NOON)
        with anyio.fail_after(PATIENCE_SECONDS):
            await log.room()  # for nobody waits for a disk that has failed
        stalling.goes_on.set()
    assert path.stat().st_size == len(line) + 1


async def test_a_disk_that_moves_slowly_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of a long line shows that it moves."""
    pieces, write = threading.Semaphore(0), os.writev

    def slow(file: int, parts: tuple[bytes, ...]) -> int:
        pieces.acquire(timeout=PATIENCE_SECONDS)
        return write(file, parts)

    monkeypatch.setattr(os, "writev", slow)
    line, path = b"x" * (10 * 4 * 1024 * 1024), tmp_path / "session-000001.ndjson"
    with loop_time() as time:
        async with SessionLog(path, stall_seconds=100) as log:
            log.append(line, NOON)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log.room)
                for number in range(10):
                    time.leap(30)  # in all longer than a disk may stand still
                    pieces.release()
                    await until(lambda count=number: path.stat().st_size > count * 4 * 1024 * 1024)  # type: ignore[misc]
                pieces.release(5)
    assert log.failed is None


async def test_a_flood_on_stderr_waits_for_a_disk_in_no_more_than_its_file_may_have(
    tmp_path: Path, stalling: Stalling
) -> None:
    path = tmp_path / "session-000001.ndjson"
    noise = b"y" * (1024 * 1024)
    tracemalloc.start()
    try:
        async with SessionLog(path) as log:
            for number in range(100):
                log.append_stderr(b"%d %b" % (number, noise))
            held, _ = tracemalloc.get_traced_memory()
            stalling.goes_on.set()
    finally:
        tracemalloc.stop()
    assert held < 20 * 1024 * 1024
    assert path.with_suffix(".stderr").stat().st_size == 16 * 1024 * 1024
