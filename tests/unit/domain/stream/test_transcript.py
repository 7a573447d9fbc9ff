"""Frames into a transcript: the rules that no vector and no recording shows."""

from __future__ import annotations

from typing import Any

import pytest

from claudeops.formats.stream import (
    RETAINED_BYTES,
    AssistantText,
    Control,
    ControlKind,
    LineMalformed,
    Other,
    StreamFrame,
    TextStreamed,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Transcript,
    TranscriptBuilder,
)
from support.streams import answered, called, read, result, said

SUBAGENT = {"parent_tool_use_id": "toolu_parent"}


# --- session and lines --------------------------------------------------------------------------------


def test_session_id_is_the_first_that_says_anything() -> None:
    lines: list[dict[str, Any]] = [{"session_id": ""}, {"session_id": 7}, {"type": "user", "session_id": "a"}]
    assert read(*lines, {"type": "x", "session_id": "b"}).transcript.session_id == "a"


def test_init_says_what_the_session_was_given() -> None:
    init = {
        "type": "system",
        "subtype": "init",
        "tools": ["Bash", 7, "Read"],
        "mcp_servers": [{"name": "db", "status": "failed"}, {"name": 7}, "bare", None],
        "permission_mode": "plan",
    }
    transcript = read(init).transcript
    assert (transcript.tools, transcript.permission_mode) == (("Bash", "Read"), "plan")
    servers = [(server.name, server.status) for server in transcript.mcp_servers]
    assert servers == [("db", "failed"), ("unknown", ""), ("bare", ""), ("unknown", "")]


def test_second_init_changes_nothing() -> None:
    first = {"type": "system", "subtype": "init", "tools": ["Bash"], "model": "a"}
    reading = read(first, first | {"model": "b", "apiKeySource": "none"})
    assert (reading.transcript.model, reading.transcript.api_key_source) == ("a", None)
    assert reading.events[1] == Other(type="system", subtype="init")


def test_malformed_line_is_a_warning_with_its_number() -> None:
    reading = read("", "{oops", said("a"))
    reason = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    assert reading.events[0] == LineMalformed(reason=reason, line=2)
    assert reading.transcript.warnings == (f"malformed stream-json line skipped: {reason} (line 2)",)


def test_every_malformed_line_of_a_few_is_named() -> None:
    assert len(read(*["{oops"] * 20).transcript.warnings) == 20


def test_flood_of_malformed_lines_is_counted_and_does_not_flood_the_row() -> None:
    transcript = read(*["{oops"] * 5000).transcript
    assert transcript.malformed_lines == 5000
    assert len(transcript.warnings) == 21
    assert transcript.warnings[-1] == "malformed stream-json lines skipped: 4980 more"


def test_flood_of_cli_warnings_does_not_flood_the_row() -> None:
    transcript = read(*[{"type": "warning", "subtype": "w", "message": "m" * 9000}] * 500).transcript
    assert len(transcript.warnings) == 100
    assert len(transcript.warnings[0]) == 500


def test_counters() -> None:
    transcript = read("", "7", "{x", {"no": "type"}, {"type": None}, {"type": "new_in_3.0"}, said("a")).transcript
    assert (transcript.lines, transcript.frames, transcript.typed_frames) == (7, 4, 3)
    assert (transcript.unknown_frames, transcript.malformed_lines) == (3, 1)


@pytest.mark.parametrize(
    ("lines", "silent"),
    [([], True), (["", "42"], True), (["usage: claude"], False), (["{}"], False)],
    ids=["nothing", "nothing that is a frame", "text that is no JSON", "a frame"],
)
def test_silent_is_who_said_nothing_at_all(lines: list[str], silent: bool) -> None:
    transcript = read(*lines).transcript
    assert transcript.silent is silent
    assert transcript.first_frame_seen is ("{}" in lines)


def test_nothing_fed_is_the_empty_transcript() -> None:
    assert TranscriptBuilder().close() == Transcript()


def test_idle_is_neither_word_nor_deed() -> None:
    assert read(result(), said(" ")).transcript.idle
    assert not read(said("a")).transcript.idle
    assert not read(called("t1")).transcript.idle


def test_hooks_are_counted_once_each() -> None:
    hooks = [{"type": "system", "subtype": f"hook_{state}"} for state in ("started", "response")]
    assert read(*hooks, {"type": "hook_event"}).transcript.hook_events == 2


def test_snapshot_does_not_change_when_more_comes() -> None:
    builder = TranscriptBuilder()
    feed(builder, called("t1"))
    before = builder.close()
    feed(builder, answered("t1"), said("more"), result())
    assert (before.open_tools, before.text, before.result_seen) == (("t1",), "", False)
    assert (builder.close().open_tools, builder.close().text) == ((), "more")


