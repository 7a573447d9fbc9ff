"""The session's files: what is written, in which order, and what happens when the disk does not take it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from claudeops.engine.arrivals import Arrivals
from claudeops.engine.logfile import SessionLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    arrivals, offset = Arrivals(path), 0
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


async def test_a_disk_that_stalls_is_told_before_the_memory_is_full_and_what_was_taken_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, write = threading.Event(), os.writev

    def stalling(file: int, parts: tuple[bytes, ...]) -> int:
        goes_on.wait(30)
        return write(file, parts)

    monkeypatch.setattr(os, "writev", stalling)
    path = tmp_path / "session-000001.ndjson"
    line = b"x" * (32 * 1024 * 1024)
    try:
        async with SessionLog(path) as log:
            taken = 0
            while log.failed is None and taken < 20:
                log.append(line, NOON)
                taken += 1
            log.append(b"too late", NOON)
            goes_on.set()
            await log.sync()
            assert "the disk does not keep up" in str(log.failed)
    finally:
        goes_on.set()
    assert 8 <= taken <= 10  # of 32 MiB each
    assert path.stat().st_size == taken * (len(line) + 1)
