"""Known failures of headless CLI sessions: processes that stay behind, hang, or eat the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from claudeops.domain.sessions import Outcome
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.cgroups import Bounds
from claudeops.structs import replace
from support import cli
from support.aftermath import assert_settled, runs
from support.caged import caged, daemon_output
from support.estate import Estate, deliver, look, report

pytestmark = pytest.mark.anyio

NUMBER = 900_000 + os.getpid()  # tells our sleepers from those of another run of these tests


def sleepers() -> list[int]:
    """Return the processes of this run that sleep for `NUMBER` seconds and a fraction."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        arguments = process.info["cmdline"] or []
        if arguments[:1] and arguments[0].endswith("sleep") and arguments[-1].startswith(f"{NUMBER}."):
            found.append(process.pid)
    return found


async def test_row_18_grandchildren_are_orphaned(estate: Estate) -> None:
    stray, heir = estate.root / "stray.pid", estate.root / "heir.pid"
    leaving = [{"stray": str(stray)}, {"heir": str(heir), "says": "late"}]
    row = await estate.finished(*leaving, look(), deliver(report()), {"exit": 0})
    assert (row["outcome"], row["decision_reason"]) == ("success", "healthy")
    assert not runs(int(stray.read_text()))
    assert not runs(int(heir.read_text()))
    assert "stray_processes" in estate.logged.getvalue()


async def test_row_18_and_so_when_their_cli_dies_without_a_word(estate: Estate) -> None:
    stray = estate.root / "stray.pid"
    row = await estate.finished({"stray": str(stray)}, look(), {"die": "SIGKILL"})
    assert (row["outcome"], row["exit_code"]) == ("no_result", -9)
    assert not runs(int(stray.read_text()))


async def test_row_21_tool_of_an_mcp_server_hangs(estate: Estate) -> None:
    """The CLI says that it lives for as long as the server hangs, which proves nothing about the server."""
    estate.with_context(
        timeouts=replace(estate.context.timeouts, session=300, startup=300, silence=0.5, tool_margin=0.2)
    )
    use = {"type": "tool_use", "id": "toolu_5", "name": "mcp__grafana__query", "input": {}}
    opened = {"frame": {"type": "assistant", "message": {"content": [use]}}}
    progress = {"frame": {"type": "tool_progress", "tool_use_id": "toolu_5", "tool_name": "mcp__grafana__query"}}
    row = await estate.finished(look(), opened, {"repeat": progress, "every": 0.05})
    assert (row["outcome"], row["decision_reason"]) == ("stalled", "session_failed")
    assert "did not come back" in str(row["error"])


async def test_row_21_call_that_an_mcp_server_never_answers_is_ended_by_the_cli_and_the_session_goes_on(
    tmp_path: Path, mcp_server: Path
) -> None:
    ask: Mapping[str, object] = {"text": "I ask.", "tool": {"name": "mcp__grafana__hang", "input": {}}}
    async with caged(tmp_path, IsolationLevel.NONE, "uptime", steps=[ask]) as cage:
        timeouts = replace(cage.estate.context.timeouts, silence=6)
        cage.estate.with_context(mcp_servers={"grafana": {"command": str(mcp_server)}}, timeouts=timeouts)
        ending = await cage.run()
        [answer, *_] = cage.outputs()
    assert (ending.outcome, ending.calls_ran) == (Outcome.SUCCESS, 2)
    assert "timed out" in answer


async def test_row_21_mcp_server_hangs_from_the_start_and_does_not_survive(tmp_path: Path) -> None:
    """The real CLI, whose server never answers: the session begins without it, and nothing of it is left."""
    server = {"command": "/bin/sleep", "args": [f"{NUMBER}.1"]}
    async with caged(tmp_path, IsolationLevel.NONE, "uptime", MCP_TIMEOUT="500") as cage:
        cage.estate.with_context(mcp_servers={"grafana": server})
        ending = await cage.run()
        await cage.estate.store.queue.finish(ending, rules=cage.estate.context.rules)
        assert_settled(cage.estate)
    assert ending.outcome is Outcome.ERROR
    assert sleepers() == []


async def test_row_22_session_leaks_memory(estate: Estate) -> None:
    estate.with_context(session_memory_mb=150)
    row = await estate.finished(look(), {"eat": 200}, {"hang": True})
    assert (row["outcome"], row["decision_reason"], row["cost_usd"]) == ("out_of_memory", "session_failed", 0.01)


@pytest.mark.parametrize(
    ("bounds", "step", "outcome"),
    [
        (Bounds(processes=64), {"fork": 80}, "out_of_processes"),
        (Bounds(disk_mb=4), {"fill": 5}, "out_of_disk"),
        (Bounds(file_mb=1), {"fill": 8}, "file_too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_row_22_session_leaks_processes_and_disk(
    estate: Estate, bounds: Bounds, step: dict[str, object], outcome: str
) -> None:
    estate.with_context(bounds=bounds)
    row = await estate.finished(look(), step, {"hang": True})
    told = estate.rows("SELECT level, fingerprint FROM events")
    assert (row["outcome"], row["decision_reason"], row["cost_usd"]) == (outcome, "session_failed", 0.01)
    assert {"level": "warning", "fingerprint": outcome} in told


async def test_row_30_zombies_of_a_daemon_that_does_not_reap(tmp_path: Path) -> None:
    """The real CLI below a daemon of its own; its tools leave orphans by the dozen, which end one after the other."""
    orphans = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid sleep 0.0$n > /dev/null 2>&1 &); done; sleep 0.3"
    said = await daemon_output(tmp_path, orphans, binary=cli.binary())
    assert "success 0" in said, said
    assert "children left: []" in said, said
