"""The content blocks of a frame's message: text, tool calls and tool results.

Three shapes are read: Claude's ``message.content``, a ``content`` list at the top level, and caliban's short
frames, which are one block each. Everything is tolerated; what is not understood counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from claudeops.formats.stream.framing import as_text


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the stream shows it."""

    id: str  # "" when the frame names none
    name: str | None
    input: Mapping[str, object] | None  # None: the CLI could not parse it and passed it on as text
    text: str | None = None  # an input that came as text


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    tool_use_id: str
    is_error: bool
    text: str | None  # None: no content at all; "" is content


def blocks(body: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the content blocks of a frame; anything but a list of objects counts as none."""
    message = body.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        content = body.get("content")
        if not isinstance(content, list):
            return []
    return [block for block in content if isinstance(block, dict)]


def text_of(block: Mapping[str, object]) -> str:
    """Return a text block's text."""
    text = block.get("text")
    return text if isinstance(text, str) else ""


def tool_use(block: Mapping[str, object], *, text_is_unparsed: bool = False) -> ToolUse:
    """Read a tool_use block.

    An input that is not an object counts as an empty one, except where a CLI signals with a string that the model's
    JSON did not parse (``text_is_unparsed``).
    """
    given = block.get("input")
    unparsed = text_is_unparsed and isinstance(given, str)
    return ToolUse(
        id=as_text(block.get("id")) or "",
        name=as_text(block.get("name")),
        input=given if isinstance(given, dict) else None if unparsed else {},
        text=given if isinstance(given, str) else None,
    )


def tool_results(body: Mapping[str, object]) -> list[ToolResult]:
    """Return all tool results of a frame, in order."""
    return [tool_result(block) for block in blocks(body) if block.get("type") == "tool_result"]


def tool_result(block: Mapping[str, object]) -> ToolResult:
    """Read a tool_result block; in a list of contents the first text counts."""
    return ToolResult(
        tool_use_id=as_text(block.get("tool_use_id")) or "",
        is_error=block.get("is_error") is True,
        text=_result_text(block.get("content")),
    )


def _result_text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    for item in content:
        if isinstance(item, dict) and item.get("type") == "text" and isinstance(text := item.get("text"), str):
            return text
    return ""
