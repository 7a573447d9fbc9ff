"""Sessions on a CLI that takes one task and cannot be asked, answered or repaired: codex and caliban."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.sessions import Ending
from claudeops.domain.stream.transcript import TEXT_CHARACTERS
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.harness.protocol import CredentialKind, ModelAccess
from claudeops.policy.tiers import tier_policy
from claudeops.structs import replace
from support.aftermath import runs
from support.estate import Estate, report
from support.policy_cases import POLICY
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

SECRET = "planted-secret-value"
STARTED = {"type": "thread.started", "thread_id": "th_1"}
TURN = {"type": "turn.started"}
USAGE = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 9, "reasoning_output_tokens": 3}
DONE = {"type": "turn.completed", "usage": USAGE}


def command(status: str = "completed") -> dict[str, Any]:
    item = {"id": "c1", "type": "command_execution", "command": "uptime", "aggregated_output": "up", "status": status}
    return {"type": "item.completed", "item": item}


def message(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "m1", "type": "agent_message", "text": text}}


def caliban_lines(**result: Any) -> list[dict[str, Any]]:
    content = [{"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "uptime"}}]
    return [
        {
            "type": "system",
            "subtype": "init",
            "session_id": "c-1",
            "model": "anthropic/m",
            "permission_mode": "default",
        },
        {"type": "message", "role": "assistant", "content": content},
        {"type": "tool_result", "tool_use_id": "a", "is_error": False, "content": [{"type": "text", "text": "up"}]},
        {"type": "result", "subtype": "success", "session_id": "c-1", "total_cost_usd": 0.02, **result},
    ]


# --- a whole session ----------------------------------------------------------------------------------


async def test_codex_session_leaves_its_row_its_log_and_nothing_else(estate: Estate) -> None:
    lines = [STARTED, TURN, command(), message(json.dumps(report())), DONE]
    row = await estate.one_shot("codex", lines=lines)
    assert (row["harness"], row["outcome"], row["decision_reason"]) == ("codex", "success", "healthy")
    assert (row["extraction_method"], row["calls_ran"], row["tool_calls_seen"]) == ("structured", 1, 1)
    assert (row["cli_session_id"], row["input_tokens"], row["output_tokens"]) == ("th_1", 100, 9)
    assert row["cost_usd"] is None, "codex does not say what it cost, and nobody makes it up"
    assert estate.frames() == lines
    assert estate.rows("SELECT * FROM tool_calls") == []
    assert not list((estate.root / "state" / "sessions").glob("*"))


async def test_codex_is_given_its_prompt_its_schema_and_no_account_of_ours(estate: Estate) -> None:
    seen_file = estate.root / "seen.json"
    estate.with_context(access=ModelAccess(credential=CredentialKind.API_KEY, secret=SECRET))
    await estate.one_shot("codex", seen=str(seen_file), lines=[DONE])
    seen = json.loads(seen_file.read_text())
    assert "Look at everything." in seen["stdin"]
    assert "# Environment of this session" in seen["stdin"]
    assert set(seen["schema"]["required"]) == set(json.loads(estate.context.completion.schema.minified)["properties"])
    assert SECRET not in json.dumps(seen)
    assert seen["descriptors"] == [], "nor is there one to read it from"
    assert seen["env"]["CODEX_HOME"] == f"{seen['env']['HOME']}/.codex"
    assert "read-only" in seen["argv"]


async def test_caliban_session_is_healthy_by_its_own_frames(estate: Estate) -> None:
    row = await estate.one_shot("caliban", lines=caliban_lines(structured_output=report(), num_turns=2))
    assert (row["harness"], row["outcome"], row["decision_reason"]) == ("caliban", "success", "healthy")
    assert (row["cli_session_id"], row["cost_usd"], row["calls_ran"]) == ("c-1", 0.02, 1)


async def test_tier_that_may_write_gets_the_sandbox_for_it_but_not_in_a_dry_run(estate: Estate) -> None:
    seen_file = estate.root / "seen.json"
    estate.with_context(tiers={1: replace(estate.context.tiers[1], policy=tier_policy(POLICY, 2))})
    await estate.one_shot("codex", seen=str(seen_file), lines=[DONE])
    assert "workspace-write" in json.loads(seen_file.read_text())["argv"]
    estate.with_context(rules=replace(estate.context.rules, dry_run=True))
    await estate.one_shot("codex", seen=str(seen_file), lines=[DONE])
    assert "read-only" in json.loads(seen_file.read_text())["argv"]


# --- evidence without a gate --------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [[], [command("declined")]], ids=["no call", "declined call"])
async def test_healthy_report_without_a_call_that_ran_is_no_health(estate: Estate, calls: list[dict[str, Any]]) -> None:
    row = await estate.one_shot("codex", lines=[STARTED, TURN, *calls, message(json.dumps(report())), DONE])
    assert (row["decision_reason"], row["calls_ran"]) == ("no_evidence", 0)


async def test_harness_without_a_gate_does_not_run_unless_the_operator_says_so(estate: Estate) -> None:
    seen = estate.root / "seen.json"
    estate.script_one_shot(seen=str(seen), lines=[DONE])
    await estate.queue(harness="codex")
    ending = await SessionRunner(context=estate.context).run(await estate.claim(), StopControl())
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    row = estate.row(ending.session_id)
    assert (row["outcome"], row["decision_reason"]) == ("spawn_failed", "session_failed")
    assert "CLAUDEOPS_ALLOW_UNGATED" in str(row["error"])
    assert not seen.exists()


async def test_row_for_a_harness_that_is_configured_no_more_does_not_run(estate: Estate) -> None:
    estate.with_context(binaries={"claude": estate.context.clis.binaries["claude"]})
    row = await estate.one_shot("codex", lines=[DONE])
    assert row["outcome"] == "spawn_failed"
    assert "no tier is configured to run on codex" in str(row["error"])


async def test_row_for_a_tier_that_is_configured_no_more_does_not_run(estate: Estate) -> None:
    estate.with_context(tiers={2: estate.context.tiers[2]})
    row = await estate.one_shot("codex", lines=[DONE])
    assert (row["outcome"], row["error"]) == ("spawn_failed", "tier 1 is not configured")


# --- what it leaves behind ----------------------------------------------------------------------------


async def test_link_in_place_of_the_last_message_leads_nowhere(estate: Estate) -> None:
    elsewhere = estate.root / "elsewhere"
    elsewhere.write_text("what no session may read")
    row = await estate.one_shot("codex", lines=[STARTED, TURN, DONE], link=str(elsewhere))
    assert row["response"] is None


async def test_row_has_both_ends_of_a_text_of_megabytes_and_the_log_all_of_it(estate: Estate) -> None:
    text = "first words " + "x" * TEXT_CHARACTERS + json.dumps(report())
    row = await estate.one_shot("codex", lines=[STARTED, TURN, message(text), DONE])
    assert (row["outcome"], row["extraction_method"]) == ("success", "salvaged")
    for column in ("response", "last_assistant_text"):
        kept = str(row[column])
        assert kept.startswith("first words x")
        assert kept.endswith(text[-TEXT_CHARACTERS // 2 :])
        assert len(kept) < TEXT_CHARACTERS + 100
    assert text in json.loads(Path(estate.log_path(1)).read_bytes().splitlines()[2])["item"]["text"]


async def test_secret_in_the_last_message_reaches_no_row(estate: Estate) -> None:
    row = await estate.one_shot("codex", lines=[STARTED, TURN, DONE], last=f"the password is {SECRET}")
    assert "the password is" in str(row["response"])
    assert SECRET not in json.dumps(estate.rows("SELECT * FROM sessions"), default=str)


async def test_line_of_stderr_that_may_open_an_account_reaches_no_file_and_no_row(estate: Estate) -> None:
    row = await estate.one_shot("codex", lines=[DONE], stderr="OPENAI_API_KEY=unknown-to-us\nand on it goes\n")
    assert row["stderr_tail"] == "<line redacted: matched auth-leak pattern>\nand on it goes\n"
    assert "unknown-to-us" not in Path(str(row["log_path"])).with_suffix(".stderr").read_text()


async def test_prompt_that_it_never_reads_ends_no_session_of_ours(estate: Estate) -> None:
    estate.with_context(binaries={**estate.context.clis.binaries, "codex": Path("/bin/false")})
    row = await estate.one_shot("codex")
    assert (row["outcome"], row["exit_code"]) == ("no_output", 1)


# --- clocks and the stop ladder -----------------------------------------------------------------------


async def test_turn_after_a_completed_one_is_waited_for(estate: Estate) -> None:
    estate.with_context(timeouts=replace(estate.context.timeouts, result_grace=0.2, silence=1, stop_grace=2))
    reached = str(estate.root / "reached")
    row = await estate.one_shot("codex", lines=[STARTED, TURN, DONE, TURN], hang="SIGINT", touch=reached)
    assert row["outcome"] == "stalled"


async def test_codex_that_does_not_leave_after_its_last_turn_is_stopped_and_stays_a_success(estate: Estate) -> None:
    estate.with_context(timeouts=replace(estate.context.timeouts, result_grace=0.3, stop_grace=2))
    reached = str(estate.root / "reached")
    lines = [STARTED, TURN, command(), message(json.dumps(report())), DONE]
    row = await estate.one_shot("codex", lines=lines, hang="SIGINT", touch=reached)
    assert (row["outcome"], row["decision_reason"]) == ("success", "healthy")


@pytest.mark.parametrize(
    ("heeds", "exit_code"), [("SIGINT", 124), ("SIGTERM", -15), ("SIGKILL", -9)], ids=["SIGINT", "SIGTERM", "SIGKILL"]
)
async def test_cli_without_a_control_channel_is_stopped_by_signals_with_all_it_started(
    estate: Estate, heeds: str, exit_code: int
) -> None:
    estate.with_context(timeouts=replace(estate.context.timeouts, stop_grace=1), allow_ungated=("caliban",))
    reached, stray = estate.root / "reached", estate.root / "stray.pid"
    estate.script_one_shot(lines=caliban_lines()[:1], stray=str(stray), hang=heeds, touch=str(reached))
    await estate.queue(harness="caliban")
    session, control = await estate.claim(), StopControl()
    endings: list[Ending] = []

    async def run() -> None:
        endings.append(await SessionRunner(context=estate.context).run(session, control))

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(reached.exists)
            control.stop(StopCause.CANCELLED)
    assert (endings[0].outcome, endings[0].exit_code) == ("cancelled", exit_code)
    assert not runs(int(stray.read_text()))


@pytest.mark.parametrize(
    ("harness", "lines", "named"),
    [("codex", [STARTED, TURN], "th_1"), ("caliban", caliban_lines()[:1], "c-1")],
    ids=["codex", "caliban"],
)
async def test_row_knows_the_clis_own_session_id_while_it_still_runs(
    estate: Estate, harness: str, lines: list[dict[str, Any]], named: str
) -> None:
    estate.with_context(timeouts=replace(estate.context.timeouts, stop_grace=1), allow_ungated=(harness,))
    estate.script_one_shot(lines=lines, hang="SIGINT", touch=str(estate.root / "reached"))
    await estate.queue(harness=harness)
    session, control = await estate.claim(), StopControl()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(SessionRunner(context=estate.context).run, session, control)
            await until(lambda: estate.row(session.id)["cli_session_id"] == named)
            control.stop(StopCause.CANCELLED)
    assert estate.row(session.id)["status"] == "running"  # its end is still to be written
