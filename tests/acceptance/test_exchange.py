"""``exec-command`` as a stream with the real CLI: alone, and beside a running daemon."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from support.operating import Completed, Operator, conclude, look, operator
from support.senders import starts_nothing
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

CALL: Final = "import sys; from claudeops.cli.tiers.stream import run_exchange as run; sys.exit(run({}))"


async def call(node: Operator, arguments: str, stdin: str = "", **environment: str) -> Completed:
    with anyio.fail_after(PATIENCE_SECONDS):
        done = await anyio.run_process(
            [sys.executable, "-c", CALL.format(arguments)],
            input=stdin.encode(),
            env=node.environment(**environment),
            cwd=node.root,
            check=False,
        )
    return Completed(done.returncode, done.stdout.decode(), done.stderr.decode())


def frames(done: Completed) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_a_stream_shows_calls_and_texts_between_its_first_and_its_last_frame(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        two = '{"type":"user","content":"Look at web."}\n{"type":"user","content":"Look again."}\n'
        done = await call(node, "1, None, input_format='stream-json'", two)
        sessions = node.sessions()
    printed = frames(done)
    assert done.code == 0, done
    assert [row["prompt_text"] for row in sessions] == ["Look at web.", "Look again."]
    kinds = [(frame["type"], frame.get("subtype")) for frame in printed]
    assert (kinds[0], kinds[-1]) == (("system", "init"), ("result", "success"))
    assert kinds.count(("system", "init")) == kinds.count(("result", "success")) == 1
    calls = [frame for frame in printed if frame["type"] == "tool_use" and frame["name"] == "Bash"]
    assert [frame["input"]["command"] for frame in calls] == ["uptime", "uptime"]
    answered = {frame["tool_use_id"] for frame in printed if frame["type"] == "tool_result"}
    assert {frame["id"] for frame in calls} <= answered
    assert (printed[0]["model"], printed[0]["session_id"]) == ("anthropic/haiku", "1")
    last = printed[-1]
    assert (last["session_id"], last["num_turns"] >= 2, last["total_cost_usd"] > 0) == ("2", True, True)


async def test_text_comes_from_stdin_and_beside_a_daemon_the_daemon_runs_it(tmp_path: Path) -> None:
    async with (
        operator(tmp_path, haiku=[look(), conclude()]) as node,
        node.daemon(**starts_nothing(tmp_path)) as daemon,
    ):
        await daemon.until_logged("daemon_ready")
        done = await call(node, "1, '-', output_format='text'", "Why so slow?\n")
        empty = await call(node, "1, '-'", " \n")
        asked = [row["prompt_text"] for row in node.sessions() if row["trigger"] == "manual"]
    assert (done.code, asked) == (0, ["Why so slow?"]), done
    assert done.stdout.strip()
    assert empty.code == 66
    assert [frame["type"] for frame in frames(empty)] == ["system", "result"]


async def test_a_tier_above_the_highest_is_a_result_frame(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[conclude()]) as node:
        done = await call(node, "2, 'Repair web.'", CLAUDEOPS_MAX_TIER="1")
    assert (done.code, [frame["type"] for frame in frames(done)]) == (1, ["system", "result"])
    assert "highest tier allowed is 1" in frames(done)[-1]["error"]
