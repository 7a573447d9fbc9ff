"""Whatever arrives, nothing raises: frames of every known type that hold anything, and damaged recordings."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claudeops.domain.chains.outcome import ProcessExit, StopCause
from claudeops.wording.live import Viewpoint, summaries
from support.damage import confused, damaged
from support.streams import RECORDINGS, judged, read, read_bytes

VIEW = Viewpoint(root="/srv/ops", redact=lambda text: text)

TYPES = [
    *("assistant", "user", "system", "result", "control_request", "control_response", "control_cancel_request"),
    *("tool_progress", "rate_limit_event", "stream_event", "message", "text", "thinking", "tool_use", "tool_result"),
    *("hook_event", "warning", "no_such_type", ""),
]
KEYS = [
    *("type", "subtype", "session_id", "message", "content", "role", "text", "name", "id", "input", "command"),
    *("tool_use_id", "is_error", "result", "error", "errors", "usage", "input_tokens", "output_tokens", "num_turns"),
    *("turns", "total_cost_usd", "duration_ms", "structured_output", "permission_denials", "tool_name", "tool_input"),
    *("api_error_status", "stop_reason", "parent_tool_use_id", "apiKeySource", "tools", "mcp_servers", "delta"),
    *("rate_limit_info", "resetsAt", "status", "request", "response", "request_id", "attempt", "file_path"),
    *("run_in_background", "output_tokens_details", "tool_calls_seen", "last_assistant_text", "terminal_reason"),
]
WORDS = [
    *("assistant", "init", "api_retry", "permission_denied", "hook_started", "success", "error", "user", "text"),
    *("tool_use", "tool_result", "Bash", "Edit", "Task", "StructuredOutput", "rejected", "429", "", "x"),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**64), 10**400])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(WORDS)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=6,
)
frames = st.builds(
    lambda kind, body: body | {"type": kind},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=6),
)
exits = st.builds(
    ProcessExit,
    code=st.none() | st.integers(min_value=-64, max_value=255),
    stop=st.none() | st.sampled_from(StopCause),
    spawn_error=st.none() | st.text(max_size=5),
    stderr_tail=st.text(max_size=5),
)


def swallow(stream: bytes) -> None:
    """Read a stream and do with it all that is done with one."""
    reading = read_bytes(stream, chunk=4096)
    transcript = reading.transcript
    judged(transcript)
    summaries(reading.events, VIEW)
    assert transcript.input_tokens < 2**63
    assert len(transcript.open_tools) <= transcript.tool_calls_seen
    transcript.text.encode()


@settings(max_examples=60)
@given(st.lists(frames, max_size=4), exits, st.booleans())
def test_no_frame_raises(lines: list[dict[str, Any]], exited: ProcessExit, has_report: bool) -> None:
    reading = read(*(json.dumps(line) for line in lines))
    judged(reading.transcript, exited, has_report=has_report)
    summaries(reading.events, VIEW)
    assert reading.transcript.lines == len(lines)


@pytest.mark.parametrize("path", RECORDINGS, ids=[f"{path.parent.name}/{path.stem}" for path in RECORDINGS])
def test_no_damaged_recording_raises(path: Path) -> None:
    """A sample; ``tests/conformance`` has ten thousand."""
    original = path.read_bytes()
    dice = random.Random(path.stem)  # noqa: S311 - repeatable damage, nothing secret
    for _ in range(30):
        swallow(damaged(original, dice))
        swallow(confused(original, dice))
