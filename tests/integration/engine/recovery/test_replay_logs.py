"""Logs that are not what they should be are refused with a reason, long ones are read line by line."""

from __future__ import annotations

import json
import os
import random
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import zstandard

from claudeops.domain.chains.backfill import BackfillRejected, RejectionReason
from claudeops.engine.session_log.reader import packed_path
from claudeops.formats.stream import LINE_BYTES, StreamEvent, Transcript
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import FrameReader
from support.estate import Estate, report
from support.replays import line_of, lost_with_log, mark_lost, replay, replayed, result_line, tables
from support.streams import answered, said
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

SAID = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "I looked."}]}}
DELIVERED = result_line(report())
OTHER = "5e0b1bd8-0000-4000-8000-00000000dead"


async def refused(estate: Estate) -> BackfillRejected:
    before = tables(estate)
    with anyio.fail_after(PATIENCE_SECONDS):
        result = await replay(1, estate.context)
    assert isinstance(result, BackfillRejected), result
    assert tables(estate) == before
    return result


async def test_session_that_was_never_started_is_refused(estate: Estate) -> None:
    await estate.queue(tier=3)
    with estate.connect() as connection:
        connection.exec_driver_sql("UPDATE sessions SET status = 'ended', outcome = 'blocked'")

    assert (await refused(estate)).reason is RejectionReason.NO_LOG


async def test_session_of_a_harness_that_nobody_knows_is_refused(estate: Estate) -> None:
    await lost_with_log(estate, DELIVERED, harness="claude")
    with estate.connect() as connection:
        connection.exec_driver_sql("UPDATE sessions SET harness = 'telepathy'")

    result = await refused(estate)

    assert (result.reason, "telepathy" in result.message) == (RejectionReason.UNKNOWN_HARNESS, True)


def _missing(_: Path) -> None:
    pass


def _empty(path: Path) -> None:
    path.touch()


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def _binary(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(200_000))  # noqa: S311 - garbage, the same in every run


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(8192))


def _blank(path: Path) -> None:
    path.write_bytes(b"\n\r\n  \n")


def _scalars(path: Path) -> None:
    path.write_bytes(b'null\n42\n"x"\n[]\n')


@pytest.mark.parametrize(
    ("put", "reason", "says"),
    [
        (_missing, RejectionReason.LOG_MISSING, "of session 1 does not exist."),
        (_empty, RejectionReason.LOG_EMPTY, "of session 1 is empty."),
        (_directory, RejectionReason.LOG_UNREADABLE, "cannot be read: not a regular file."),
        (_pipe, RejectionReason.LOG_UNREADABLE, "cannot be read: not a regular file."),
        (_link_to_itself, RejectionReason.LOG_UNREADABLE, "cannot be read: Too many levels of symbolic links."),
        (_binary, RejectionReason.LOG_UNINTELLIGIBLE, "holds not one frame."),
        (_zeros, RejectionReason.LOG_UNINTELLIGIBLE, "holds not one frame."),
        (_blank, RejectionReason.LOG_UNINTELLIGIBLE, "holds not one frame."),
        (_scalars, RejectionReason.LOG_UNINTELLIGIBLE, "holds not one frame."),
    ],
)
async def test_log_that_says_nothing_is_refused_with_its_reason(
    estate: Estate, put: Callable[[Path], None], reason: RejectionReason, says: str
) -> None:
    await estate.queue()
    session = await estate.claim()
    put(Path(session.log_path or ""))
    await mark_lost(estate)

    result = await refused(estate)

    assert result.reason is reason
    assert result.message.startswith(f"The log {session.log_path} ")
    assert result.message.endswith(says)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(({**SAID, "session_id": OTHER}, DELIVERED), id="the first frame"),
        pytest.param((SAID, {"type": "system", "session_id": OTHER}, DELIVERED), id="a frame in the middle"),
        pytest.param((DELIVERED, {"type": "whatever", "session_id": OTHER}), id="a frame after the result"),
        pytest.param((DELIVERED, json.dumps({"session_id": OTHER}).encode()), id="a last line without an end"),
    ],
)
async def test_log_with_a_single_frame_of_another_session_is_refused(estate: Estate, lines: tuple[object, ...]) -> None:
    session = await lost_with_log(estate, *lines)

    result = await refused(estate)

    assert result.reason is RejectionReason.OTHER_SESSION
    assert f"is of the CLI session {OTHER}, not of {session.cli_session_id}" in result.message


@pytest.mark.parametrize("name", ["", None, 7, ["x"]])
async def test_log_that_says_not_whose_it_is_is_refused(estate: Estate, name: object) -> None:
    await lost_with_log(estate, {**SAID, "session_id": name}, {**DELIVERED, "session_id": name})

    assert (await refused(estate)).reason is RejectionReason.UNNAMED_SESSION


