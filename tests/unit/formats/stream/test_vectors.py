"""The contract vectors of clauditor, erk and caliban, as far as they speak of reading a stream and judging its end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claudeops.domain.chains.outcome import Judgement, ProcessExit
from claudeops.domain.sessions import Outcome
from claudeops.formats.stream import (
    AssistantText,
    CliWarned,
    StreamFrame,
    ToolStarted,
    decode,
    tool_results,
)
from claudeops.wording.live import Viewpoint, live_status, status_line, summaries, tool_summary
from support.streams import Reading, as_line, ids, judged, read, vectors

CLAUDITOR = vectors("clauditor")
ERK = vectors("erk")
CALIBAN = vectors("caliban")
ROOT = "/srv/ops"
VIEW = Viewpoint(root=ROOT, redact=lambda text: text)


def exit_of(vector: dict[str, Any]) -> ProcessExit:
    if "bin" in vector:
        return ProcessExit(spawn_error=f"Claude CLI not found: {vector['bin']}")
    return ProcessExit(code=vector.get("rc", 0), stderr_tail=vector.get("stderr", ""))


def frame_of(line: Any) -> StreamFrame | None:
    item = decode(as_line(line))
    assert item is None or isinstance(item, StreamFrame)
    return item


# --- clauditor ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", CLAUDITOR, ids=ids(CLAUDITOR))
def test_clauditor(vector: dict[str, Any]) -> None:
    reading, exited = read(*vector["lines"]), exit_of(vector)
    judgement = judged(
        reading.transcript,
        exited,
        heuristics=vector.get("hang", True),
        background_tasks_disabled=vector.get("env", {}).get("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS") == "1",
    )
    got = clauditors_view(reading, exited, judgement)
    expect = dict(vector["expect"])
    prefixes = expect.pop("warn", None)
    assert {key: got[key] for key in expect} == expect
    if prefixes is not None:
        assert_prefixes(judgement.warnings, prefixes)


def clauditors_view(reading: Reading, exited: ProcessExit, judgement: Judgement) -> dict[str, Any]:
    transcript = reading.transcript
    return {
        "output": transcript.text,
        "error": judgement.error,
        "cat": judgement.category,
        "tok": [transcript.input_tokens, transcript.output_tokens],
        "key": transcript.api_key_source,
        "clean": judgement.clean,
        "events": transcript.typed_frames,
        "exit": -1 if judgement.outcome is Outcome.SPAWN_FAILED else exited.code,
    }


def assert_prefixes(warnings: tuple[str, ...], prefixes: list[str]) -> None:
    assert len(warnings) == len(prefixes), warnings
    assert all(warning.startswith(prefix) for warning, prefix in zip(warnings, prefixes, strict=True)), warnings


# --- erk ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", ERK, ids=ids(ERK))
def test_erk(vector: dict[str, Any]) -> None:
    kind = vector.get("kind", "stream")
    got = ERK_KINDS[kind](vector)
    expect = vector["expect"]
    if kind == "results":  # erk keeps a list of contents; we keep the text that it reads from it
        expect = [[content[0]["text"] if isinstance(content, list) else content, flag] for content, flag in expect]
    if isinstance(expect, dict):
        assert {key: got[key] for key in expect} == expect
    else:
        assert got == expect


def parse(vector: dict[str, Any]) -> dict[str, Any] | None:
    frame = frame_of(vector["line"])
    if frame is None:
        return None
    reading = read(vector["line"])
    calls = [event for event in reading.events if isinstance(event, ToolStarted)]
    linked = links(frame)
    return {
        "text_content": "\n".join(text.strip() for text in said_in(reading) if text.strip()) or None,
        "tool_summary": next(iter(summaries(calls, VIEW)), None),
        "spinner_update": live_status(calls[0].name, calls[0].input, VIEW, task="/check") if calls else None,
        "num_turns": reading.transcript.num_turns,
        "is_error": reading.transcript.is_error,
        "result_text": reading.transcript.result_text,
        **{key: linked.get(key) for key in ("pr_url", "pr_number", "pr_title")},
    }


def links(frame: StreamFrame) -> dict[str, Any]:
    """Read erk's pull-request metadata from the text that we take from a tool result; its use is not ours."""
    for found in tool_results(frame.body):
        if found.text:
            metadata = json.loads(found.text)
            return metadata if isinstance(metadata, dict) else {}
    return {}


