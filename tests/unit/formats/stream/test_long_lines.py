"""Long lines: what a session reads of them is what it reads of short ones, and little more than the line is held."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from claudeops.domain.stream.transcript import LongText, abridged, characters
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


def test_a_long_report_is_whole() -> None:
    given = {**report(), "summary": "x" * 3 * MEGABYTE}
    line = json.dumps({"type": "result", "structured_output": given, "total_cost_usd": 1.5}).encode()
    _, transcript = events_of(decode_abridged(line))
    assert (transcript.structured_outputs, transcript.cost_usd) == ((given,), 1.5)


def test_a_request_of_the_gate_is_whole_but_for_the_answer_of_a_tool_that_ran() -> None:
    given = {"command": "x" * 6 * MEGABYTE, "n": 2**70}
    asked: dict[str, Any] = {"subtype": "hook_callback", "callback_id": "gate", "tool_use_id": "t"}
    asked["input"] = {"tool_name": "Bash", "tool_input": given, "tool_response": "y" * MEGABYTE}
    frame = decode_abridged(json.dumps({"type": "control_request", "request_id": "1", "request": asked}).encode())
    assert isinstance(frame, StreamFrame)
    request = frame.body["request"]
    assert isinstance(request, dict)
    assert request == {**asked, "input": {"tool_name": "Bash", "tool_input": given}}


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
        assert found == expected


MOST_BESIDE = 12 * MEGABYTE
LENGTH = 16 * MEGABYTE
HELD: Mapping[str, bytes] = {
    "a tool's result": answered("x" * LENGTH),
    "a text": said(LOG * (LENGTH // len(LOG))),
    "a text of one line": said("x" * LENGTH),
    "escapes": said('"' * (LENGTH // 2)),
    "many fields": json.dumps({"type": "noise", "z": {str(n): n for n in range(MEGABYTE)}}).encode(),
    "no JSON": b"x" * LENGTH,
}


@pytest.mark.parametrize("line", HELD.values(), ids=list(HELD))
def test_a_long_line_is_held_once(line: bytes) -> None:
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
    assert most < 1.13 * len(line) + MOST_BESIDE  # a line that grows has an eighth more of room than it fills
