"""Tallies: what a transcript accumulates of lines, text, tool calls and usage while a stream runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.spending.tokens import MessageUsage, TokenUsage
from claudeops.domain.stream.events import LineMalformed
from claudeops.domain.stream.transcript import ObservedCall, Transcript
from claudeops.formats.stream.blocks import ToolResult, ToolUse
from claudeops.formats.stream.framing import Malformed, StreamFrame, as_count, as_object, as_text
from claudeops.structs import replace

RETAINED_BYTES: Final = 52_428_800
"""Bytes of lines whose text and inputs are kept; what comes later is only counted, and kept in the log."""

_MALFORMED_NAMED: Final = 20  # malformed lines that get a warning each; the rest share one
_WARNINGS: Final = 100  # warnings kept; more of them would add nothing
_WARNING_CHARS: Final = 500


class LineTally(msgspec.Struct, kw_only=True):
    """Accumulates lines in order of arrival, with the warnings about them and the bound on what is kept."""

    format_name: str = "stream-json"  # the expected format, for the warnings
    lines: int = 0
    frames: int = 0
    typed: int = 0
    unknown: int = 0  # counted by the reader, who knows the types
    malformed: int = 0
    _retained: int = 0
    _warnings: list[str] = msgspec.field(default_factory=list)

    def take(self, item: StreamFrame | Malformed | None) -> StreamFrame | LineMalformed | None:
        """Count one line as `decode` returned it; ``None`` for a blank line and for JSON that is not an object."""
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


class TextTally(msgspec.Struct, kw_only=True):
    """Accumulates the main agent's text; nothing of subagents is kept."""

    blocks: list[str] = msgspec.field(default_factory=list)
    deltas: list[str] = msgspec.field(default_factory=list)
    message_seen: bool = False  # deltas count only if no message ever comes
    last: str | None = None  # blocks of the last message with text

    def message(self, texts: list[str], *, from_subagent: bool) -> None:
        """Take the text blocks of one message."""
        if from_subagent:
            return
        self.message_seen = True
        self.blocks += texts
        text = "\n".join(texts)
        if text and not text.isspace():  # not strip(), which copies a text of any length
            self.last = text

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the text so far."""
        streamed = "".join(self.deltas)
        parts = self.blocks if self.message_seen else [streamed] if streamed else []
        return replace(
            transcript,
            main_texts=tuple(parts),
            text="\n".join(parts),
            last_assistant_text=self.last if self.message_seen else streamed or None,
        )


# --- tool calls ---------------------------------------------------------------------------------------


UNKNOWN_TOOL: Final = "unknown"
"""The name of a call whose name the stream never gave."""

_SUBAGENT_TOOLS: Final = frozenset({"Task", "Agent"})  # renamed in CLI 2.1.63; the init line still says Task


class CallTally(msgspec.Struct, kw_only=True):
    """Accumulates calls by id, in order of first appearance: one call shows in several frames."""

    calls: dict[str, ObservedCall] = msgspec.field(default_factory=dict)
    structured: list[Mapping[str, object] | str] = msgspec.field(default_factory=list)
    launches: int = 0
    asks_user: bool = False
    results: int = 0  # of calls that have ended

    def watch(self, use: ToolUse) -> None:
        """Note what clauditor's heuristics need, by block and not by id; only ``True`` is a launch."""
        if use.name in _SUBAGENT_TOOLS and (use.input or {}).get("run_in_background") is True:
            self.launches += 1
        self.asks_user = self.asks_user or use.name == "AskUserQuestion"

    def start(self, use: ToolUse, *, from_subagent: bool, keep_input: bool) -> ObservedCall | None:
        """Note a call; ``None`` when it was already known. Each call without an id counts separately."""
        key = use.id or f"#{len(self.calls)}"
        known = self.calls.get(key)
        if known is not None and known.name != UNKNOWN_TOOL:
            return None
        seen = ObservedCall(
            tool_use_id=use.id,
            name=use.name or UNKNOWN_TOOL,
            input=use.input if keep_input else {},
            from_subagent=from_subagent,
            results_before=self.results if known is None else known.results_before,
        )
        if known is not None:  # its result, or a frame without a name, came first
            self.calls[key] = replace(seen, ended=known.ended, is_error=known.is_error)
            return None
        self.calls[key] = seen
        return seen

    def end(self, result: ToolResult, *, from_subagent: bool) -> ObservedCall | None:
        """Note a result; ``None`` when its call had already ended, or when it names no call.

        A result without a known call proves that there was one.
        """
        known = self.calls.get(result.tool_use_id)
        if not result.tool_use_id or (known is not None and known.ended):
            return None
        if known is None:
            known = ObservedCall(
                tool_use_id=result.tool_use_id, name=UNKNOWN_TOOL, input={}, from_subagent=from_subagent
            )
        ended = replace(known, ended=True, is_error=result.is_error)
        self.calls[result.tool_use_id] = ended
        self.results += 1
        return ended

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with a copy of the calls so far, which later frames do not change."""
        return replace(
            transcript,
            tool_calls=MappingProxyType(dict(self.calls)),
            structured_calls=tuple(self.structured),
            background_launches=self.launches,
            ask_user_question=self.asks_user,
        )


# --- usage ---------------------------------------------------------------------------------------------


_SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the CLI wrote itself."""


class UsageTally(msgspec.Struct, kw_only=True):
    """Accumulates usage by message: all that is known where no result line came and no meter counted.

    The CLI prints a message once for each of its blocks, every time with the usage known so far, so their ids
    distinguish messages. Side requests are not in the stream, and for a message that was cut off the usage is too low.
    """

    messages: dict[str, tuple[str, Mapping[str, object]]] = msgspec.field(default_factory=dict)
    """Model and usage by message id; the latest one counts. Read only at the end, since messages repeat."""

    def message(self, body: Mapping[str, object]) -> None:
        """Take the message of an ``assistant`` frame, also of a subagent."""
        key, model, usage = as_text(body.get("id")), as_text(body.get("model")), body.get("usage")
        if key is None or model is None or model == _SYNTHETIC or not isinstance(usage, dict):
            return
        self.messages[key] = (model, usage)

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the usage so far."""
        used = (MessageUsage(model=model, usage=_used(usage)) for model, usage in self.messages.values())
        return replace(transcript, messages_used=tuple(used))


def _used(usage: Mapping[str, object]) -> TokenUsage:
    return TokenUsage(
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
        cache_read_tokens=as_count(usage.get("cache_read_input_tokens")),
        cache_write_tokens=as_count(usage.get("cache_creation_input_tokens")),
        cache_write_1h_tokens=as_count(as_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")),
        fast=usage.get("speed") == "fast",
        us_only=usage.get("inference_geo") == "us",
    )
