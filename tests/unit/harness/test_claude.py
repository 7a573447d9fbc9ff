"""The claude harness is pure: what it would start, what it would say, what it makes of what it is told."""

from __future__ import annotations

import json

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import CredentialKind, GateCancelled, GateRequest, InitMismatch, QuestionWay
from claudeops.structs import replace
from support.specs import SPEC

HARNESS = ClaudeHarness()
ALLOW = Verdict(kind=VerdictKind.ALLOW, reason="read-only")
DENY = Verdict(kind=VerdictKind.DENY, reason="not at this tier")


def hook(**changes: object) -> dict[str, object]:
    asked = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}, **changes}
    return {
        "type": "control_request",
        "request_id": "r-1",
        "request": {"subtype": "hook_callback", "callback_id": "gate", "input": asked, "tool_use_id": "toolu_1"},
    }


def init(**changes: object) -> dict[str, object]:
    given = {"permissionMode": "dontAsk", "tools": ["Bash", "Read", "StructuredOutput"], "mcp_servers": []}
    return {"type": "system", "subtype": "init", **given, **changes}


def lines(message: bytes) -> list[dict[str, dict[str, object]]]:
    return [json.loads(line) for line in message.splitlines()]


def test_the_argument_list_holds_flags_and_neither_prompt_nor_secret() -> None:
    argv = HARNESS.command(SPEC).argv
    assert "Look at everything." not in " ".join(argv)
    assert "Findings" not in " ".join(argv)
    for flag, value in (
        ("--permission-mode", "dontAsk"),
        ("--tools", "Bash,Read"),
        ("--setting-sources", ""),
        ("--max-turns", "30"),
        ("--max-budget-usd", "0.5"),
        ("--session-id", SPEC.cli_session_id),
        ("--json-schema", SPEC.schema_text),
    ):
        assert argv[argv.index(flag) + 1] == value
    for flag in ("-p", "--verbose", "--strict-mcp-config", "--disable-slash-commands"):
        assert flag in argv
    for way_around_the_gate in ("--dangerously-skip-permissions", "--bare", "--allowedTools"):
        assert way_around_the_gate not in argv


def test_the_environment_is_built_from_nothing_and_names_a_descriptor_instead_of_the_key() -> None:
    env = HARNESS.command(SPEC).env
    assert env["CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR"] == "7"
    assert "ANTHROPIC_API_KEY" not in env
    assert (env["HOME"], env["CLAUDE_CONFIG_DIR"], env["CLAUDE_CODE_TMPDIR"]) == (
        "/s/1/home",
        "/s/1/home/.claude",
        "/s/1/tmp",
    )
    for switch in (
        "CLAUDE_CODE_DISABLE_FILE_MENTIONS",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
    ):
        assert env[switch] == "1"


def test_mcp_servers_get_as_long_as_our_own_clocks_leave_them() -> None:
    times = {"MCP_TIMEOUT", "MCP_TOOL_TIMEOUT"}
    assert not times & set(HARNESS.command(SPEC).env)
    spec = replace(SPEC, mcp_start_seconds=20.0, mcp_call_seconds=600.0)
    env = HARNESS.command(spec).env
    assert (env["MCP_TIMEOUT"], env["MCP_TOOL_TIMEOUT"]) == ("20000", "600000")
    env = HARNESS.command(replace(spec, passed_env={"MCP_TIMEOUT": "5000"})).env
    assert (env["MCP_TIMEOUT"], env["MCP_TOOL_TIMEOUT"]) == ("5000", "600000")


def test_what_the_operator_passes_cannot_undo_what_the_gate_needs() -> None:
    spec = replace(SPEC, passed_env={"CLAUDE_CODE_DISABLE_FILE_MENTIONS": "0", "HOME": "/root"})
    env = HARNESS.command(spec).env
    assert (env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"], env["HOME"]) == ("1", "/s/1/home")


def test_an_oauth_token_has_its_own_descriptor() -> None:
    env = HARNESS.command(replace(SPEC, credential=CredentialKind.OAUTH_TOKEN)).env
    assert env["CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR"] == "7"


def test_the_task_is_the_user_message_and_everything_variable_the_system_prompt() -> None:
    initialize, user = lines(HARNESS.opening(SPEC))
    assert initialize["request"]["subtype"] == "initialize"
    assert initialize["request"]["appendSystemPrompt"] == SPEC.system
    told = [{"matcher": None, "hookCallbackIds": ["ran"], "timeout": 60}]
    assert initialize["request"]["hooks"] == {
        "PreToolUse": [{"matcher": None, "hookCallbackIds": ["gate"], "timeout": 60}],
        "PostToolUse": told,
        "PostToolUseFailure": told,
    }
    assert user["message"] == {"role": "user", "content": SPEC.task}


def test_no_text_can_end_its_line() -> None:
    spec = replace(SPEC, task="one\ntwo\u2028three", system="a\r\nb\x85c")
    assert HARNESS.opening(spec).count(b"\n") == 2


def test_a_question_before_a_call_is_a_gate_request() -> None:
    signal = HARNESS.signal(hook(agent_id="agent-3"), SPEC)
    call = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": "ls"}, agent_id="agent-3")
    assert signal == GateRequest(request_id="r-1", call=call)


def test_a_permission_question_is_answered_with_the_input_that_was_judged() -> None:
    frame = {
        "type": "control_request",
        "request_id": "r-2",
        "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t"},
    }
    signal = HARNESS.signal(frame, SPEC)
    assert isinstance(signal, GateRequest)
    assert signal.question is QuestionWay.PERMISSION
    (answer,) = lines(HARNESS.answer(signal, ALLOW))
    assert answer["response"]["response"] == {"behavior": "allow", "updatedInput": {"command": "ls"}}
    (answer,) = lines(HARNESS.answer(signal, DENY))
    assert answer["response"]["response"] == {"behavior": "deny", "message": "not at this tier"}