async def test_id_of_another_session_inside_a_frame_is_no_objection(estate: Estate) -> None:
    inner = {"type": "user", "message": {"content": [{"type": "tool_result", "session_id": OTHER}]}}
    await lost_with_log(estate, inner, DELIVERED)

    await replayed(estate)

    assert estate.row(1)["cost_usd"] == 0.01


async def test_garbage_around_the_frames_costs_no_result(estate: Estate) -> None:
    garbage = random.Random(7).randbytes(50_000) + b"\n"  # noqa: S311 - the same in every run
    await lost_with_log(estate, garbage, SAID, garbage, DELIVERED, garbage)

    await replayed(estate)

    row = estate.row(1)
    assert (row["extraction_method"], row["response"], row["cost_usd"]) == ("structured", "I looked.", 0.01)
    assert int(str(row["malformed_lines"])) > 3


async def test_log_that_an_editor_gave_other_line_ends_is_read(estate: Estate) -> None:
    session = await lost_with_log(estate, b"\xef\xbb\xbf", SAID, DELIVERED)
    path = Path(session.log_path or "")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    await replayed(estate)

    assert estate.row(1)["response"] == "I looked."


async def test_long_log_is_not_held_in_memory(estate: Estate) -> None:
    session = await lost_with_log(estate, SAID, DELIVERED)
    progress = line_of({"type": "stream_event", "padding": "x" * 8192}, session)
    path = Path(session.log_path or "")
    path.write_bytes(progress * 2500 + path.read_bytes())
    size = path.stat().st_size

    tracemalloc.start()
    try:
        result = await replayed(estate)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert result.frames == 2502
    assert peak < size / 4


async def test_results_and_texts_of_a_long_log_are_not_held_while_it_is_read(estate: Estate) -> None:
    texts = (f"{number} " + "x" * 200_000 for number in range(150))
    lines = (line for number, text in enumerate(texts) for line in (said(text), answered(f"toolu_{number}", text)))
    await lost_with_log(estate, *lines, DELIVERED)
    tracemalloc.start()
    try:
        result = await replayed(estate)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(result.ending.tool_ends) == 150
    assert estate.row(1)["cost_usd"] == 0.01
    assert peak < 24 * 1024 * 1024  # the log has 60 MB


async def test_result_in_one_line_of_many_megabytes_is_taken(estate: Estate) -> None:
    await lost_with_log(estate, {**DELIVERED, "padding": "x" * 16_000_000})

    await replayed(estate)

    assert estate.row(1)["cost_usd"] == 0.01


async def test_a_packed_log_that_unpacks_to_one_line_without_an_end_is_read_in_little_memory(estate: Estate) -> None:
    session = await lost_with_log(estate, SAID, DELIVERED)
    path = Path(session.log_path or "")
    whole = path.read_bytes()
    first, rest = whole.split(b"\n", 1)
    path.unlink()
    with packed_path(path).open("wb") as target, zstandard.ZstdCompressor().stream_writer(target) as writer:
        writer.write(first + b"\n")
        for _ in range(600):
            writer.write(b"x" * 1_000_000)
        writer.write(b"\n" + rest)

    tracemalloc.start()
    try:
        result = await replayed(estate)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (result.frames, result.ending.malformed_lines) == (2, 1)
    assert estate.row(1)["cost_usd"] == 0.01
    assert peak < 5 * LINE_BYTES  # not the 600 MB of the line


class Halting(ClaudeHarness):
    """Reads one line and waits until it is let go."""

    def __init__(self) -> None:
        self.lines = 0
        self.inside, self.let_go = threading.Event(), threading.Event()

    def reader(self) -> FrameReader:
        return self

    def feed(self, _: object) -> tuple[StreamEvent, ...]:
        self.lines += 1
        self.inside.set()
        assert self.let_go.wait(PATIENCE_SECONDS)
        return ()

    def close(self) -> Transcript:
        return Transcript()


async def test_replay_that_is_cancelled_stops_reading_and_writes_nothing(estate: Estate) -> None:
    await lost_with_log(estate, *[SAID] * 1000, DELIVERED)
    before, halting = tables(estate), Halting()
    estate.with_context(harnesses={"claude": halting})

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replay, 1, estate.context)
            await anyio.to_thread.run_sync(halting.inside.wait)
            tasks.cancel_scope.cancel()
    # Only now: a cancellation is delivered later than it is asked for, and the reader would go on meanwhile.
    halting.let_go.set()

    assert halting.lines == 1
    assert tables(estate) == before
