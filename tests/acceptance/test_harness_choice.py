"""The operator's choice of a harness, from the environment to the rows; the CLIs are stand-ins."""

from __future__ import annotations

import json
import posixpath
import sys
from pathlib import Path

import pytest

from support.doses import drawn
from support.estate import ONE_SHOT, report
from support.operating import Operator, conclude, operator

pytestmark = pytest.mark.anyio

COMMAND = {"id": "c1", "type": "command_execution", "command": "uptime", "status": "completed"}
CALL = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "uptime"}}


def choice(node: Operator, *lines: dict[str, object]) -> dict[str, str]:
    """Return variables that put tier 1 on codex and tier 2 on caliban; each reads of the lines what it knows."""
    steps = node.root / "steps.json"
    steps.write_text(json.dumps({"lines": [json.dumps(line) for line in lines]}))
    return {
        "PATH": f"{posixpath.dirname(sys.executable)}:/usr/bin:/bin",  # the stand-ins are Python
        "STAND_IN_STEPS": str(steps),
        "CLAUDEOPS_MAX_TIER": "2",
        "CLAUDEOPS_HARNESS": "codex",
        "CLAUDEOPS_CELL_NETWORK": "shared",  # else the daemon looks up where these CLIs find their models
        "CLAUDEOPS_TIER2_HARNESS": "caliban",
        "CLAUDEOPS_TIER2_MODEL": "openai/gpt-5.5",
        "CLAUDEOPS_TIER1_ENV": "STAND_IN_STEPS",
        "CLAUDEOPS_TIER2_ENV": "STAND_IN_STEPS",
        "CLAUDEOPS_CODEX_BIN": str(ONE_SHOT),
        "CLAUDEOPS_CALIBAN_BIN": str(ONE_SHOT),
    }


async def test_a_chain_climbs_from_one_harness_to_another(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[conclude()]) as node:  # nobody asks that model
        chosen = choice(
            node,
            {"type": "thread.started", "thread_id": "th_1"},
            {"type": "turn.started"},
            {"type": "item.completed", "item": COMMAND},
            {"type": "item.completed", "item": {"type": "agent_message", "text": json.dumps(report(needed=True))}},
            {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
            {"type": "message", "role": "assistant", "content": [CALL]},
            {"type": "tool_result", "tool_use_id": "a", "content": []},
            {"type": "result", "subtype": "success", "session_id": "c-1", "structured_output": report()},
        )
        done = await node.bootstrap(CLAUDEOPS_ALLOW_UNGATED="codex,caliban", ANTHROPIC_API_KEY="", **chosen)
    rows = [(row["harness"], row["model"], row["outcome"], row["decision_reason"]) for row in node.sessions()]
    assert rows == [
        ("codex", "gpt-5-codex", "success", "escalated"),
        ("caliban", "openai/gpt-5.5", "success", "healthy"),
    ], [row["stderr_tail"] for row in node.sessions()]
    assert done.code == 0


@pytest.mark.parametrize("command", drawn(["run", "bootstrap"]))
async def test_a_harness_without_a_gate_is_refused_before_anything_starts(tmp_path: Path, command: str) -> None:
    async with operator(tmp_path, haiku=[conclude()]) as node:  # that model is never called
        node.forget_database()
        # Nor is its program looked for: whether it may run comes first.
        chosen = choice(node) | {"CLAUDEOPS_CALIBAN_BIN": "", "CLAUDEOPS_ALLOW_UNGATED": "codex"}
        done = await node.run(command, **chosen)
    assert (done.code, done.stdout) == (78, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("claudeops: Tier 2 would run on caliban, which has no gate")
    assert "CLAUDEOPS_ALLOW_UNGATED" in sentence
    assert not node.database.exists()
