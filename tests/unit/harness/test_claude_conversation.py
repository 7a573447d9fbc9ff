"""An earlier conversation is rebuilt from its log: what was said and seen, without what the API refuses."""

from __future__ import annotations

import json
from typing import Any

from claudeops.harness.claude_conversation import conversation_file
from claudeops.harness.protocol import Resumed


def frame(kind: str, *blocks: dict[str, object], **changes: object) -> bytes:
    message = {"role": kind, "content": list(blocks), "id": "msg_1", "model": "claude-haiku-5-5", "usage": {"x": 1}}
    return json.dumps({"type": kind, "message": message, "parent_tool_use_id": None, **changes}).encode()


def rebuilt(*lines: bytes) -> list[dict[str, Any]]:
    resumed = Resumed(cli_session_id="old-id", log=b"\n".join(lines))
    file = conversation_file(resumed, home="/h", workdir="/srv/w_1/work", task="Look.")
    assert file.path == "/h/.claude/projects/-srv-w-1-work/old-id.jsonl"
    return [json.loads(line) for line in file.text.splitlines()]


CALL: dict[str, object] = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
ANSWER: dict[str, object] = {"type": "tool_result", "tool_use_id": "t1", "content": "out"}


def contents(entries: list[dict[str, Any]]) -> list[Any]:
    return [entry["message"]["content"] for entry in entries]


def test_texts_calls_and_answers_follow_each_other_from_the_task_on() -> None:
    entries = rebuilt(
        b'{"type":"system","subtype":"init","session_id":"old-id"}',
        frame("assistant", {"type": "text", "text": "I look."}, CALL),
        frame("user", ANSWER, timestamp="2026-01-01T00:00:00.000Z"),
        b'{"type":"result","subtype":"success"}',
    )
    assert [entry["type"] for entry in entries] == ["user", "assistant", "user"]
    assert contents(entries) == ["Look.", [{"type": "text", "text": "I look."}, CALL], [ANSWER]]
    assert [entry["parentUuid"] for entry in entries] == [None, *(entry["uuid"] for entry in entries[:-1])]
    assert {entry["sessionId"] for entry in entries} == {"old-id"}
    assert entries[-1]["timestamp"] == "2026-01-01T00:00:00.000Z"


def test_what_the_api_would_refuse_is_left_out() -> None:
    entries = rebuilt(
        frame("assistant", {"type": "thinking", "thinking": "hm", "signature": "s"}),
        frame("assistant", CALL),  # it was cut off: no answer came
        frame("assistant", {"type": "text", "text": "  "}),
        frame("assistant", {"type": "text", "text": "Done."}),
    )
    assert contents(entries) == ["Look.", [{"type": "text", "text": "Done."}]]


def test_subagents_broken_lines_and_strange_frames_are_passed_over() -> None:
    entries = rebuilt(
        frame("assistant", {"type": "text", "text": "sub"}, parent_tool_use_id="t9"),
        b"{",
        b"[1]",
        b"",
        b'{"type":"assistant","message":"x"}',
        b'{"type":"user","message":{"content":"text"}}',
        frame("assistant", {"type": "text", "text": "main"}),
    )
    assert contents(entries) == ["Look.", [{"type": "text", "text": "main"}]]
