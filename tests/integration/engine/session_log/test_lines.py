"""Lines found by the index: the same as whoever reads the log from its start would count, whatever was cut or torn."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.engine.session_log.lines import LogLine, SessionLogLines
from claudeops.engine.session_log.reader import pack
from claudeops.engine.session_log.writer import SessionLog
from support.waiting import until

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LINES = st.lists(
    st.binary(max_size=40).filter(lambda line: b"\n" not in line and not line.endswith(b"\r")), max_size=60
)


def write(path: Path, lines: Sequence[bytes], *, entries: int | None = None) -> None:
    """Write a log and the first entries of its index."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    index, offset = [], 0
    for number, line in enumerate(lines[:entries], 1):
        at = (NOON + timedelta(seconds=number)).isoformat(timespec="microseconds")
        index.append(f"{number}\t{offset}\t{at}\n")
        offset += len(line) + 1
    path.with_suffix(".index").write_text("".join(index), encoding="ascii")


def read_all(log: SessionLogLines, *, after: int = 0, limit: int = 7, complete: bool = True) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while (read := log.read(after, limit=limit, complete=complete)).lines:
        found += [(line.number, line.content) for line in read.lines]
        after = found[-1][0]
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session-000007.ndjson"


@given(lines=LINES, after=st.integers(0, 70), limit=st.integers(1, 9), cut=st.integers(0, 4000), packed=st.booleans())
def test_any_line_is_found_in_any_log_with_any_part_of_its_index(
    lines: list[bytes], after: int, limit: int, cut: int, *, packed: bool
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session-000007.ndjson"
        write(path, lines)
        index = path.with_suffix(".index")
        index.write_bytes(index.read_bytes()[:cut])
        if packed:
            pack(path, lambda: None)
        log = SessionLogLines(path)

        found = read_all(log, after=after, limit=limit)
        again = read_all(log, after=max(0, after - 1), limit=limit)
        log.close()

    expected = list(enumerate(lines, 1))
    assert (found, again) == (expected[after:], expected[max(0, after - 1) :])


@given(lines=LINES.filter(bool), cut=st.integers(0, 3000), entries=st.integers(0, 60))
def test_a_log_that_grows_gives_whole_lines_with_their_times_and_each_once(
    lines: list[bytes], cut: int, entries: int
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session-000007.ndjson"
        write(path, lines, entries=entries)
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        log = SessionLogLines(path)
        before = log.read(0, limit=100)
        path.write_bytes(whole)
        write(path, lines)
        after = log.read(len(before.lines), limit=100)

    there = min(whole[:cut].count(b"\n"), entries)
    assert len(before.lines) == there
    assert [line.content for line in (*before.lines, *after.lines)] == lines
    assert all(line.at == NOON + timedelta(seconds=line.number) for line in (*before.lines, *after.lines))


def test_a_line_in_the_middle_of_a_long_log_is_found_without_reading_what_stands_before_it(path: Path) -> None:
    write(path, [b"%d " % number * 20 for number in range(1, 100_001)])
    index = path.with_suffix(".index")
    for file in (path, index):  # whoever reads these parts counts wrong, or believes nothing that follows
        content = file.read_bytes()
        file.write_bytes(content[:100] + b"?" * (len(content) // 3) + content[100 + len(content) // 3 :])

    read = SessionLogLines(path).read(70_000, limit=2)

    assert [(line.number, line.content[:6], line.at) for line in read.lines] == [
        (number, b"%d " % number, NOON + timedelta(seconds=number)) for number in (70_001, 70_002)
    ]
    assert read.more


@pytest.mark.parametrize("damage", [b"\0" * 300, b"garbage\n" * 40, b"9\t9\tnever\n", b"1\t0\t\xff\n", b""])
def test_a_damaged_index_costs_times_and_never_a_line(path: Path, damage: bytes) -> None:
    lines = [b"line %d" % number for number in range(1, 2001)]
    write(path, lines)
    index = path.with_suffix(".index")
    content = index.read_bytes()
    for place in (0, len(content) // 3, len(content) - 100):
        index.write_bytes(content[:place] + damage + content[place + len(damage) :])
        for after in (0, 1, 999, 1500, 1999):
            assert read_all(SessionLogLines(path), after=after, limit=500) == list(enumerate(lines, 1))[after:]


def test_the_index_of_another_log_is_not_believed(path: Path, tmp_path: Path) -> None:
    lines = [b"x" * number for number in range(200)]
    write(tmp_path / "other.ndjson", [b"y" * 7] * 400)
    write(path, lines)
    (tmp_path / "other.index").rename(path.with_suffix(".index"))

    assert read_all(SessionLogLines(path), after=150, limit=500) == list(enumerate(lines, 1))[150:]


def test_a_log_without_an_index_is_read_without_times(path: Path) -> None:
    write(path, [b"a", b"b"])
    path.with_suffix(".index").unlink()

    read = SessionLogLines(path).read(1)

    assert [(line.number, line.at, line.content) for line in read.lines] == [(2, None, b"b")]


def test_the_last_line_of_a_session_that_has_ended_needs_no_end(path: Path) -> None:
    write(path, [b"a"])
    with path.open("ab") as file:
        file.write(b"torn")

    log = SessionLogLines(path)
    assert [line.content for line in log.read(0).lines] == [b"a"]
    assert [line.content for line in log.read(1, complete=True).lines] == [b"torn"]


def test_one_reading_is_bounded_in_bytes_and_goes_on_where_it_stopped(path: Path) -> None:
    write(path, [b"x" * 1000] * 10)

    read = SessionLogLines(path).read(0, most_bytes=2500)

    assert (len(read.lines), read.more) == (3, True)


def test_a_log_that_is_packed_between_two_readings_goes_on(path: Path) -> None:
    lines = [b"line %d" % number for number in range(1, 51)]
    write(path, lines)
    log = SessionLogLines(path)
    first = log.read(0, limit=20, complete=True)
    pack(path, lambda: None)

    assert read_all(log, after=len(first.lines), limit=3) == list(enumerate(lines, 1))[20:]
    log.close()
    assert read_all(log, after=48, limit=3) == [(49, b"line 49"), (50, b"line 50")]
    log.close()


async def test_what_the_writer_writes_is_read_while_it_writes(path: Path) -> None:
    log, found = SessionLogLines(path), list[LogLine]()

    def has_all() -> bool:
        found.extend(log.read(len(found)).lines)
        return len(found) == 400

    async with SessionLog(path) as sink:
        for number in range(1, 201):
            sink.extend([b"%d" % number, b""], NOON)
        await until(has_all)

    assert [(line.number, line.at) for line in found] == [(number, NOON) for number in range(1, 401)]
