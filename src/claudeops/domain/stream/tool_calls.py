"""The tool calls of a session, counted by id: a call shows in several frames and is one call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.domain.stream.transcript import CallSeen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.domain.stream.blocks import ToolResult, ToolUse
    from claudeops.domain.stream.transcript import Transcript

UNKNOWN_TOOL: Final = "unknown"
"""The name of a call that the stream never named."""

_SUBAGENT_TOOLS: Final = frozenset({"Task", "Agent"})  # renamed in CLI 2.1.63; the init line still says Task


@dataclass(kw_only=True, slots=True)
class CallTally:
    """Accumulates calls and their results in order of first appearance."""

    calls: dict[str, CallSeen] = field(default_factory=dict)
    structured: list[Mapping[str, object]] = field(default_factory=list)
    launches: int = 0
    asked: bool = False
    results: int = 0  # of calls that have ended

    def watch(self, use: ToolUse) -> None:
        """Note what clauditor's heuristics ask for, by block and not by id; only ``True`` is a launch."""
        if use.name in _SUBAGENT_TOOLS and (use.input or {}).get("run_in_background") is True:
            self.launches += 1
        self.asked = self.asked or use.name == "AskUserQuestion"

    def start(self, use: ToolUse, *, from_subagent: bool, keep_input: bool) -> CallSeen | None:
        """Note a call; ``None`` when it was known already. A call without an id is a call of its own."""
        key = use.id or f"#{len(self.calls)}"
        known = self.calls.get(key)
        if known is not None and known.name != UNKNOWN_TOOL:
            return None
        seen = CallSeen(
            tool_use_id=use.id,
            name=use.name or UNKNOWN_TOOL,
            input=use.input if keep_input else {},
            from_subagent=from_subagent,
            results_before=self.results if known is None else known.results_before,
        )
        if known is not None:  # its result, or a nameless frame, came first
            self.calls[key] = msgspec.structs.replace(seen, ended=known.ended, is_error=known.is_error)
            return None
        self.calls[key] = seen
        return seen

    def end(self, result: ToolResult, *, from_subagent: bool) -> CallSeen | None:
        """Note a result; ``None`` when its call had ended already, or is not named.

        A result alone proves its call too.
        """
        known = self.calls.get(result.tool_use_id)
        if not result.tool_use_id or (known is not None and known.ended):
            return None
        if known is None:
            known = CallSeen(tool_use_id=result.tool_use_id, name=UNKNOWN_TOOL, input={}, from_subagent=from_subagent)
        ended = msgspec.structs.replace(known, ended=True, is_error=result.is_error)
        self.calls[result.tool_use_id] = ended
        self.results += 1
        return ended

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the calls so far, which later frames do not change."""
        return replace(
            transcript,
            tool_calls=MappingProxyType(dict(self.calls)),
            structured_calls=tuple(self.structured),
            background_launches=self.launches,
            ask_user_question=self.asked,
        )
