"""Long lines: what a session reads of them is what it reads of short ones, and little more than the line is held."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.stream.events import INPUT_LEFT_OUT
from claudeops.domain.stream.transcript import LongText, abridged, characters
from claudeops.formats.report.extraction import extract
from claudeops.formats.report.markers import read_markers
from claudeops.formats.stream import (
    LONG_BYTES,
    AssistantText,
    LineSplitter,
    Malformed,
    StreamEvent,
    StreamFrame,
    ToolEnded,
    Transcript,
    TranscriptBuilder,
    decode,
    decode_abridged,
)
from claudeops.formats.stream.long_lines import decode_long
from support.estate import report
from support.reports import SCHEMA
from support.streams import DATA, RECORDINGS

PADDING = "p" * 70_000  # from 64 KiB on an object is not read whole, but field by field
MEGABYTE = 1_000_000
LOG = "2026-11-21T08:48:33Z postgres-main: INFO checked the certificate\n"


def vectors() -> Iterator[bytes]:
    for path in sorted((DATA / "vectors").glob("*.jsonl")):
        for vector in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            for line in vector.get("lines", ()):
                yield (line if isinstance(line, str) else json.dumps(line)).encode("utf-8", "surrogatepass")


def recorded() -> Iterator[bytes]:
    for path in RECORDINGS:
        yield from path.read_bytes().splitlines()


LINES = sorted({*vectors(), *recorded()})


def padded(value: Any) -> Any:
    """Return a frame with a long field, which nothing reads, in each object in which only some fields are read."""
    match value:
        case {"type": str()} | {"content": _} | {"subtype": _} | {"tool_input": _}:
            return {key: padded(each) for key, each in value.items()} | {"padding": PADDING}
        case list():
            return [padded(each) for each in value]
        case _:
            return value


def events_of(frame: StreamFrame | Malformed | None) -> tuple[tuple[StreamEvent, ...], Transcript]:
    builder = TranscriptBuilder()
    return builder.feed(frame), builder.close()


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:40].decode("ascii", "replace"))
def test_any_frame_says_the_same_when_its_fields_alone_are_read(line: bytes) -> None:
    assert events_of(decode_long(line)) == events_of(decode(line))
    whole = decode(line)
    if isinstance(whole, StreamFrame) and whole.type not in {"result", "control_request"}:
        long = json.dumps(padded(whole.body)).encode()
        assert events_of(decode_long(long)) == events_of(decode(long))


def said(text: str) -> bytes:
    message = {"id": "m", "model": "x", "usage": {"input_tokens": 7}, "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "assistant", "session_id": "s", "message": message}).encode()


def answered(text: str, *, escaped: bool = False) -> bytes:
    content = [{"type": "tool_result", "tool_use_id": "t", "content": text}]
    return json.dumps({"type": "user", "message": {"content": content}}, ensure_ascii=escaped).encode()


UNITS = ["\\", '"', "😀", "é", "\\ud83d", "\\\\u00e9", "\n", "x"]


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_no_character_is_lost_or_changed_where_a_long_text_is_cut(unit: str, *, escaped: bool) -> None:
    for shift in range(13):
        text = "a" * shift + unit * (LONG_BYTES // len(unit))
        (event,) = events_of(decode_long(answered(text, escaped=escaped)))[0]
        assert isinstance(event, ToolEnded)
        assert event.text is not None
        assert characters(event.text) == len(text)
        assert (event.text[:10_000], event.text[-10_000:]) == (text[:10_000], text[-10_000:])


TEXTS = {
    "of one line": "x" * 4 * MEGABYTE,
    "of lines": LOG * 60_000,
    "with a marker in its middle": LOG * 30_000 + "[EVENT:critical:web] gone\n" + LOG * 30_000,
    "with quoted markers": LOG * 30_000 + "```\n[EVENT:critical:web] gone\n```\n" + LOG * 30_000,
    "of other letters": ("зн" * 40 + "\n") * 40_000,
    "that waits": LOG * 30_000 + "still waiting on the agent\n" + LOG * 30_000,
    "just too long": LOG * 17_000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_long_text_leaves_in_its_row_and_for_its_markers_what_it_did_as_a_whole(text: str) -> None:
    line = said(text)
    (event,), transcript = events_of(decode_abridged(line))
    (_,), whole = events_of(decode(line))
    assert isinstance(event, AssistantText)
    assert characters(event.text) == len(text)
    assert len(event.text) < 3 * MEGABYTE
    assert transcript.text == whole.text
    assert abridged(transcript.last_assistant_text or "") == abridged(whole.last_assistant_text or "")
    assert transcript.says_it_waits == whole.says_it_waits
    assert read_markers(transcript.main_texts) == read_markers(whole.main_texts)
    assert transcript.messages_used == whole.messages_used


@pytest.mark.parametrize("key", ['"summary"', '"\\u0073ummary"'])
def test_a_text_that_may_hold_a_report_is_whole(key: str) -> None:
    text = LOG * 20_000 + json.dumps(report()).replace('"summary"', key) + LOG * 20_000
    (event,), _ = events_of(decode_abridged(said(text)))
    assert event == AssistantText(text=text)
    assert not isinstance(event.text, LongText)


def test_a_text_that_is_too_long_to_be_whole_has_its_ends_and_markers_even_with_a_report_in_it() -> None:
    marker = "[EVENT:critical:web] gone\n"
    text = LOG * 100_000 + json.dumps(report()) + "\n" + marker + LOG * 100_000
    (event,), _ = events_of(decode_abridged(said(text)))
    assert isinstance(event, AssistantText)
    assert characters(event.text) == len(text)
    assert marker in event.text
    assert len(event.text) < 3 * MEGABYTE


def test_a_report_in_the_end_of_a_text_that_is_too_long_to_be_whole_is_found() -> None:
    text = LOG * 100_000 + json.dumps(report())
    _, transcript = events_of(decode_abridged(said(text)))
    assert len(transcript.text) < 3 * MEGABYTE
    assert extract(transcript, SCHEMA, legacy_markers=False).report is not None


LONG_REPORTS: Mapping[str, Mapping[str, object]] = {
    "a text": {**report(), "summary": LOG * 60_000},
    "a text of a check": {
        **report(),
        "services_checked": [{"service": "web", "status": "down", "detail": LOG * 60_000}],
    },
    "many checks": {
        **report(),
        "services_checked": [{"service": f"w{number}", "status": "down"} for number in range(30_000)],
    },
}


@pytest.mark.parametrize("given", LONG_REPORTS.values(), ids=list(LONG_REPORTS))
def test_a_long_report_says_what_it_did_as_a_whole(given: Mapping[str, object]) -> None:
    delivered = {"type": "tool_use", "id": "t", "name": STRUCTURED_OUTPUT_TOOL, "input": given}
    for frame in (
        {"type": "result", "structured_output": given, "total_cost_usd": 1.5},
        {"type": "assistant", "message": {"content": [delivered]}},
    ):
        line = json.dumps(frame).encode()
        (_, transcript), (_, whole) = events_of(decode_abridged(line)), events_of(decode(line))
        assert extract(transcript, SCHEMA, legacy_markers=False) == extract(whole, SCHEMA, legacy_markers=False)
        assert len(repr(transcript)) < 3 * MEGABYTE
        assert transcript.cost_usd == whole.cost_usd


def asked(given: object, tool: str = "Bash") -> dict[str, object]:
    """Return the input that is read of a question about a call."""
    request: dict[str, Any] = {"subtype": "hook_callback", "callback_id": "gate", "tool_use_id": "t"}
    request["input"] = {"tool_name": tool, "tool_input": given, "tool_response": "y" * MEGABYTE}
    frame = decode_abridged(json.dumps({"type": "control_request", "request_id": "1", "request": request}).encode())
    assert isinstance(frame, StreamFrame)
    read = frame.body["request"]
    assert isinstance(read, dict)
    assert read == {**request, "input": {"tool_name": tool, "tool_input": read["input"]["tool_input"]}}
    found = read["input"]["tool_input"]
    assert isinstance(found, dict)
    return found


def test_a_request_of_the_gate_is_whole_but_for_the_answer_of_a_tool_that_ran() -> None:
    given = {"command": "x" * 3 * MEGABYTE, "n": 2**70}
    assert asked(given) == given


@pytest.mark.parametrize("more", ["x" * 5 * MEGABYTE, list(range(300_000))], ids=["long", "of many values"])
def test_of_an_input_that_is_too_long_to_be_judged_is_left_what_people_see(more: object) -> None:
    found = asked({"command": "ls", "more": more})
    assert found.keys() == {"command", INPUT_LEFT_OUT}
    assert found["command"] == "ls"
    assert asked({"summary": "x", "more": "y" * 5 * MEGABYTE}, STRUCTURED_OUTPUT_TOOL).keys() == {"summary", "more"}


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "user", "message": {"content": [{}] * 600_000}},
        {"type": "assistant", "message": {"content": [{"type": "tool_result", "content": [{}] * 600_000}]}},
        {"type": "result", "structured_output": {"services_checked": [{}] * 600_000}},
        {"type": "system", "subtype": "init", "tools": ["x"] * 600_000},
    ],
    ids=["blocks", "parts of a result", "checks", "tools"],
)
def test_a_line_of_more_values_than_are_read_is_malformed_and_takes_no_memory(frame: Mapping[str, object]) -> None:
    line = json.dumps(frame).encode()
    tracemalloc.start()
    try:
        found = decode_abridged(line)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == Malformed(reason="a field of more than 100000 values")
    assert most < 2 * len(line)


def test_refusals_that_are_long_together_are_all_there() -> None:
    denials = [
        {"tool_name": "Write", "tool_use_id": f"t{number}", "tool_input": {"content": LOG * 30_000}}
        for number in range(4)
    ]
    frame = decode_abridged(json.dumps({"type": "result", "permission_denials": denials}).encode())
    assert isinstance(frame, StreamFrame)
    found = frame.body["permission_denials"]
    assert isinstance(found, list)
    assert [each["tool_use_id"] for each in found] == ["t0", "t1", "t2", "t3"]
    assert len(repr(found)) < MEGABYTE


def test_an_item_of_codex_has_its_text_and_the_ends_of_what_its_command_printed() -> None:
    item = {"type": "command_execution", "text": LOG * 60_000, "aggregated_output": LOG * 90_000, "exit_code": 3}
    frame = decode_abridged(json.dumps({"type": "item.completed", "item": item}).encode())
    assert isinstance(frame, StreamFrame)
    read = frame.body["item"]
    assert isinstance(read, dict)
    assert (read.keys(), read["exit_code"]) == (item.keys(), 3)
    assert characters(read["text"]) == len(LOG * 60_000)
    assert read["aggregated_output"].startswith(LOG)
    assert len(read["aggregated_output"]) < MEGABYTE


@pytest.mark.parametrize(
    "line",
    [
        b"x" * LONG_BYTES,
        b'{"level": "info"} ' + b"x" * LONG_BYTES,
        b'{"a": 1, b}' + b"x" * LONG_BYTES,
        b'{"a": "' + b"x" * LONG_BYTES,
        b'["' + b"x" * LONG_BYTES + b'"]',
        b'["' + b"x" * LONG_BYTES + b'"',
        b'"' + b"x" * LONG_BYTES + b'"',
        b" " * LONG_BYTES,
        b"[" * LONG_BYTES,
        b'{"type": "a", "z": NaN, "x": "' + b"x" * LONG_BYTES + b'"}',
        b'{"type": "a", "z": "\\ud83d", "x": "' + b"x" * LONG_BYTES + b'"}',
        b'{"type": "a", "z": "\xff\x01", "x": "' + b"x" * LONG_BYTES + b'"}',
    ],
    ids=lambda line: line[:20].decode("ascii", "replace"),
)
def test_a_long_line_that_is_no_frame_is_called_what_it_was(line: bytes) -> None:
    expected, found = decode(line), decode_abridged(line)
    if isinstance(expected, StreamFrame):
        assert isinstance(found, StreamFrame)
        assert (found.type, found.size) == (expected.type, expected.size)
    else:
        assert type(found) is type(expected)


MOST_BESIDE = 12 * MEGABYTE
LENGTH = 16 * MEGABYTE
TWICE = {"a lone half", "broken letters", "not a number"}  # what is mended is another line
HELD: Mapping[str, bytes] = {
    "a tool's result": answered("x" * LENGTH),
    "a text": said(LOG * (LENGTH // len(LOG))),
    "a text of one line": said("x" * LENGTH),
    "escapes": said('"' * (LENGTH // 2)),
    "many fields": json.dumps({"type": "noise", "z": {str(n): n for n in range(MEGABYTE * 4 // 5)}}).encode(),
    "no JSON": b"x" * LENGTH,
    "a report": json.dumps({"type": "result", "structured_output": {**report(), "summary": "x" * LENGTH}}).encode(),
    "the text of a result": json.dumps({"type": "result", "result": f"{LOG * 240_000}{report()}"}).encode(),
    "a question": json.dumps({"type": "control_request", "request": {"input": {"content": "x" * LENGTH}}}).encode(),
    "a line that was cut": b'{"type": "user", "z": "' + b"x" * LENGTH,
    "a lone half": answered("x" * LENGTH + "\ud83d", escaped=True),
    "broken letters": answered("x" * LENGTH + "\u00e9").replace("\u00e9".encode(), b"\xe9"),
    "not a number": b'{"n": NaN, ' + answered("x" * LENGTH)[1:],
}


@pytest.mark.parametrize("kind", HELD)
def test_a_long_line_is_held_once(kind: str) -> None:
    line = HELD[kind]
    splitter, lines = LineSplitter(), []
    tracemalloc.start()
    try:
        for start in range(0, len(line), 256 * 1024):
            lines += splitter.push(line[start : start + 256 * 1024])
        lines += splitter.push(b"\n")
        builder = TranscriptBuilder()
        builder.feed(decode_abridged(lines[0]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert lines == [line]
    lines_held = 1.13 + (kind in TWICE)  # a line that grows has an eighth more of room than it fills
    assert most < lines_held * len(line) + MOST_BESIDE
