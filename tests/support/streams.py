"""Streams from vectors, recordings and hand, read the way the engine reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claudeops.domain.chains.outcome import Judgement, ProcessExit, judge
from claudeops.formats.stream import LineSplitter, StreamEvent, Transcript, TranscriptBuilder, decode

DATA = Path(__file__).parent.parent / "data"
RECORDINGS = sorted((DATA / "recordings").rglob("*.ndjson"))
CHUNK = 65536

_REPEATED = re.compile(r"<(.)\*(\d+)>")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A whole stream, read."""

    transcript: Transcript
    events: tuple[StreamEvent, ...]


def read_bytes(stream: bytes, *, chunk: int = CHUNK) -> Reading:
    splitter, builder = LineSplitter(), TranscriptBuilder()
    events: list[StreamEvent] = []
    for start in range(0, len(stream), chunk):
        for line in splitter.push(stream[start : start + chunk]):
            events += builder.feed(decode(line))
    if (last := splitter.flush()) is not None:
        events += builder.feed(decode(last))
    return Reading(transcript=builder.close(), events=tuple(events))


def read(*lines: str | bytes | Mapping[str, Any]) -> Reading:
    return read_bytes(b"\n".join(map(as_line, lines)) + b"\n" if lines else b"")


def as_line(line: str | bytes | Mapping[str, Any]) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode()


def judged(
    transcript: Transcript,
    exited: ProcessExit | None = None,
    *,
    heuristics: bool = True,
    has_report: bool = False,
    background_tasks_disabled: bool = False,
) -> Judgement:
    return judge(
        transcript,
        exited or ProcessExit(code=0),
        heuristics=heuristics,
        has_report=has_report,
        background_tasks_disabled=background_tasks_disabled,
    )


def vectors(name: str) -> list[dict[str, Any]]:
    """Return a file of contract vectors, with ``<z*4096>`` spelt out."""
    lines = (DATA / "vectors" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [_spelt_out(json.loads(line)) for line in lines if line.strip()]


def _spelt_out(value: Any) -> Any:
    if isinstance(value, str):
        return _REPEATED.sub(lambda match: match[1] * int(match[2]), value)
    if isinstance(value, list):
        return [_spelt_out(item) for item in value]
    if isinstance(value, dict):
        return {key: _spelt_out(item) for key, item in value.items()}
    return value


def ids(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    return [case["id"] for case in cases]


# --- frames by hand -----------------------------------------------------------------------------------

INIT = {"type": "system", "subtype": "init", "session_id": "s"}


def transcript_of(*lines: Mapping[str, Any]) -> Transcript:
    """Return what is read of a stream that began as it should."""
    return read(INIT, *lines).transcript


def said(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stop_reason": None}
    return {"type": "assistant", "message": message} | more


def called(tool_use_id: str, name: str = "Bash", given: Any = None, **more: Any) -> dict[str, Any]:
    block = {
        "type": "tool_use",
        "id": tool_use_id,
        "name": name,
        "input": {"command": "true"} if given is None else given,
    }
    return {"type": "assistant", "message": {"role": "assistant", "content": [block]}} | more


def answered(tool_use_id: str, content: Any = "ok", *, is_error: bool = False, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content, "is_error": is_error}
    return {"type": "user", "message": {"role": "user", "content": [block]}} | more


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": 3} | fields


def failed(**fields: Any) -> dict[str, Any]:
    return result(is_error=True, **fields)
