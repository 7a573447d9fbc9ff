"""The way of a CLI's output to us when somebody holds, floods or starves it: the result line is never lost."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest

from claudeops.engine.recovery.replay import LogRead, read_log
from claudeops.formats.stream import LINE_BYTES
from support.estate import Estate, deliver, look, report
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio


ALMOST_ALL = LINE_BYTES - 1000  # of the longest line: the rest is for what stands around it


@pytest.mark.long  # many megabytes are one line in test_runner.py
async def test_a_line_of_almost_the_longest_is_one_line_and_its_session_a_success(estate: Estate) -> None:
    row = await estate.finished({"line_of": ALMOST_ALL}, look(), deliver(report()))
    assert (row["outcome"], row["malformed_lines"]) == ("success", 0)
    assert Path(estate.log_path(1)).read_bytes().index(b"\n") > ALMOST_ALL


async def test_a_line_that_is_longer_is_dropped_and_counted_and_its_session_goes_on(estate: Estate) -> None:
    row = await estate.finished({"raw": "planted-secret-value "}, {"line_of": LINE_BYTES}, look(), deliver(report()))
    assert (row["outcome"], row["decision_reason"], row["malformed_lines"]) == ("success", "healthy", 1)
    assert "malformed stream-json line skipped: longer than a line may be (line 1)" in str(row["warnings"])
    first, *others = Path(estate.log_path(1)).read_bytes().splitlines()
    assert re.fullmatch(rb"\[line dropped: 167\d{5} bytes, of which 16777216 can be taken\]", first)
    assert [json.loads(line)["type"] for line in others] == ["assistant", "control_request", "user", "result"]
    session = await estate.store.records.session(1)
    assert session is not None
    again = await read_log(session, estate.context)
    assert isinstance(again, LogRead)
    assert (again.complete, again.ending.malformed_lines) == (True, 1)


@pytest.mark.long  # another line that is too long is dropped above
async def test_a_result_that_is_too_long_is_no_result_and_no_success(estate: Estate) -> None:
    long = {"result": {"structured_output": report(), "result": "x" * LINE_BYTES}}
    estate.with_context(repair_turn=False)
    row = await estate.finished(look(), long, {"exit": 0})
    assert (row["outcome"], row["decision_reason"], row["malformed_lines"]) == ("no_result", "session_failed", 1)


async def test_stderr_without_an_end_of_line_is_dropped_and_what_follows_is_kept(estate: Estate) -> None:
    row = await estate.finished(
        {"stderr": "x" * 1000, "times": 3000}, {"stderr": "\nthe last words\n"}, look(), deliver(report())
    )
    assert row["outcome"] == "success"
    kept = Path(estate.log_path(1)).with_suffix(".stderr").read_text(encoding="utf-8").splitlines()
    assert kept == ["[line dropped: 3000000 bytes, of which 1048576 can be taken]", "the last words"]
    assert str(row["stderr_tail"]).endswith("the last words\n")


async def test_a_disk_that_stalls_pushes_back_on_the_cli_and_loses_nothing(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, write = threading.Event(), os.writev

    def stalling(file: int, parts: tuple[bytes, ...]) -> int:
        goes_on.wait(PATIENCE_SECONDS)
        return write(file, parts)

    monkeypatch.setattr(os, "writev", stalling)
    early, late = estate.root / "early", estate.root / "late"
    flood: list[Mapping[str, object]] = [{"line_of": 2**20}] * 5
    rows: list[dict[str, object]] = []

    async def run() -> None:
        steps = [*flood, {"touch": str(early)}, *flood * 5, {"touch": str(late)}]
        rows.append(await estate.finished(*steps, look(), deliver(report())))

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(early.exists)
            with anyio.move_on_after(1):  # many times what it takes to print the rest
                await until(late.exists)
            pushed_back = not late.exists()
            goes_on.set()
    assert pushed_back
    assert (rows[0]["outcome"], late.exists()) == ("success", True)
    assert Path(estate.log_path(1)).read_bytes().count(b"x" * 2**20) == 30


async def test_a_flood_of_short_lines_leaves_others_their_turns_on_the_event_loop(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, checkpoint = 0, anyio.lowlevel.checkpoint

    async def counted() -> None:
        nonlocal turns
        turns += 1
        await checkpoint()

    monkeypatch.setattr(anyio.lowlevel, "checkpoint", counted)
    row = await estate.finished({"raw": '{"type":"hm"}\n', "times": 50_000}, look(), deliver(report()))
    assert (row["outcome"], row["unknown_frames"]) == ("success", 50_000)
    assert turns > 50  # 200, but for the rest of each chunk


async def test_a_grandchild_that_holds_the_stream_delays_nothing_and_does_not_survive(estate: Estate) -> None:
    heir = estate.root / "heir.pid"
    row = await estate.finished({"heir": str(heir), "says": "x" * 10}, look(), deliver(report()), {"exit": 0})
    assert (row["outcome"], row["extraction_method"]) == ("success", "structured")
    assert not psutil.pid_exists(int(heir.read_text()))
    assert "stray_processes" in estate.logged.getvalue()


async def test_what_was_written_before_the_exit_is_read_after_it(estate: Estate) -> None:
    """More than the socket holds is still under way when the CLI has gone: it waits for us, not we for it."""
    row = await estate.finished(look(), deliver(report()), {"line_of": 2**21}, {"exit": 0})
    assert (row["outcome"], row["extraction_method"]) == ("success", "structured")
    assert len(json.dumps(estate.frames()[-1])) > 2**21


async def test_a_child_that_is_faster_than_we_are_loses_no_line(estate: Estate) -> None:
    lines = 20_000
    frame = json.dumps({"type": "system", "subtype": "noise", "text": "y" * 500}) + "\n"
    row = await estate.finished({"raw": frame, "times": lines}, look(), deliver(report()), {"exit": 0})
    assert row["outcome"] == "success"
    assert Path(estate.log_path(1)).read_bytes().count(b'"noise"') == lines


async def test_the_exit_status_is_the_clis_own(estate: Estate) -> None:
    row = await estate.finished(look(), deliver(report()), {"exit": 7})
    assert (row["outcome"], row["exit_code"]) == ("success", 7)
