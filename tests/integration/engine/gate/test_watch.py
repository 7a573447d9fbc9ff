"""A CLI that does what the gate did not allow, or says what it cannot know, is ended; what it refuses is on record."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.sessions import Outcome
from claudeops.engine.gate.gate import CallWatch
from claudeops.formats.stream import ToolEnded, ToolStarted
from claudeops.formats.stream.tallies import HELD_INPUT_BYTES, MOST_CALLS
from claudeops.policy.repetition import STOPPED_AFTER, Repetition
from claudeops.structs import replace
from support.estate import Estate, deliver, look, report

pytestmark = pytest.mark.anyio

DENY = Verdict(kind=VerdictKind.DENY, reason="not at this tier")


def tool(**about: object) -> dict[str, object]:
    given = {"id": "toolu_1", "name": "Bash", "input": {"command": "uptime"}, **about}
    return {"tool": given}


def criticals(estate: Estate) -> list[object]:
    return [row["message"] for row in estate.rows("SELECT message FROM events WHERE level = 'critical'")]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        pytest.param(tool(ungated=True), "ran without the gate's yes (toolu_1)", id="it ran"),
        pytest.param(
            tool(ungated=True, fails=True, output="Exit code 1"),
            "the gate was never asked about (toolu_1)",
            id="it failed",
        ),
    ],
)
async def test_a_call_that_the_gate_was_never_asked_about_ends_the_session(
    estate: Estate, step: dict[str, object], said: str
) -> None:
    row = await estate.finished(step, {"hang": True})
    assert (row["outcome"], row["decision_reason"]) == ("ungated_call", "session_failed")
    assert any(said in str(message) for message in criticals(estate))


WRITTEN = Verdict(kind=VerdictKind.ALLOW, reason="only looks", ran={"command": "/usr/bin/uptime"})


@pytest.mark.parametrize("verdict", [WRITTEN, replace(WRITTEN, ran=None)], ids=["written anew", "as it was"])
async def test_a_call_that_ran_with_another_command_than_the_yes_was_for_ends_the_session(
    estate: Estate, verdict: Verdict
) -> None:
    estate.with_judge(lambda _call, _workspace: verdict)
    row = await estate.finished(tool(ran={"command": "uptime; id"}), {"hang": True})
    assert (row["outcome"], row["decision_reason"]) == ("ungated_call", "session_failed")
    said = "a tool call ran with another command than the gate's yes was for (toolu_1)"
    assert any(said in str(message) for message in criticals(estate))


async def test_a_command_that_ran_with_more_than_was_judged_ends_the_session(estate: Estate) -> None:
    estate.with_judge(lambda _call, _workspace: WRITTEN)
    row = await estate.finished(tool(ran={"command": "/usr/bin/uptime", "run_in_background": True}), {"hang": True})
    assert row["outcome"] == "ungated_call"
    assert any("with another run_in_background" in str(message) for message in criticals(estate))


async def test_a_call_that_ran_as_the_yes_was_for_is_no_fault(estate: Estate) -> None:
    estate.with_judge(lambda _call, _workspace: WRITTEN)
    row = await estate.finished(tool(ran={"command": "/usr/bin/uptime"}), deliver(report()))
    assert row["outcome"] == "success"
    assert criticals(estate) == []


async def test_a_result_line_while_an_allowed_call_is_open_is_not_believed(estate: Estate) -> None:
    row = await estate.finished(tool(left_open=True), deliver(report()), {"hang": True})
    assert row["outcome"] == "ungated_call"
    assert any("a result line came while 1 allowed calls were open" in str(message) for message in criticals(estate))


async def test_a_limit_of_the_clis_own_may_end_a_turn_with_a_call_open(estate: Estate) -> None:
    limit = {"result": {"subtype": "error_max_budget_usd", "is_error": False}}
    row = await estate.finished(tool(left_open=True), limit)
    assert row["outcome"] == "budget_exceeded"


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        pytest.param({"tools": ["Bash", "Read", "Write"]}, "tools that were not asked for: Write", id="tools"),
        pytest.param({"permissionMode": "bypassPermissions"}, "permission mode 'bypassPermissions'", id="mode"),
        pytest.param(
            {"mcp_servers": [{"name": "evil", "status": "connected"}]},
            "MCP servers that were not asked for: evil",
            id="servers",
        ),
        pytest.param(
            {"tools": ["Bash", "mcp__evil__run"]}, "tools that were not asked for: mcp__evil__run", id="theirs"
        ),
    ],
)
async def test_an_init_line_that_grants_more_ends_the_session(
    estate: Estate, frame: dict[str, object], said: str
) -> None:
    init = {"type": "system", "subtype": "init", "permissionMode": "dontAsk", "tools": ["Bash", "Read"], **frame}
    row = await estate.finished({"frame": init}, {"hang": True})
    assert row["outcome"] == "ungated_call"
    assert any(said in str(message) for message in criticals(estate))


async def test_a_change_of_the_permission_mode_on_the_way_ends_the_session(estate: Estate) -> None:
    changed = {"type": "system", "subtype": "status", "permissionMode": "acceptEdits"}
    row = await estate.finished({"frame": changed}, {"hang": True})
    assert row["outcome"] == "ungated_call"


async def test_what_the_cli_refuses_before_it_asks_is_on_record_and_no_evidence(estate: Estate) -> None:
    unknown = "<tool_use_error>Error: No such tool available: Nope</tool_use_error>"
    row = await estate.finished(tool(name="Nope", ungated=True, fails=True, output=unknown), deliver(report()))
    (call,) = estate.rows("SELECT * FROM tool_calls")
    assert (call["tool_name"], call["verdict"], call["is_error"]) == ("Nope", "deny", 1)
    assert call["reason"] == "refused by the CLI itself: Error: No such tool available: Nope"
    assert call["input"] == '{"command": "uptime"}'
    assert row["audit_head"] == call["hash"]
    assert (row["outcome"], row["calls_ran"], row["decision_reason"]) == ("success", 0, "no_evidence")


async def test_what_the_cli_refuses_after_our_yes_is_on_record_and_no_evidence(estate: Estate) -> None:
    refused = {
        "frame": {
            "type": "system",
            "subtype": "permission_denied",
            "tool_name": "Bash",
            "tool_use_id": "toolu_1",
            "message": "Permission to use Bash has been denied",
        }
    }
    row = await estate.finished(tool(fails=True), refused, deliver(report()))
    assert [(call["verdict"], call["is_error"]) for call in estate.rows("SELECT * FROM tool_calls ORDER BY id")] == [
        ("allow", 1),
        ("deny", 1),
    ]
    assert (row["calls_ran"], row["decision_reason"]) == (0, "no_evidence")


async def test_the_same_failing_call_ends_the_session_after_it_was_told(estate: Estate) -> None:
    steps = [tool(id=f"toolu_{number}", fails=True, output="Exit code 7") for number in range(STOPPED_AFTER)]
    row = await estate.finished(*steps, {"hang": True})
    assert (row["outcome"], row["error"]) == ("error", "ended: it repeated what had failed again and again")
    reasons = [str(call["reason"]) for call in estate.rows("SELECT reason FROM tool_calls WHERE verdict = 'deny'")]
    assert reasons
    assert all("do something else" in reason for reason in reasons)


async def test_a_denied_call_that_is_repeated_ends_the_session_too(estate: Estate) -> None:
    estate.with_judge(lambda _call, _workspace: DENY)
    row = await estate.finished(*[look(f"toolu_{number}") for number in range(STOPPED_AFTER)], {"hang": True})
    assert row["outcome"] == "error"


def delivery(number: int, document: dict[str, object], **about: object) -> dict[str, object]:
    return tool(id=f"toolu_r{number}", name="StructuredOutput", input=document, **about)


async def test_after_a_valid_report_nothing_runs(estate: Estate) -> None:
    await estate.finished(look(), delivery(1, report()), look("toolu_2"), deliver(report()))
    calls = estate.rows("SELECT tool_use_id, verdict, reason FROM tool_calls ORDER BY id")
    assert [(call["tool_use_id"], call["verdict"]) for call in calls] == [
        ("toolu_1", "allow"),
        ("toolu_r1", "allow"),
        ("toolu_2", "deny"),
    ]
    assert calls[-1]["reason"] == "the report is delivered: nothing runs after it"


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(delivery(1, {"summary": "x"}, fails=True, output="does not match"), id="it does not fit"),
        pytest.param(delivery(1, report(), fails=True, output="does not match"), id="the CLI did not take it"),
    ],
)
async def test_a_report_that_was_not_taken_ends_nothing(estate: Estate, first: dict[str, object]) -> None:
    ending = await estate.run(first, look("toolu_2"), deliver(report()))
    assert (ending.outcome, ending.calls_ran) == (Outcome.SUCCESS, 1)


# --- as many calls as a CLI invents -------------------------------------------------------------------

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def watch(allowed: set[str]) -> CallWatch:
    gate = SimpleNamespace(allowed=allowed, asked=set(), repetition=Repetition(), ended=lambda *_, **__: None)
    return CallWatch(gate=gate)  # type: ignore[arg-type]  # all of it that is needed


def test_inputs_that_wait_for_a_refusal_are_held_up_to_a_bound_the_latest_longest() -> None:
    seen = watch(set())
    for number in range(200):
        given = {"content": f"{number} " + "x" * 100_000}
        seen.started(ToolStarted(tool_use_id=f"t{number}", name="Write", input=given))
    held = sum(sys.getsizeof((call.input or {}).get("content", "")) for call in seen._started.values())
    assert held < HELD_INPUT_BYTES + 100_000
    for name in ("t0", "t199"):
        refused = ToolEnded(tool_use_id=name, is_error=True, text="<tool_use_error>no such tool</tool_use_error>")
        assert seen.ended(refused, NOW, stopping=False) is None
    first, last = (refusal.call for refusal in seen.refusals)
    assert (first.tool_name, first.input) == ("Write", {})
    assert str(last.input["content"]).startswith("199 ")


def test_ends_of_allowed_calls_are_kept_however_many_others_there_are() -> None:
    seen = watch({"allowed"})
    for number in range(MOST_CALLS + 10):
        seen.ended(ToolEnded(tool_use_id=f"t{number}", is_error=True, text=""), NOW, stopping=True)
    seen.ended(ToolEnded(tool_use_id="allowed", is_error=False, text=""), NOW, stopping=True)
    assert len(seen.ends) == MOST_CALLS + 1
    assert seen.ends[-1].tool_use_id == "allowed"
