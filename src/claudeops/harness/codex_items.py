"""Codex's items that are tool calls, read as calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from claudeops.domain import regex
from claudeops.domain.stream.blocks import ToolUse
from claudeops.domain.stream.values import as_count, as_int, as_object, as_text, as_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTPUT_CHARS: Final = 65_536
"""Longest output of a command that is handed on, in characters; the log has the whole."""

_FAILED: Final = frozenset({"failed", "declined"})
_DROPPED: Final = regex.Pattern(r"\s*(\d{1,18})\s+events\s+were\s+dropped")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A tool call as one item shows it."""

    id: str  # "" when the item has none
    name: str
    input: Mapping[str, object]
    output: str | None  # of a command
    is_error: bool
    declined: bool  # it did not run

    def use(self) -> ToolUse:
        """Return the call as the tally takes it."""
        return ToolUse(id=self.id, name=self.name, input=self.input)


def call_of(item: Mapping[str, object]) -> Call | None:
    """Return the call that an item is; ``None`` for messages, reasoning, plans, notices and what is not known."""
    match item.get("type"):
        case "command_execution":
            # The name that people know such a call by from the other CLIs.
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
    """Return how many events an error item says were dropped; any other notice says 0."""
    found = _DROPPED.match(as_text(item.get("message")) or "")
    return as_count(found[1]) if found else 0


def _call(item: Mapping[str, object], name: str, given: Mapping[str, object]) -> Call:
    output = item.get("aggregated_output")
    status = as_text(item.get("status"))
    return Call(
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