@pytest.mark.parametrize(("verdict", "decision"), [(ALLOW, "allow"), (DENY, "deny")], ids=["allow", "deny"])
def test_a_hook_is_answered_with_decision_and_reason(verdict: Verdict, decision: str) -> None:
    request = HARNESS.signal(hook(), SPEC)
    assert isinstance(request, GateRequest)
    (answer,) = lines(HARNESS.answer(request, verdict))
    assert answer["response"]["request_id"] == "r-1"
    assert answer["response"]["response"] == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": verdict.reason,
        }
    }


def test_a_verdict_that_asks_is_never_a_yes() -> None:
    request = HARNESS.signal(hook(), SPEC)
    assert isinstance(request, GateRequest)
    ask = Verdict(kind=VerdictKind.ASK, reason="needs approval")
    assert b'"permissionDecision":"ask"' in HARNESS.answer(request, ask)
    asked_again = replace(request, question=QuestionWay.PERMISSION)
    assert b'"behavior":"deny"' in HARNESS.answer(asked_again, ask)


def test_a_withdrawn_question_is_named() -> None:
    assert HARNESS.signal({"type": "control_cancel_request", "request_id": "r-1"}, SPEC) == GateCancelled(
        request_id="r-1"
    )


def test_an_init_line_as_asked_for_is_no_signal() -> None:
    assert HARNESS.signal(init(), SPEC) is None


MISMATCHES = {
    "another permission mode": ({"permissionMode": "bypassPermissions"}, "bypassPermissions"),
    "a tool more": ({"tools": ["Bash", "Write"]}, "Write"),
    "an MCP server": ({"mcp_servers": [{"name": "x", "status": "connected"}]}, "MCP"),
    "no mode at all": ({"permissionMode": None}, "None"),
}


@pytest.mark.parametrize(("changes", "named"), MISMATCHES.values(), ids=MISMATCHES)
def test_an_init_line_that_grants_more_is_a_mismatch(changes: dict[str, object], named: str) -> None:
    signal = HARNESS.signal(init(**changes), SPEC)
    assert isinstance(signal, InitMismatch)
    assert named in signal.detail


MISSHAPEN = {
    "no request": {"type": "control_request", "request_id": "r"},
    "request is text": {"type": "control_request", "request_id": "r", "request": "hook_callback"},
    "no id": {"type": "control_request", "request": {"subtype": "hook_callback"}},
    "id is a number": {"type": "control_request", "request_id": 7, "request": {"subtype": "hook_callback"}},
    "unknown question": {"type": "control_request", "request_id": "r", "request": {"subtype": "mcp_message"}},
}


@pytest.mark.parametrize("frame", MISSHAPEN.values(), ids=MISSHAPEN)
def test_a_misshapen_question_is_no_signal_and_no_crash(frame: dict[str, object]) -> None:
    assert HARNESS.signal(frame, SPEC) is None


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (MISSHAPEN["unknown question"], "'mcp_message'"),
        ({"type": "control_request", "request_id": "r", "request": {"subtype": "elicitation"}}, "'elicitation'"),
        ({"type": "control_request", "request_id": "r", "request": {"subtype": "x" * 500}}, f"'{'x' * 80}'"),
        ({"type": "control_request", "request_id": "r", "request": {"subtype": "a\nb"}}, r"'a\nb'"),
        ({"type": "control_request", "request_id": "r", "request": {"subtype": 7}}, "no subtype"),
        (MISSHAPEN["no request"], "no subtype"),
        (MISSHAPEN["request is text"], "no subtype"),
        (MISSHAPEN["id is a number"], "'hook_callback'"),
    ],
)
def test_a_question_that_is_not_known_is_answered_with_an_error(frame: dict[str, object], names: str) -> None:
    refusal = HARNESS.refuse(frame)
    assert refusal is not None
    error = f"claudeops does not answer control requests of {known(names)}"
    response = {"subtype": "error", "request_id": frame["request_id"], "error": error}
    assert json.loads(refusal) == {"type": "control_response", "response": response}


def known(names: str) -> str:
    return names if names == "no subtype" else f"the subtype {names}"


@pytest.mark.parametrize(
    "frame",
    [
        MISSHAPEN["no id"],
        {"type": "control_request", "request_id": None, "request": {"subtype": "x1"}},
        {"type": "control_request", "request_id": True, "request": {"subtype": "x1"}},
        {"type": "control_response", "request_id": "r", "response": {"subtype": "success"}},
        {"type": "assistant", "request_id": "r"},
    ],
)
def test_what_expects_no_answer_gets_none(frame: dict[str, object]) -> None:
    assert HARNESS.refuse(frame) is None


def test_a_question_without_its_parts_is_judged_as_a_call_that_no_rule_knows() -> None:
    frame = {"type": "control_request", "request_id": "r", "request": {"subtype": "hook_callback", "input": 3}}
    signal = HARNESS.signal(frame, SPEC)
    assert isinstance(signal, GateRequest)
    assert (signal.call.tool_name, dict(signal.call.input)) == ("", {})


def test_the_repair_turn_names_what_is_wrong() -> None:
    (message,) = lines(HARNESS.repair(("summary: is missing",)))
    assert "- summary: is missing" in str(message["message"]["content"])
