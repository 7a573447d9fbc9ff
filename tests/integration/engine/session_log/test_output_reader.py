"""A CLI's output on its way into the log and into frames, together and in order."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from claudeops.clock import Clock
from claudeops.engine.session_log.writer import CHUNK_BYTES, DecodedLine, OutputReader, SessionLog, _Decoder
from claudeops.formats.stream import Malformed, StreamFrame, decode
from claudeops.text.redact import MASK, Redactor

SECRET = "hunter2hunter2"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ENDS_WITHIN_SECONDS = 10
LONGEST = 16_000_000
LONG = 100_000  # characters; a chunk of it is worth a second thread

SMALL = [
    *(b'{"type":"system","n":0}', b"", b"not JSON", b"[1]", b'{"n":1}\r'),
    json.dumps({"type": "user", "n": SECRET}).encode(),
]
LARGE = [
    *(json.dumps({"type": "user", "n": number, "text": "x" * LONG}).encode() for number in range(3)),
    json.dumps({"type": "user", "n": SECRET, "text": "y" * LONG}).encode(),
    b"no JSON " + b"z" * LONG,
]
SMALL_FRAMES: list[object] = [0, None, Malformed, None, 1, SECRET]
LARGE_FRAMES: list[object] = [0, 1, 2, SECRET, Malformed]
STREAMS = [pytest.param(SMALL, id="small"), pytest.param(LARGE, id="large"), pytest.param(SMALL + LARGE, id="both")]
CHUNKS = [pytest.param(size, id=f"by {size}") for size in (1000, 65_536, 1_000_000)]


class Noon(Clock):
    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return 0.0


def numbers(taken: list[DecodedLine], *, asked: bool) -> list[object]:
    """Return what ``n`` is in each frame, and why a line is none."""
    frames = [one.asked if asked else one.kept for one in taken]
    return [frame.body["n"] if isinstance(frame, StreamFrame) else frame and type(frame) for frame in frames]


async def take(path: Path, stream: bytes, size: int) -> list[DecodedLine]:
    async with SessionLog(path) as sink:
        with OutputReader(redactor=Redactor([SECRET]), sink=sink, clock=Noon()) as intake:
            taken = [one for start in range(0, len(stream), size) for one in intake.push(stream[start : start + size])]
            return [*taken, *intake.flush()]


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("lines", STREAMS)
async def test_any_chunking_gives_the_same_frames_and_the_same_log(
    tmp_path: Path, lines: list[bytes], size: int
) -> None:
    path = tmp_path / "session-000001.ndjson"
    taken = await take(path, b"\n".join(lines), size)

    expected = (SMALL_FRAMES if lines != LARGE else []) + (LARGE_FRAMES if lines != SMALL else [])
    assert numbers(taken, asked=True) == expected
    assert numbers(taken, asked=False) == [MASK if number == SECRET else number for number in expected]
    assert {one.arrived_at for one in taken} == {NOON}
    written = b"".join(line.removesuffix(b"\r") + b"\n" for line in lines)
    assert path.read_bytes() == written.replace(SECRET.encode(), MASK.encode())


async def test_a_line_without_a_secret_is_read_once(tmp_path: Path) -> None:
    taken = await take(tmp_path / "session-000001.ndjson", b"\n".join(SMALL + LARGE), 65_536)

    assert [one.kept is one.asked for one in taken] == [SECRET not in str(one.asked) for one in taken]


async def test_short_output_starts_no_thread_and_long_output_leaves_none(tmp_path: Path) -> None:
    def threads() -> set[str]:
        return {thread.name for thread in threading.enumerate() if thread.name.startswith("decode")}

    async with SessionLog(tmp_path / "session-000001.ndjson") as sink:
        with OutputReader(redactor=Redactor([]), sink=sink, clock=Noon()) as intake:
            intake.push(b"\n".join(SMALL) + b"\n")
            intake.push(b"{}\n" * LONG)
            assert threads() == set()
            intake.push(b"\n".join(LARGE) + b"\n")
            assert len(threads()) == 1
    assert threads() == set()


async def test_short_lines_that_come_together_are_decoded_one_by_one_and_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []
    scans: list[int] = []

    class Counted(Redactor):
        def lines(self, raw: Sequence[bytes], joined: bytes | None = None) -> Sequence[bytes]:
            scans.append(len(raw))
            return super().lines(raw, joined)

    def counted(line: bytes) -> StreamFrame | Malformed | None:
        decoded.append(line)
        return decode(line)

    monkeypatch.setattr("claudeops.engine.session_log.writer.decode_abridged", counted)
    path = tmp_path / "session-000001.ndjson"
    async with SessionLog(path) as sink:
        with OutputReader(redactor=Counted([SECRET]), sink=sink, clock=Noon()) as intake:
            taken = iter(intake.push(b'{"type":"user"}\n' * LONG))
            await sink.sync()
            assert path.read_bytes() == b'{"type":"user"}\n' * LONG  # before anybody acts on a line
            next(taken)
            assert len(decoded) == 1
            assert sum(1 for _ in taken) == LONG - 1
    assert (scans, len(decoded)) == ([LONG], LONG)


async def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert await take(tmp_path / "session-000001.ndjson", b"", 1) == []
    assert (tmp_path / "session-000001.ndjson").read_bytes() == b""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_decoder_that_died_is_told_and_replaced() -> None:
    decoder = _Decoder()
    decoder.begin([None])  # type: ignore[list-item]
    dying = decoder._thread
    assert dying is not None
    assert decoder.result() is None
    dying.join(ENDS_WITHIN_SECONDS)  # what it died of is reported here, not in the test that happens to be next

    decoder.begin([b"{}"])
    assert decoder.result() == [StreamFrame(type="", subtype="", body={}, size=2)]
    decoder.close()


async def test_a_long_line_is_not_copied_to_be_scanned_or_written_with_those_that_come_with_its_end(
    tmp_path: Path,
) -> None:
    path, line = tmp_path / "session-000001.ndjson", b'{"type":"hm","n":"' + b"x" * LONGEST + b'"}'
    stream = line + b'\n{"type":"hm"}\n{"type":"hm"}\n'
    async with SessionLog(path) as sink:
        with OutputReader(redactor=Redactor([SECRET]), sink=sink, clock=Noon()) as intake:
            taken: list[DecodedLine] = []
            tracemalloc.start()
            try:
                for start in range(0, len(stream), CHUNK_BYTES):
                    taken += list(await intake.take(stream[start : start + CHUNK_BYTES]))
                    await sink.room()
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert len(taken) == 3
    assert path.read_bytes() == stream
    assert most < 1.2 * LONGEST


async def test_of_two_long_lines_the_first_is_let_go_of_before_the_second_comes(tmp_path: Path) -> None:
    line = b"x" * LONGEST + b"\n"
    async with SessionLog(tmp_path / "session-000001.ndjson") as sink:
        with OutputReader(redactor=Redactor([SECRET]), sink=sink, clock=Noon()) as intake:
            tracemalloc.start()
            try:
                for _ in range(2):
                    for start in range(0, len(line), CHUNK_BYTES):
                        list(await intake.take(line[start : start + CHUNK_BYTES]))
                        await sink.room()
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert most < 1.2 * LONGEST