def feed(builder: TranscriptBuilder, *bodies: dict[str, Any], size: int = 100) -> None:
    for body in bodies:
        builder.feed(StreamFrame(type=body["type"], subtype=body.get("subtype", ""), body=body, size=size))


# --- text ---------------------------------------------------------------------------------------------


def test_text_of_subagents_is_told_and_not_kept() -> None:
    reading = read(said("main"), said("[EVENT:critical] from below", **SUBAGENT), result())
    transcript = reading.transcript
    assert transcript.text == "main"
    assert transcript.last_assistant_text == "main"
    assert reading.events[1] == AssistantText(text="[EVENT:critical] from below", from_subagent=True)


def test_text_is_kept_as_it_came() -> None:
    transcript = read(said("  a "), said("   "), said("b\n")).transcript
    assert transcript.text == "  a \n   \nb\n"


def test_content_at_the_top_level_counts() -> None:
    transcript = read({"type": "assistant", "content": [{"type": "text", "text": "a"}]}).transcript
    assert transcript.text == "a"


def test_deltas_count_only_where_no_message_comes() -> None:
    deltas = [{"type": "text", "delta": "he"}, {"type": "text", "delta": "llo"}, {"type": "thinking", "delta": "hm"}]
    reading = read(*deltas)
    assert (reading.transcript.text, reading.transcript.last_assistant_text) == ("hello", "hello")
    assert reading.events[:2] == (TextStreamed(text="he"), TextStreamed(text="llo"))
    message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "whole"}]}
    assert read(*deltas, message).transcript.text == "whole"


def test_last_assistant_text_is_of_the_last_message_that_had_some() -> None:
    transcript = read(said("first"), said("second"), called("t1"), said("  "), result()).transcript
    assert transcript.last_assistant_text == "second"
    assert read(said("first"), result(last_assistant_text="told")).transcript.last_assistant_text == "told"


def test_users_message_is_not_the_assistants() -> None:
    blocks = [{"type": "text", "text": "mine"}, {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]
    transcript = read(called("t1"), {"type": "message", "role": "user", "content": blocks}).transcript
    assert (transcript.text, transcript.open_tools) == ("", ())


def test_user_text_is_nobodys_text() -> None:
    user = {"type": "user", "isSynthetic": True, "message": {"content": [{"type": "text", "text": "do it"}]}}
    reading = read(user)
    assert reading.transcript.text == ""
    assert reading.events == (Other(type="user", subtype=""),)


def test_what_is_kept_in_memory_has_an_end_and_what_is_counted_has_not() -> None:
    builder = TranscriptBuilder()
    half = RETAINED_BYTES // 2 + 1
    feed(builder, said("one"), called("t1", "Write", {"content": "x"}), size=half)
    feed(builder, said("lost"), called("t2", "Write", {"content": "y"}), answered("t2"), size=half)
    feed(builder, called("t3", "StructuredOutput", {"summary": "late"}), size=half)
    feed(builder, result(structured_output={"summary": "kept"}), size=half)
    transcript = builder.close()
    assert transcript.text == "one"
    # The first is to be read in the log, where it is line 2; the others do not count.
    assert [(call.input, call.line, call.ended) for call in transcript.tool_calls.values()] == [
        ({}, 2, False),
        ({}, None, True),
        ({}, None, False),
    ]
    assert transcript.structured_calls == ()
    assert transcript.structured_outputs == ({"summary": "kept"},)
    assert [warning.split(":")[0] for warning in transcript.warnings] == ["stream-events-truncated"]


def test_a_report_at_the_end_of_a_long_text_in_small_pieces_is_kept() -> None:
    """A piece of some letters comes on a line of a hundred bytes, and the line counts."""
    builder = TranscriptBuilder()
    for _ in range(50_000):
        builder.feed(StreamFrame(type="text", subtype="", body={"type": "text", "delta": "word "}, size=110))
    builder.feed(StreamFrame(type="text", subtype="", body={"type": "text", "delta": '{"summary":"s"}'}, size=120))
    transcript = builder.close()
    assert (transcript.last_assistant_text or "").endswith('{"summary":"s"}')
    assert transcript.warnings == ()


# --- tool calls ---------------------------------------------------------------------------------------


def test_parallel_calls_of_one_message_are_all_told_in_order() -> None:
    blocks = [{"type": "tool_use", "id": name, "name": name} for name in ("a", "b")]
    reading = read({"type": "assistant", "message": {"content": blocks}}, answered("b"), answered("a", is_error=True))
    assert [event.tool_use_id for event in reading.events if isinstance(event, ToolStarted)] == ["a", "b"]
    assert [event.tool_use_id for event in reading.events if isinstance(event, ToolEnded)] == ["b", "a"]
    assert (reading.transcript.tool_calls_seen, reading.transcript.tool_errors) == (2, 1)


def test_result_told_twice_ends_a_call_once() -> None:
    short = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": []}
    reading = read(called("t1"), short, answered("t1"))
    assert len([event for event in reading.events if isinstance(event, ToolEnded)]) == 1
    assert reading.transcript.tool_errors == 1


def test_result_without_its_call_proves_the_call() -> None:
    transcript = read(answered("t1"), called("t1", "Bash")).transcript
    assert [(call.name, call.ended) for call in transcript.tool_calls.values()] == [("Bash", True)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, None),
        ({"type": "text", "text": "x"}, None),
        ([7, {"type": "image", "text": "no"}, {"type": "text"}, {"type": "text", "text": "yes"}], "yes"),
        ([{"type": "image"}], ""),
    ],
)
def test_text_of_a_tool_result(content: object, text: str | None) -> None:
    (event,) = read(answered("t1", content)).events
    assert isinstance(event, ToolEnded)
    assert event.text == text


