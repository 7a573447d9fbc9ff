"""Codex's view of the report's schema and of tool calls: the schema in strict form and back, and items read as calls.

In the strict form that OpenAI's structured outputs take, every object lists all its properties as required and allows
no others, every part states its type, and most other keywords are refused with HTTP 400
(https://platform.openai.com/docs/guides/structured-outputs). What the conversion drops is not lost: the report is
validated against the real schema when it comes back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from claudeops.formats.stream.blocks import ToolUse
from claudeops.formats.stream.framing import as_count, as_int, as_object, as_text, as_texts
from claudeops.text import regex

_KEPT: Final = ("title", "description", "type", "enum", "const")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_INEXPRESSIBLE: Final = frozenset(
    {"allOf", "not", "if", "patternProperties", "propertyNames", "dependencies", "$ref", "additionalItems"}
)


def strict_schema(text: str) -> str | None:
    """Return the strict form of a schema as JSON text, or ``None`` for a schema that has none."""
    try:
        return json.dumps(_strict(json.loads(text)), separators=(",", ":"))
    except _InexpressibleError:
        return None


def without_nulls(value: object) -> object:
    """Return a JSON value without the keys whose value is null, which is how the strict form leaves a key out."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


class _InexpressibleError(ValueError):
    """A part of the schema has no strict form."""


def _strict(part: object) -> dict[str, object]:
    if not isinstance(part, dict) or _INEXPRESSIBLE & part.keys():
        raise _InexpressibleError
    strict: dict[str, object] = {key: part[key] for key in _KEPT if key in part}
    for keyword in _ALTERNATIVES:
        if isinstance(alternatives := part.get(keyword), list):
            strict["anyOf"] = [_strict(alternative) for alternative in alternatives]
    if not strict.keys() & {"type", "anyOf"}:
        raise _InexpressibleError
    kinds = _types(part)
    if "object" in kinds:
        strict |= _strict_object(part)
    if "array" in kinds:
        strict["items"] = _strict(part.get("items"))
    return strict


def _strict_object(part: Mapping[str, object]) -> dict[str, object]:
    properties = part.get("properties")
    if not isinstance(properties, dict) or not properties or isinstance(part.get("additionalProperties"), dict):
        raise _InexpressibleError
    required = part.get("required")
    needed = required if isinstance(required, list) else []
    return {
        "properties": {
            name: _strict(inner) if name in needed else _nullable(_strict(inner)) for name, inner in properties.items()
        },
        "required": list(properties),
        "additionalProperties": False,
    }


def _nullable(strict: dict[str, object]) -> dict[str, object]:
    """Return a part that may be null; a list is left out by being empty instead."""
    kinds = _types(strict)
    if "null" in kinds or "array" in kinds:
        return strict
    return {"anyOf": [strict, {"type": "null"}]}


def _types(part: Mapping[str, object]) -> tuple[object, ...]:
    kinds = part.get("type")
    return tuple(kinds) if isinstance(kinds, list) else (kinds,)


# --- items that are tool calls ------------------------------------------------------------------------


OUTPUT_CHARS: Final = 65_536
"""Characters of a command's output that are passed on; the log has the whole output."""

_FAILED: Final = frozenset({"failed", "declined"})
_DROPPED: Final = regex.Pattern(r"\s*(\d{1,18})\s+events\s+were\s+dropped")


class CodexCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call, as one item shows it."""

    id: str  # "" when the item has none
    name: str
    input: Mapping[str, object]
    output: str | None  # of a command
    is_error: bool
    declined: bool  # it did not run

    def use(self) -> ToolUse:
        """Return the call as the tally takes it."""
        return ToolUse(id=self.id, name=self.name, input=self.input)


def call_of(item: Mapping[str, object]) -> CodexCall | None:
    """Return an item as a call; ``None`` for messages, reasoning, plans, notices and unknown items."""
    match item.get("type"):
        case "command_execution":
            # The name of such a call in the other CLIs.
            return _call(item, "Bash", {"command": _command(item)})
        case "file_change":
            return _call(item, "file_change", {"changes": item.get("changes")})
        case "mcp_tool_call":
            server, tool = as_text(item.get("server")) or "unknown", as_text(item.get("tool")) or "unknown"
            return _call(item, f"mcp__{server}__{tool}", as_object(item.get("arguments")))
        case "collab_tool_call":
            return _call(item, as_text(item.get("tool")) or "collab_tool_call", {})
        case "web_search":
            return _call(item, "web_search", {"query": item.get("query")})
        case _:
            return None


def dropped_events(item: Mapping[str, object]) -> int:
    """Return how many events were dropped according to an error item; 0 for any other notice."""
    found = _DROPPED.match(as_text(item.get("message")) or "")
    return as_count(found[1]) if found else 0


def _call(item: Mapping[str, object], name: str, given: Mapping[str, object]) -> CodexCall:
    output = item.get("aggregated_output")
    status = as_text(item.get("status"))
    return CodexCall(
        id=as_text(item.get("id")) or "",
        name=name,
        input=given,
        output=output if isinstance(output, str) else None,
        is_error=status in _FAILED or bool(as_int(item.get("exit_code"))) or bool(item.get("error")),
        declined=status == "declined",
    )


def _command(item: Mapping[str, object]) -> str:
    command = item.get("command")
    return command if isinstance(command, str) else " ".join(as_texts(command))
