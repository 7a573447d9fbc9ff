"""The lines of a stream, counted; with the warnings about them and the bound on what is kept of them.

What the agents said, the main agent's text; of subagents nothing is kept.

The tool calls of a session, counted by id: a call shows in several frames and is one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.stream.blocks import ToolResult, ToolUse, display_text
from claudeops.domain.stream.events import LineMalformed
from claudeops.domain.stream.framing import Frame, Malformed
from claudeops.domain.stream.transcript import CallSeen, Transcript

RETAINED_BYTES: Final = 52_428_800
"""So many bytes of lines have their text and inputs kept; what comes later is counted and stands in the log only."""

_MALFORMED_NAMED: Final = 20  # malformed lines that get a warning each; the rest shares one
_WARNINGS: Final = 100  # warnings kept; more of them say nothing new
_WARNING_CHARS: Final = 500


@dataclass(kw_only=True, slots=True)
class LineTally:
    """Accumulates lines in order of arrival."""

    format_name: str = "stream-json"  # what the lines should have been, as the warnings call it
    lines: int = 0
    frames: int = 0
    typed: int = 0
    unknown: int = 0  # counted by the reader, who knows the types
    malformed: int = 0
    _retained: int = 0
    _warnings: list[str] = field(default_factory=list)

    def take(self, item: Frame | Malformed | None) -> Frame | LineMalformed | None:
        """Count one line as `decode` gave it; ``None`` when it says nothing (blank, or JSON that is no object)."""
        self.lines += 1
        if isinstance(item, Malformed):
            return self._line_malformed(item.reason)
        if item is not None:
            self.frames += 1
            self.typed += "type" in item.body
        return item

    def has_room(self, size: int) -> bool:
        """Say whether the text and input of a line of ``size`` bytes are kept; one long line always is."""
        if self._retained >= RETAINED_BYTES:
            return False
        self._retained += size
        if self._retained >= RETAINED_BYTES:
            self.warn(
                f"stream-events-truncated: {RETAINED_BYTES} bytes kept; later text and tool inputs are in the log only"
            )
        return True

    def warn(self, warning: str) -> None:
        """Keep a warning, within bounds."""
        if len(self._warnings) < _WARNINGS:
            self._warnings.append(warning[:_WARNING_CHARS])

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the counts and warnings so far."""
        return replace(
            transcript,
            lines=self.lines,
            frames=self.frames,
            typed_frames=self.typed,
            unknown_frames=self.unknown,
            malformed_lines=self.malformed,
            warnings=(*self._warnings, *self._unnamed()),
        )

    def _line_malformed(self, reason: str) -> LineMalformed:
        self.malformed += 1
        if self.malformed <= _MALFORMED_NAMED:
            self.warn(f"malformed {self.format_name} line skipped: {reason} (line {self.lines})")
        return LineMalformed(reason=reason, line=self.lines)

    def _unnamed(self) -> tuple[str, ...]:
        more = self.malformed - _MALFORMED_NAMED
        return (f"malformed {self.format_name} lines skipped: {more} more",) if more > 0 else ()


# --- text ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class TextTally:
    """Accumulates text."""

    blocks: list[str] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    message_seen: bool = False  # deltas count only where no message ever comes
    last: str | None = None  # blocks of the last message that had text

    def message(self, texts: list[str], *, from_subagent: bool) -> None:
        """Take the text blocks of one message."""
        if from_subagent:
            return
        self.message_seen = True
        self.blocks += texts
        said = "\n".join(texts)
        if said and not said.isspace():  # not strip(): it copies a text of any length
            self.last = said

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the text so far."""
        streamed = "".join(self.deltas)
        parts = self.blocks if self.message_seen else [streamed] if streamed else []
        return replace(
            transcript,
            main_texts=tuple(parts),
            text="\n".join(parts),
            display_text=display_text(parts) or "",
            last_assistant_text=self.last if self.message_seen else streamed or None,
        )


# --- tool calls ---------------------------------------------------------------------------------------


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