def test_result_of_no_call_is_no_call() -> None:
    reading = read(answered(""), {"type": "tool_result"})
    assert reading.transcript.tool_calls_seen == 0


def test_calls_without_an_id_are_calls() -> None:
    transcript = read(called("", "Read"), called("", "Read")).transcript
    assert transcript.tool_calls_seen == 2


@pytest.mark.parametrize("flag", [1, "true", None, False])
def test_is_error_of_a_tool_result_is_strict(flag: object) -> None:
    transcript = read(called("t1"), answered("t1") | {"message": {"content": [tool_result(flag)]}}).transcript
    assert (transcript.tool_errors, transcript.open_tools) == (0, ())


def tool_result(flag: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": "t1", "content": None, "is_error": flag}


def test_nameless_call_is_a_call() -> None:
    reading = read({"type": "tool_use", "id": "t1"})
    assert reading.events == (ToolStarted(tool_use_id="t1", name="unknown", input={}),)


@pytest.mark.parametrize(
    ("frame_type", "given", "read_as"),
    [
        ("assistant", "ls", {}),
        ("assistant", None, {}),
        ("message", '{"command":', None),  # caliban says so: the model's JSON did not parse
        ("message", ["ls"], {}),
    ],
)
def test_input_that_is_no_object(frame_type: str, given: object, read_as: object) -> None:
    blocks = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": given}]
    transcript = read({"type": frame_type, "role": "assistant", "content": blocks}).transcript
    assert transcript.tool_calls["t1"].input == read_as


def test_calls_that_the_cli_only_counted_count() -> None:
    assert read(called("t1"), result(tool_calls_seen=3)).transcript.tool_calls_seen == 3


def test_report_calls_of_the_main_agent_alone_are_salvage() -> None:
    transcript = read(
        called("t1", "StructuredOutput", {"summary": 1}),
        called("t1", "StructuredOutput", {"summary": 1}),
        called("t2", "StructuredOutput", {"summary": "from below"}, **SUBAGENT),
        {"type": "tool_use", "id": "t3", "name": "StructuredOutput", "input": '{"summary":'},
        called("t4", "Bash"),
        called("t5", "StructuredOutput", {"summary": "ok"}),
    ).transcript
    assert transcript.structured_calls == ({"summary": 1}, {"summary": "ok"})
    assert transcript.tool_calls["t2"].from_subagent


def test_control_frames_are_no_tool_calls() -> None:
    hook = {"subtype": "hook_callback", "tool_use_id": "t1", "input": {"tool_name": "Bash"}}
    reading = read(
        {"type": "control_request", "request_id": "r1", "request": hook},
        {"type": "control_response", "response": {"subtype": "success", "request_id": "r2"}},
        {"type": "control_cancel_request", "request_id": "r1"},
    )
    assert reading.events == (
        Control(kind=ControlKind.REQUEST, request_id="r1", subtype="hook_callback"),
        Control(kind=ControlKind.RESPONSE, request_id="r2", subtype="success"),
        Control(kind=ControlKind.CANCEL, request_id="r1", subtype=None),
    )
    assert (reading.transcript.tool_calls_seen, reading.transcript.unknown_frames) == (0, 0)


def test_progress_is_a_sign_of_life_and_starts_nothing() -> None:
    line = {"type": "tool_progress", "tool_use_id": "t1", "tool_name": "Bash", "elapsed_time_seconds": 30}
    reading = read(line)
    assert reading.events == (ToolProgress(tool_use_id="t1", name="Bash"),)
    assert reading.transcript.tool_calls_seen == 0
