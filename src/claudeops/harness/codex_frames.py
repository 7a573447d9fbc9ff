"""Reads Codex's events into stream events and a transcript, by the rules that clauditor found.

There is no result line: a completed or failed turn stands for one, and the end of the output is the end. The first
failure is the one that counts. Items are read only when they are completed, except that an item which has begun is an
open call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final

import msgspec

from claudeops.domain.sessions import ErrorCategory
from claudeops.domain.stream.transcript import abridged
from claudeops.formats.stream import (
    AssistantText,
    LineMalformed,
    Malformed,
    Other,
    PermissionDenial,
    ResultRead,
    SessionStarted,
    StreamEvent,
    StreamFrame,
    ToolDenied,
    ToolEnded,
    ToolStarted,
    Transcript,
    TurnStarted,
)
from claudeops.formats.stream.blocks import ToolResult
from claudeops.formats.stream.framing import as_count, as_object, as_text
from claudeops.formats.stream.results import NO_DETAIL
from claudeops.formats.stream.tallies import CallTally, LineTally, TextTally
from claudeops.harness.codex_schema import OUTPUT_CHARS, CodexCall, call_of, dropped_events, without_nulls
from claudeops.structs import replace

Events = tuple[StreamEvent, ...]

ERROR_CHARS: Final = 4096
CUT: Final = "... (truncated)"
"""Without the leading space of the mark for Claude's errors."""

_RATE_LIMIT_WORDS: Final = ("rate limit", "rate-limit", "quota", "429")
_AUTH_WORDS: Final = (
    *("401", "403", "unauthorized", "openai_api_key", "invalid api key"),
    "not supported when using codex with a chatgpt account",
)

FROM_FILE: Final = "last-message-empty: no message came in the stream, so the last one was read from its file"


class CodexReader:
    """Takes events in order and accumulates what they say. No input raises."""

    def __init__(self) -> None:
        self._lines = LineTally(format_name="codex")
        self._agent_text = TextTally()
        self._calls = CallTally()
        self._turns = _Turns()
        self._thread_id: str | None = None
        self._dropped = 0
        self._output_cut = False
        self._denials: dict[str, PermissionDenial] = {}
        self._nameless = 0  # items without an id

    def feed(self, item: StreamFrame | Malformed | None) -> Events:
        """Take one line as `decode` returned it and return the new facts."""
        frame = self._lines.take(item)
        if frame is None:
            return ()
        if isinstance(frame, LineMalformed):
            return (frame,)
        handler = self._HANDLERS.get(frame.type)
        if handler is None:
            self._lines.unknown += 1
            return (Other(type=frame.type, subtype=""),)
        return handler(self, frame)

    def close(self) -> Transcript:
        """Return the transcript so far."""
        turns = self._turns
        usage = turns.usage
        # A failure outside of any turn's end (a top-level ``error``) is a result as well.
        results = turns.ended or int(turns.failure is not None)
        transcript = Transcript(
            session_id=self._thread_id,
            results=results,
            is_error=turns.failure is not None,
            error_text=turns.failure.text if turns.failure else None,
            error_category=turns.failure.category if turns.failure else None,
            num_turns=turns.started or None,
            input_tokens=usage.input_tokens if usage else 0,
            output_tokens=usage.output_tokens if usage else 0,
            cached_input_tokens=usage.cached if usage else None,
            reasoning_output_tokens=usage.reasoning if usage else None,
            structured_outputs=turns.reports,
            permission_denials=tuple(self._denials.values()),
            harness_metadata=MappingProxyType(self._metadata()),
        )
        return self._warned(self._calls.onto(self._agent_text.onto(self._lines.onto(transcript))))

    def _metadata(self) -> dict[str, object]:
        """Return the known facts; an unknown one has no key."""
        usage = self._turns.usage
        metadata: dict[str, object] = {}
        if self._thread_id is not None:
            metadata["thread_id"] = self._thread_id
        if self._turns.started:
            metadata["turn_count"] = self._turns.started
        if usage is not None:
            metadata |= {"cached_input_tokens": usage.cached, "reasoning_output_tokens": usage.reasoning}
        if self._dropped:
            metadata["dropped_events_count"] = self._dropped
        return metadata

    def _warned(self, transcript: Transcript) -> Transcript:
        if not self._dropped:
            return transcript
        warning = f"dropped-events: {self._dropped} events were dropped before we could read them"
        return replace(transcript, warnings=(*transcript.warnings, warning))

    # --- the thread and its turns

    def _thread_started(self, frame: StreamFrame) -> Events:
        thread_id = as_text(frame.body.get("thread_id"))
        if self._thread_id is not None or thread_id is None:
            return (Other(type=frame.type, subtype=""),)
        self._thread_id = thread_id
        return (_started(thread_id),)

    def _turn_started(self, _: StreamFrame) -> Events:
        self._turns.started += 1
        return (TurnStarted(),)

    def _turn_completed(self, frame: StreamFrame) -> Events:
        turns = self._turns
        usage = as_object(frame.body.get("usage"))
        turns.usage = _Usage(
            input_tokens=as_count(usage.get("input_tokens")),
            output_tokens=as_count(usage.get("output_tokens")),
            cached=as_count(usage.get("cached_input_tokens")),
            reasoning=as_count(usage.get("reasoning_output_tokens")),
        )
        turns.reports = _reports(self._agent_text.last)
        return (self._turn_ended(frame, is_error=False),)

    def _turn_failed(self, frame: StreamFrame) -> Events:
        self._turns.fail(as_object(frame.body.get("error")).get("message"))
        return (self._turn_ended(frame, is_error=True),)

    def _turn_ended(self, frame: StreamFrame, *, is_error: bool) -> ResultRead:
        turns = self._turns
        turns.ended += 1
        return ResultRead(
            index=turns.ended - 1,
            is_error=is_error,
            subtype=frame.type,
        )

    def _error(self, frame: StreamFrame) -> Events:
        # Not a result yet: the CLI also prints this while it reconnects, and continues.
        self._turns.fail(frame.body.get("message"))
        return (Other(type=frame.type, subtype=""),)

    # --- items

    def _item_begun(self, frame: StreamFrame) -> Events:
        call = call_of(as_object(frame.body.get("item")))
        if call is None or not call.id:
            return (Other(type=frame.type, subtype=""),)
        return self._call_started(call, size=frame.size)

    def _item_completed(self, frame: StreamFrame) -> Events:
        item = as_object(frame.body.get("item"))
        kind = as_text(item.get("type")) or ""
        call = call_of(item)
        if call is not None:
            return self._call_completed(call, size=frame.size)
        if kind == "agent_message":
            return self._message(item, size=frame.size)
        if kind == "error":
            self._dropped += dropped_events(item)
        return (Other(type=frame.type, subtype=kind),)

    def _message(self, item: Mapping[str, object], *, size: int) -> Events:
        text = as_text(item.get("text")) or ""
        if self._lines.has_room(size):
            self._agent_text.message([text], from_subagent=False)
        elif text.strip():
            # The last message is the report, so it is kept even when nothing else is.
            self._agent_text.message_seen, self._agent_text.last = True, text
        return (AssistantText(text=text),)

    def _call_completed(self, call: CodexCall, *, size: int) -> Events:
        if not call.id:
            self._nameless += 1
            call = replace(call, id=f"item#{self._nameless}")
        surplus = max(0, len(call.output or "") - OUTPUT_CHARS)
        if surplus and not self._output_cut:
            self._output_cut = True
            self._lines.warn(f"command_execution aggregated_output truncated: {OUTPUT_CHARS} characters kept")
        begun = self._call_started(call, size=size - surplus)
        result = ToolResult(tool_use_id=call.id, is_error=call.is_error, text=None)
        if self._calls.end(result, from_subagent=False) is None:
            return begun
        ended = ToolEnded(
            tool_use_id=call.id,
            is_error=call.is_error,
            text=None if call.output is None else _cut(call.output, OUTPUT_CHARS),
        )
        return (*begun, *self._declined(call), ended)

    def _call_started(self, call: CodexCall, *, size: int) -> Events:
        use = call.use()
        kept = size if self._lines.has_room(size) else None
        if self._calls.start(use, from_subagent=False, size=kept, line=self._lines.lines) is None:
            return ()
        return (ToolStarted(tool_use_id=call.id, name=call.name, input=use.input),)

    def _declined(self, call: CodexCall) -> Events:
        if not call.declined:
            return ()
        self._denials[call.id] = PermissionDenial(tool_use_id=call.id, tool_name=call.name, input=call.input)
        return (ToolDenied(tool_use_id=call.id, name=call.name, message="declined by the CLI"),)

    _HANDLERS: ClassVar[Mapping[str, Callable[[CodexReader, StreamFrame], Events]]] = {
        "thread.started": _thread_started,
        "turn.started": _turn_started,
        "turn.completed": _turn_completed,
        "turn.failed": _turn_failed,
        "error": _error,
        "item.started": _item_begun,
        "item.updated": _item_begun,
        "item.completed": _item_completed,
    }


