"""Codex's events, read: the contract's vectors by id, and what they do not say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claudeops.domain.chains.outcome import ProcessExit, judge
from claudeops.domain.sessions import FailureKind, Outcome
from claudeops.formats.stream import (
    AssistantText,
    LineMalformed,
    Other,
    ResultRead,
    SessionStarted,
    StreamFrame,
    ToolDenied,
    ToolEnded,
    ToolStarted,
    Transcript,
    TurnStarted,
    decode,
)
from claudeops.formats.stream.tallies import RETAINED_BYTES
from claudeops.harness.codex import CodexHarness
from support.streams import as_line, ids, vectors

CODEX = vectors("codex")
HARNESS = CodexHarness()
USAGE = {"input_tokens": 7, "cached_input_tokens": 0, "output_tokens": 2, "reasoning_output_tokens": 0}
STARTED = {"type": "thread.started", "thread_id": "th_1"}
TURN = {"type": "turn.started"}
DONE = {"type": "turn.completed", "usage": USAGE}


def item(kind: str, item_id: str = "item_1", event: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{event}", "item": {"id": item_id, "type": kind, **fields}}


def command(item_id: str = "c1", event: str = "completed", status: str = "completed", **fields: Any) -> dict[str, Any]:
    given = {"command": "uptime", "status": status, **fields}
    return item("command_execution", item_id, event, **given)


def read(*lines: Any, last: str | None = None) -> Transcript:
    reader = HARNESS.reader()
    for line in lines:
        reader.feed(decode(as_line(line)))
    transcript = reader.close()
    return transcript if last is None else HARNESS.with_last_message(transcript, last)


def events(*lines: Any) -> list[object]:
    reader = HARNESS.reader()
    return [event for line in lines for event in reader.feed(decode(as_line(line)))]


def kept(stderr: str) -> str:
    return "".join(HARNESS.kept_stderr(line) + "\n" for line in stderr.splitlines())


@pytest.mark.parametrize("vector", CODEX, ids=ids(CODEX))
def test_codex(vector: dict[str, Any]) -> None:
    lines = [json.dumps(line) if isinstance(line, dict) else line for line in vector["lines"]]
    before = list(vector["lines"])
    transcript = read(*lines, last=vector.get("last"))
    stderr = kept(vector.get("stderr", ""))
    exited = ProcessExit(
        code=vector.get("rc", 0),
        stderr_tail=stderr,
        stderr_is_noted=HARNESS.stderr_is_noted,
        stderr_notes=HARNESS.stderr_notes(stderr),
    )
    judgement = judge(transcript, exited, heuristics=True, has_report=False, background_tasks_disabled=False)
    got = {
        "output": transcript.text,
        "error": judgement.error,
        "cat": judgement.category,
        "tok": [transcript.input_tokens, transcript.output_tokens],
        "meta": {key: transcript.harness_metadata.get(key) for key in vector["expect"].get("meta", {})},
        "tagged": vector["lines"] == before,  # nothing is added to an event; whose it is says the session's row
    }
    expect = dict(vector["expect"])
    prefixes = expect.pop("warn", None)
    assert {key: got[key] for key in expect} == expect
    if prefixes is not None:
        assert len(judgement.warnings) == len(prefixes), judgement.warnings
        assert all(map(str.startswith, judgement.warnings, prefixes)), judgement.warnings


def test_no_vector_is_left_out() -> None:
    assert len(CODEX) == 13


# --- what one event says ------------------------------------------------------------------------------

FACTS = {
    "thread": (STARTED, [SessionStarted]),
    "thread without an id": ({"type": "thread.started", "thread_id": 3}, [Other]),
    "turn": (TURN, [TurnStarted]),
    "completed turn": (DONE, [ResultRead]),
    "completed turn without usage": ({"type": "turn.completed"}, [ResultRead]),
    "failed turn": ({"type": "turn.failed", "error": "no object"}, [ResultRead]),
    "error, which may be a reconnection": ({"type": "error", "message": "Reconnecting... 1/5"}, [Other]),
    "message": (item("agent_message", text="hi"), [AssistantText]),
    "message that has only begun": (item("agent_message", event="started", text="h"), [Other]),
    "reasoning": (item("reasoning", text="hm"), [Other]),
    "plan": (item("todo_list", items=[{"text": "look", "completed": False}]), [Other]),
    "command": (command(), [ToolStarted, ToolEnded]),
    "command that has only begun": (command(event="started", status="in_progress"), [ToolStarted]),
    "command that was declined": (command(status="declined"), [ToolStarted, ToolDenied, ToolEnded]),
    "file change": (item("file_change", changes=[], status="completed"), [ToolStarted, ToolEnded]),
    "MCP call": (item("mcp_tool_call", server="s", tool="t"), [ToolStarted, ToolEnded]),
    "subagent": (item("collab_tool_call", tool="spawn_agent"), [ToolStarted, ToolEnded]),
    "search": (item("web_search", query="q"), [ToolStarted, ToolEnded]),
    "item of next year": (item("hologram"), [Other]),
    "item that is no object": ({"type": "item.completed", "item": "x"}, [Other]),
    "no item": ({"type": "item.completed"}, [Other]),
    "event of next year": ({"type": "thread.forked"}, [Other]),
    "no type": ({"x": 1}, [Other]),
    "broken line": ("{bad", [LineMalformed]),
    "scalar": ("42", []),
    "blank": ("", []),
}


@pytest.mark.parametrize(("line", "kinds"), FACTS.values(), ids=FACTS)
def test_event_is_one_fact_or_none(line: Any, kinds: list[type]) -> None:
    assert [type(event) for event in events(line)] == kinds


def test_call_is_one_call_however_many_events_tell_of_it() -> None:
    transcript = read(command(event="started"), command(event="updated"), command(), command("c2", event="started"))
    assert [(call.name, call.ended) for call in transcript.tool_calls.values()] == [("Bash", True), ("Bash", False)]
    assert transcript.open_tools == ("c2",)


def test_calls_without_an_id_are_calls_of_their_own() -> None:
    nameless = {"type": "item.completed", "item": {"type": "command_execution", "command": ["ls", "-l"]}}
    transcript = read(nameless, nameless)
    assert [call.input for call in transcript.tool_calls.values()] == [{"command": "ls -l"}] * 2
    assert transcript.open_tools == ()


@pytest.mark.parametrize(
    ("fields", "is_error"),
    [
        ({"status": "completed", "exit_code": 0}, False),
        ({"status": "completed", "exit_code": 1}, True),
        ({"status": "failed"}, True),
        ({"status": "declined"}, True),
        ({}, False),
    ],
)
def test_call_that_failed_is_an_error(fields: dict[str, Any], is_error: bool) -> None:
    assert read(command(**fields)).tool_errors == int(is_error)


def test_declined_call_is_told_apart_from_one_that_ran_and_failed() -> None:
    transcript = read(command("c1", status="declined"), command("c2", status="failed"))
    assert [denial.tool_use_id for denial in transcript.permission_denials] == ["c1"]


def test_output_of_a_command_is_cut_for_whoever_reads_it_live() -> None:
    (_, ended) = events(command(aggregated_output="q" * 70_000))
    assert isinstance(ended, ToolEnded)
    assert ended.text == "q" * 65_536 + "... (truncated)"


# --- turns --------------------------------------------------------------------------------------------


def test_unknown_metadata_has_no_key() -> None:
    assert dict(read().harness_metadata) == {}
    assert dict(read(STARTED, TURN).harness_metadata) == {"thread_id": "th_1", "turn_count": 1}
    assert dict(read(DONE).harness_metadata) == {"cached_input_tokens": 0, "reasoning_output_tokens": 0}


def test_usage_of_the_last_turn_counts_and_the_first_thread_id() -> None:
    later = {"type": "turn.completed", "usage": {**USAGE, "input_tokens": "12", "output_tokens": None}}
    transcript = read(STARTED, TURN, DONE, {**STARTED, "thread_id": "th_2"}, TURN, later)
    assert (transcript.input_tokens, transcript.output_tokens, transcript.num_turns) == (12, 0, 2)
    assert transcript.session_id == "th_1"


def verdict(transcript: Transcript, code: int | None = 0, stderr: str = "") -> tuple[Outcome, FailureKind | None]:
    exited = ProcessExit(code=code, stderr_tail=stderr)
    judgement = judge(transcript, exited, heuristics=True, has_report=False, background_tasks_disabled=False)
    return judgement.outcome, judgement.failure_kind


def error(message: str) -> dict[str, str]:
    return {"type": "error", "message": message}


@pytest.mark.parametrize(
    ("lines", "code", "expected"),
    [
        pytest.param([STARTED, TURN, item("agent_message", text="a"), DONE], 0, (Outcome.SUCCESS, None), id="done"),
        pytest.param(
            [STARTED, TURN, item("agent_message", text="all is well")],
            0,
            (Outcome.NO_RESULT, FailureKind.OTHER),
            id="left-in-the-middle-of-a-turn",
        ),
        pytest.param([], 1, (Outcome.NO_OUTPUT, FailureKind.OTHER), id="nothing"),
        pytest.param([STARTED, TURN, error("quota exceeded")], 1, (Outcome.ERROR, FailureKind.RATE_LIMIT), id="quota"),
        pytest.param(
            [error("You've hit your usage limit. Try again later.")],
            1,
            (Outcome.ERROR, FailureKind.RATE_LIMIT),
            id="usage-limit",
        ),
        pytest.param([error("401 Unauthorized")], 1, (Outcome.ERROR, FailureKind.AUTH), id="auth"),
        pytest.param(
            [error("exceeded your current quota, check your billing details")],
            1,
            (Outcome.ERROR, FailureKind.BILLING),
            id="billing",
        ),
        # The first failure sticks, as it does with Claude: the report still counts, and asks for help if it must.
        pytest.param([error("stream lost"), TURN, DONE], 0, (Outcome.ERROR, FailureKind.OTHER), id="then-completed"),
    ],
)
def test_outcome_follows_the_turns_and_never_the_exit_alone(
    lines: list[Any], code: int, expected: tuple[Outcome, FailureKind | None]
) -> None:
    assert verdict(read(*lines), code) == expected


CATEGORIES = {
    "Rate Limit hit": "rate_limit",
    "rate-limit": "rate_limit",
    "HTTP 429": "rate_limit",
    "401 after 429": "rate_limit",
    "403": "auth",
    "set OPENAI_API_KEY": "auth",
    "The 'o3' model is not supported when using Codex with a ChatGPT account.": "auth",
    "authentication failed": "api",  # Claude's word, not Codex's
    "rate_limit_exceeded": "api",
    "503": "api",
}


@pytest.mark.parametrize(("message", "category"), CATEGORIES.items(), ids=CATEGORIES)
def test_failure_words_are_codexs_own(message: str, category: str) -> None:
    assert read(error(message)).error_category == category


@pytest.mark.parametrize("message", [None, "", 5, ["x"]], ids=repr)
def test_failure_without_words_is_still_a_failure(message: object) -> None:
    transcript = read({"type": "turn.failed", "error": {"message": message}})
    assert (transcript.is_error, transcript.error_text) == (True, "API error (no detail)")


# --- the report ---------------------------------------------------------------------------------------


def test_last_message_of_a_completed_turn_is_the_structured_report() -> None:
    report = {"summary": "s", "events": [{"level": "info", "message": "m", "service": None}]}
    transcript = read(
        TURN, item("agent_message", text="first I look"), item("agent_message", text=json.dumps(report)), DONE
    )
    assert transcript.structured_outputs == (report, {"summary": "s", "events": [{"level": "info", "message": "m"}]})
    assert transcript.last_assistant_text == json.dumps(report)


@pytest.mark.parametrize("text", ["looks good", "[1]", '{"a":', "{} trailing"], ids=repr)
def test_last_message_that_is_no_object_is_no_structured_report(text: str) -> None:
    assert read(TURN, item("agent_message", text=text), DONE).structured_outputs == ()


def test_report_of_a_turn_that_never_completed_is_only_text() -> None:
    transcript = read(TURN, item("agent_message", text='{"summary":"s"}'))
    assert (transcript.structured_outputs, transcript.text) == ((), '{"summary":"s"}')


@pytest.mark.parametrize(
    ("lines", "text", "warned"),
    [
        ([DONE], "from the file", 1),
        ([DONE], " \n", 0),
        ([item("agent_message", text="  "), DONE], "from the file", 1),
        ([item("agent_message", text="said"), DONE], "from the file", 0),
    ],
)
def test_file_of_the_last_message_speaks_only_where_the_stream_was_silent(
    lines: list[Any], text: str, warned: int
) -> None:
    transcript = read(*lines, last=text)
    assert (transcript.text == text) is bool(warned)
    assert len(transcript.warnings) == warned


def test_report_in_the_file_counts_like_one_in_the_stream() -> None:
    assert read(DONE, last='{"summary":"s"}').structured_outputs == ({"summary": "s"},)
    assert read(last='{"summary":"s"}').structured_outputs == ()


# --- bounds -------------------------------------------------------------------------------------------


def test_last_message_survives_a_flood_of_commands() -> None:
    reader = HARNESS.reader()
    for number in range(3):
        reader.feed(
            StreamFrame(type="item.completed", subtype="", body=command(f"c{number}"), size=RETAINED_BYTES // 2)
        )
    for line in (item("agent_message", text='{"summary":"s"}'), DONE):
        reader.feed(decode(as_line(line)))
    transcript = reader.close()
    assert (transcript.last_assistant_text, transcript.structured_outputs) == ('{"summary":"s"}', ({"summary": "s"},))
    assert [call.line for call in transcript.tool_calls.values()] == [1, 2, None]  # where the log has their inputs
    assert [call.input for call in transcript.tool_calls.values()] == [{}, {}, {}]
    assert (transcript.input_tokens, transcript.text) == (7, "")
    (warning,) = transcript.warnings
    assert warning.startswith("stream-events-truncated:")


def test_long_outputs_do_not_use_up_the_room() -> None:
    reader = HARNESS.reader()
    output = "x" * (RETAINED_BYTES // 2)
    for number in range(3):
        body = command(f"c{number}", aggregated_output=output)
        reader.feed(StreamFrame(type="item.completed", subtype="", body=body, size=len(output) + 100))
    assert [warning.partition(" ")[0] for warning in reader.close().warnings] == ["command_execution"]


HOSTILE: list[Any] = [None, True, 7, 1e999, "x", [], {}, [{}], {"type": {}}]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_no_field_of_any_event_can_raise(value: object) -> None:
    fields = ("id", "type", "text", "message", "command", "aggregated_output", "exit_code", "status", "tool", "error")
    kinds = ("agent_message", "command_execution", "mcp_tool_call", "collab_tool_call", "error", "web_search")
    for kind in kinds:
        for name in fields:
            read({"type": "item.completed", "item": {"id": "i", "type": kind, name: value}})
    for kind in ("thread.started", "turn.completed", "turn.failed", "error", "item.completed", "item.started"):
        for name in ("thread_id", "usage", "error", "message", "item"):
            read({"type": kind, name: value})


# --- stderr -------------------------------------------------------------------------------------------

LEAKS = {
    "key by name": "api_key was refused",
    "header": "Authorization: Basic abc",
    "assignment": "CODEX_API_KEY=x",
    "home": "codex_home=/s/1/home",
    "key": f"using sk-{'a' * 20}",
    "project key": f"using sk-proj-{'_' * 20}",
    "bearer": f"Bearer {'t' * 20}",
}
HARMLESS = {"short key": "sk-abc", "short bearer": "Bearer abc", "words": "thread 'main' panicked at src/main.rs"}


@pytest.mark.parametrize("line", LEAKS.values(), ids=LEAKS)
def test_line_of_stderr_that_may_open_the_account_is_replaced_whole(line: str) -> None:
    assert HARNESS.kept_stderr(line) == "<line redacted: matched auth-leak pattern>"


@pytest.mark.parametrize("line", HARMLESS.values(), ids=HARMLESS)
def test_other_lines_of_stderr_stay(line: str) -> None:
    assert HARNESS.kept_stderr(line) == line


@pytest.mark.parametrize(
    ("stderr", "notes"),
    [("warning: x is deprecated", 1), ("Warning: x\ny is deprecated", 0), ("x is deprecated", 0), ("", 0)],
)
def test_notice_of_deprecation_is_one_line_that_says_both(stderr: str, notes: int) -> None:
    assert len(HARNESS.stderr_notes(stderr)) == notes


def test_stderr_of_a_failed_start_is_the_error() -> None:
    exited = ProcessExit(code=1, stderr_tail="error: no such flag\n", stderr_is_noted=True)
    judgement = judge(read(), exited, heuristics=True, has_report=False, background_tasks_disabled=False)
    assert (judgement.outcome, judgement.error) == (Outcome.NO_OUTPUT, "error: no such flag\n")
    assert "error: no such flag" not in judgement.warnings
