"""What people see of a line: every line is something, by itself alone, and hides nothing."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.harness import HARNESSES
from claudeops.text.escapes import visible
from claudeops.wording.stream import TEXT_CHARACTERS, TITLE_CHARACTERS, ShownKind, ShownLine, shown
from support.checkout import ROOT

RECORDINGS = ROOT / "tests" / "data" / "recordings"


def of(content: bytes, harness: str = "claude") -> ShownLine:
    return shown(content, line=3, at=None, reader=HARNESSES[harness].reader)


def said(*blocks: object, kind: str = "assistant") -> bytes:
    return json.dumps({"type": kind, "message": {"content": list(blocks)}}).encode()


def test_a_session_of_the_real_cli_reads_as_what_happened() -> None:
    lines = [of(line) for line in (RECORDINGS / "2.1.329" / "success.ndjson").read_bytes().splitlines()]

    assert [(line.kind.value, line.title, line.tool_use_id) for line in lines] == [
        ("began", "starts · claude-haiku-5-5 · CLI 2.1.329", None),
        ("said", "t", None),
        ("call", "Running: echo hi...", "toolu_0001_1"),
        ("result", "hi", "toolu_0001_1"),
        ("report", "report · ok", "toolu_0002_0"),
        ("result", "Structured output provided successfully", "toolu_0002_0"),
        ("done", "success · $0.0003 · 3 turns", None),
    ]
    assert (lines[2].text, lines[-1].cost_usd) == ("echo hi", 0.00025)


@pytest.mark.parametrize(
    "file", sorted(RECORDINGS.rglob("*.ndjson")), ids=lambda file: f"{file.parent.name}-{file.stem}"
)
def test_every_recorded_line_says_something(file: Path) -> None:
    for line in map(of, file.read_bytes().splitlines()):
        assert line.title
        assert msgspec.json.decode(msgspec.json.encode(line), type=ShownLine) == line


def test_what_stands_beside_a_call_in_its_line_is_not_lost() -> None:
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "df", "timeout": 5}}

    line = of(said({"type": "text", "text": "I look."}, call, {**call, "id": "b"}))

    assert (line.kind, line.title, line.tool_use_id) == (ShownKind.CALL, "Running: df... (and 1 more)", "a")
    assert line.text == "I look.\ncommand: df\ntimeout: 5\ncommand: df\ntimeout: 5"


def test_thoughts_are_thoughts() -> None:
    assert of(said({"type": "thinking", "thinking": "Hm."})).kind is ShownKind.THOUGHT
    reasoning = {"type": "item.completed", "item": {"id": "1", "type": "reasoning", "text": "Hm."}}
    assert of(json.dumps(reasoning).encode(), "codex").kind is ShownKind.THOUGHT


def test_a_call_that_is_put_before_the_gate_names_its_call() -> None:
    asked = {"subtype": "hook_callback", "tool_use_id": "toolu_1", "input": {"tool_name": "Bash"}}

    line = of(json.dumps({"type": "control_request", "request_id": "1", "request": asked}).encode())

    assert (line.kind, line.title, line.tool_use_id) == (ShownKind.JUDGED, "the gate is asked: Bash", "toolu_1")


def test_a_failed_result_is_an_error_and_is_cut() -> None:
    text = "x" * (TEXT_CHARACTERS + 1)
    line = of(said({"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": text}, kind="user"))

    assert (line.kind, line.is_error, line.is_cut, len(line.text)) == (ShownKind.RESULT, True, True, TEXT_CHARACTERS)


@pytest.mark.parametrize("harness", HARNESSES)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" ",
        b"[1]",
        b"no json \xff",
        b"{}",
        b'{"type":7}',
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":"a","name":"X","input":{"n":1e999}}]}}',
        b'{"type":"assistant","message":{"content":[{"type":"tool_use","name":"","input":{"n":'
        + b"9" * 3000
        + b"}}]}}",
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"\\ud800"}]}}',
        b'{"type":"assistant","message":{"content":[{"type":"thinking","thinking":7}]}}',
        b'{"type":"tool_use","name":"X","input":{"a":' + b"[" * 900 + b"]" * 900 + b"}}",
        b'{"type":"system","subtype":"' + b"x" * 5_000_000 + b'"}',
        b"[" * 100_000,
        b"\x1b]8;;http://evil\x07",
    ],
    ids=range(14),
)
def test_whatever_a_line_is_it_is_one_and_can_be_sent(content: bytes, harness: str) -> None:
    line = of(content, harness)

    assert (line.line, bool(line.title)) == (3, True)
    assert len(line.title) <= 10 * TITLE_CHARACTERS
    assert msgspec.json.decode(msgspec.json.encode(line), type=ShownLine) == line


@given(text=st.text(min_size=1))
def test_nothing_that_is_shown_hides(text: str) -> None:
    block = {"type": "tool_result", "tool_use_id": text, "content": text}
    for line in (
        of(said({"type": "text", "text": text})),
        of(said(block, kind="user")),
        of(text.encode(errors="replace")),
    ):
        for shown_text in (line.title, line.text, line.tool_use_id or ""):
            assert visible(shown_text) == shown_text
        assert "\n" not in line.title