def with_last_message(transcript: Transcript, text: str) -> Transcript:
    """Return a transcript that lacks text with that of the last-message file; any other as it is."""
    if transcript.last_assistant_text is not None or not text.strip():
        return transcript
    return replace(
        transcript,
        main_texts=(text,),
        text=abridged(text),
        last_assistant_text=text,
        structured_outputs=_reports(text) if transcript.result_seen else (),
        warnings=(*transcript.warnings, FROM_FILE),
    )


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The first failure, in the words for the session's row."""

    text: str
    category: ErrorCategory


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the last completed turn."""

    input_tokens: int
    output_tokens: int
    cached: int
    reasoning: int


class _Turns(msgspec.Struct, kw_only=True):
    """Accumulates turns and their ends."""

    started: int = 0
    ended: int = 0
    failure: _Failure | None = None
    usage: _Usage | None = None
    reports: tuple[Mapping[str, object], ...] = ()  # read from the last message when the last turn completed

    def fail(self, message: object) -> None:
        """Note a failure; the first one stays."""
        if self.failure is None:
            text = _cut(as_text(message) or NO_DETAIL, ERROR_CHARS)
            self.failure = _Failure(text=text, category=_category(text))


def _started(thread_id: str) -> SessionStarted:
    return SessionStarted(
        session_id=thread_id,
        api_key_source=None,
        model=None,
        permission_mode=None,
        cli_version=None,
        tools=(),
        mcp_servers=(),
    )


def _reports(text: str | None) -> tuple[Mapping[str, object], ...]:
    """Return the JSON object that a last message consists of: as it came, then without its nulls."""
    try:
        value = msgspec.json.decode((text or "").encode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError):
        return ()
    if not isinstance(value, dict):
        return ()
    bare = without_nulls(value)
    return (value,) if bare == value or not isinstance(bare, dict) else (value, bare)


def _category(text: str) -> ErrorCategory:
    words = text.lower()
    if any(word in words for word in _RATE_LIMIT_WORDS):
        return ErrorCategory.RATE_LIMIT
    if any(word in words for word in _AUTH_WORDS):
        return ErrorCategory.AUTH
    return ErrorCategory.API


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + CUT