def record_texts(vector: dict[str, Any]) -> list[str]:
    return said_in(read(vector["line"]))


def said_in(reading: Reading) -> list[str]:
    return [event.text for event in reading.events if isinstance(event, AssistantText)]


def results(vector: dict[str, Any]) -> list[list[Any]]:
    frame = frame_of(vector["line"])
    assert frame is not None
    return [[found.text, found.is_error] for found in tool_results(frame.body) if found.text is not None]


def summary(vector: dict[str, Any]) -> str | None:
    call = json.loads(json.dumps(vector["line"]).replace("ROOT", ROOT))
    return tool_summary(call.get("name"), call.get("input", {}), VIEW)


def spinner(vector: dict[str, Any]) -> str:
    call = vector["line"] or {}
    return live_status(call.get("name"), call.get("input", {}), VIEW, task="/check")


def status(vector: dict[str, Any]) -> str:
    transcript = read(vector["line"]).transcript
    return status_line(is_error=transcript.is_error, cost_usd=transcript.cost_usd, duration_ms=transcript.duration_ms)


def whole_stream(vector: dict[str, Any]) -> dict[str, Any]:
    reading = read(*vector["lines"])
    calls = [event for event in reading.events if isinstance(event, ToolStarted)]
    return {
        "session_id": reading.transcript.session_id,
        "summaries": list(summaries(reading.events, VIEW)),
        "status": live_status(calls[-1].name, calls[-1].input, VIEW, task="/check") if calls else None,
    }


ERK_KINDS: dict[str, Any] = {
    "parse": parse,
    "texts": record_texts,
    "results": results,
    "sum": summary,
    "spin": spinner,
    "status": status,
    "stream": whole_stream,
}


# --- caliban ------------------------------------------------------------------------------------------

# What a session is given, not what it says, belongs to the command that reads such input.
CALIBAN_STREAMS = [vector for vector in CALIBAN if "stdin" not in vector]


@pytest.mark.parametrize("vector", CALIBAN_STREAMS, ids=ids(CALIBAN_STREAMS))
def test_caliban(vector: dict[str, Any]) -> None:
    reading, exited = read(*vector["lines"]), exit_of(vector)
    judgement = judged(reading.transcript, exited)
    got = calibans_view(reading, judgement)
    expect = dict(vector["expect"])
    prefixes = expect.pop("warn", None)
    assert {key: got[key] for key in expect} == expect
    if prefixes is not None:
        assert_prefixes(judgement.warnings, prefixes)


def calibans_view(reading: Reading, judgement: Judgement) -> dict[str, Any]:
    transcript = reading.transcript
    warned = [event for event in reading.events if isinstance(event, CliWarned)]
    return {
        "outcome": judgement.outcome,
        "cat": judgement.category,
        "error": judgement.error,
        "reason": judgement.exit_reason,
        "retryable": judgement.exit_reason.retryable if judgement.exit_reason else True,
        "text": transcript.text,
        "final": transcript.final_text,
        "session_id": transcript.session_id,
        "tok": [transcript.input_tokens, transcript.output_tokens],
        "turns": transcript.num_turns,
        "cost": transcript.cost_usd,
        "tools": len(transcript.tool_calls),
        "open_tools": list(transcript.open_tools),
        "tool_errors": transcript.tool_errors,
        "idle": transcript.idle,
        "api_retries": transcript.api_retries,
        "hooks": transcript.hook_events,
        "events": [["warning", event.subtype] for event in warned],
        "summary": next(iter(summaries(reading.events, VIEW)), None),
        # Whether a structured output is valid, and what is read where none is, is the report's business: here
        # it must be seen as it came, and the text that stands in for it must be there.
        "structured": None,
        "schema_error": bool(transcript.structured_outputs),
        "method": "markers",
        "fallback_source": "last_assistant_text" if not transcript.text and transcript.last_assistant_text else "text",
    }


def test_no_vector_is_left_out() -> None:
    counted = {name: len(cases) for name, cases in (("C", CLAUDITOR), ("E", ERK), ("K", CALIBAN))}
    assert counted == {"C": 41, "E": 25, "K": 24}
    assert [vector["id"] for vector in CALIBAN if "stdin" in vector] == ["K31", "K32", "K34", "K35"]
