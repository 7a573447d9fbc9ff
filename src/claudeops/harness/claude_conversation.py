"""The conversation of an earlier session, rebuilt from its log in the form in which the ``claude`` CLI keeps its own.

The CLI's own file goes with its session's home, and holds what tools have read, secrets included. The log is redacted.
Seen with CLI 2.1.329: ``--resume`` reads ``<home>/.claude/projects/<working directory>/<session id>.jsonl``, a chain of
entries by ``parentUuid``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from claudeops.harness.protocol import Resumed, TextFile
from claudeops.text import regex

_OUTSIDE_NAMES: Final = regex.Pattern(r"[^a-zA-Z0-9]")
_NO_USAGE: Final = {"input_tokens": 0, "output_tokens": 0}
_NAMES: Final = uuid.UUID("6f6d1c2e-5b0e-4f7c-9a51-2d8a5c1f7b10")
_NO_TIME: Final = "1970-01-01T00:00:00.000Z"


def conversation_file(resumed: Resumed, *, home: str, workdir: str, task: str) -> TextFile:
    """Return the file with which a new session goes on; ``task`` stands for what the first one was told."""
    project = _OUTSIDE_NAMES.sub("-", workdir)
    lines: list[str] = []
    parent: str | None = None
    first = {"role": "user", "content": task}
    for number, (kind, message, at) in enumerate([("user", first, _NO_TIME), *_messages(resumed.log)]):
        own = str(uuid.uuid5(_NAMES, f"{resumed.cli_session_id}/{number}"))
        entry = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": workdir,
            "sessionId": resumed.cli_session_id,
            "version": "2.1.0",
            "gitBranch": "",
            "type": kind,
            "message": message,
            "uuid": own,
            "timestamp": at,
        }
        lines.append(msgspec.json.encode(entry).decode())
        parent = own
    path = f"{home}/.claude/projects/{project}/{resumed.cli_session_id}.jsonl"
    return TextFile(path=path, text="".join(f"{line}\n" for line in lines))


def _messages(log: bytes) -> Iterator[tuple[str, dict[str, object], str]]:
    """Yield what the main agent and its tools said, in order: kind, message, time."""
    frames = [frame for line in log.split(b"\n") if (frame := _frame(line)) is not None]
    answered = {block.get("tool_use_id") for frame in frames for block in _blocks(frame)}
    for frame in frames:
        kind, blocks = str(frame["type"]), tuple(_kept(_blocks(frame), answered))
        at = frame.get("timestamp")
        if blocks:
            yield kind, _message(kind, frame, blocks), at if isinstance(at, str) else _NO_TIME


def _message(kind: str, frame: Mapping[str, object], blocks: Iterable[object]) -> dict[str, object]:
    message: dict[str, object] = {"role": kind, "content": list(blocks)}
    if kind == "user":
        return message
    sent = frame["message"]
    given = sent if isinstance(sent, dict) else {}
    named = {"id": given.get("id") or f"msg_{uuid.uuid4().hex}", "model": given.get("model") or "unknown"}
    return {**message, **named, "type": "message", "stop_reason": None, "stop_sequence": None, "usage": _NO_USAGE}


def _kept(blocks: Iterable[Mapping[str, object]], answered: set[object]) -> Iterator[Mapping[str, object]]:
    """Yield texts, calls that were answered, and answers; thinking is signed, and redaction would break that."""
    for block in blocks:
        match block.get("type"):
            case "text" if str(block.get("text") or "").strip():
                yield block
            case "tool_use" if block.get("id") in answered:
                yield block
            case "tool_result":
                yield block
            case _:
                pass


def _blocks(frame: Mapping[str, object]) -> list[dict[str, object]]:
    message = frame.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _frame(line: bytes) -> dict[str, object] | None:
    if not line.strip():
        return None
    try:
        frame = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if not isinstance(frame, dict) or frame.get("type") not in {"user", "assistant"}:
        return None
    return None if frame.get("parent_tool_use_id") else frame
