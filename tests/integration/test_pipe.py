"""The way of a CLI's output to us when somebody holds, floods or starves it: the result line is never lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from support.estate import deliver, look, report

if TYPE_CHECKING:
    from support.estate import Estate

pytestmark = pytest.mark.anyio


async def test_a_line_of_64_mebibytes_is_one_line_and_its_session_a_success(estate: Estate) -> None:
    row = await estate.finished({"line_of": 64 * 2**20}, look(), deliver(report()))
    assert (row["outcome"], row["malformed_lines"]) == ("success", 0)
    assert Path(estate.log_path(1)).read_bytes().index(b"\n") > 64 * 2**20


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
