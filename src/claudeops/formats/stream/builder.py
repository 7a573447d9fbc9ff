"""Frames in, events out: reads whatever a stream holds and keeps its transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.stream.events import (
    ApiRetried,
    AssistantText,
    CliWarned,
    LineMalformed,
    Other,
    RateLimited,
    SessionStarted,
    StreamEvent,
    TextStreamed,
    ToolDenied,
    ToolEnded,
    ToolStarted,
)
from claudeops.domain.stream.transcript import Transcript
from claudeops.formats.stream.blocks import ToolResult, ToolUse, blocks, text_of, tool_result, tool_results, tool_use
from claudeops.formats.stream.framing import Malformed, StreamFrame, as_object, as_text
from claudeops.formats.stream.results import (
    ResultTally,
    api_retried,
    control,
    rate_limited,
    session_started,
    tool_progress,
)
from claudeops.formats.stream.tallies import UNKNOWN_TOOL, CallTally, LineTally, TextTally, UsageTally

Events = tuple[StreamEvent, ...]
_REFUSAL: Final = "refusal"


def _tool_progress(_: TranscriptBuilder, frame: StreamFrame) -> Events:
    return (tool_progress(frame.body),)


def _control(_: TranscriptBuilder, frame: StreamFrame) -> Events:
    return (control(frame.type, frame.body),)


def _nothing_new(_: TranscriptBuilder, frame: StreamFrame) -> Events:
    return _other(frame)


class TranscriptBuilder:
    """Takes frames in order and accumulates what they say. No input makes it raise."""

    def __init__(self) -> None:
        self._session_id: str | None = None
        self._started: SessionStarted | None = None
        self._agent_text = TextTally()
        self._calls = CallTally()
        self._message_usage = UsageTally()
        self._results = ResultTally()
        self._stop_reason: str | None = None
        self._label: str | None = None  # error label of the main agent's latest message
        self._refused = False
        self._retries = 0
        self._last_retry: ApiRetried | None = None
        self._limit: RateLimited | None = None  # set while the latest notice is a rejection
        self._hooks = 0
        self._lines = LineTally()

    def feed(self, item: StreamFrame | Malformed | None) -> Events:
        """Take one line as `decode` gave it and return the new facts.

        Every line is counted, so ``None`` (blank, or JSON that is not an object) is fed too.
        """
        frame = self._lines.take(item)
        if frame is None:
            return ()
        if isinstance(frame, LineMalformed):
            return (frame,)
        if self._session_id is None:
            self._session_id = as_text(frame.body.get("session_id"))
        handler = self._HANDLERS.get(frame.type)
        if handler is None:
            self._lines.unknown += 1
            return _other(frame)
        return handler(self, frame)

    def close(self) -> Transcript:
        """Return the transcript so far. More frames may follow: a later call returns a later snapshot."""
        started = self._started
        transcript = Transcript(
            session_id=self._session_id,
            api_key_source=started.api_key_source if started else None,
            model=started.model if started else None,
            cli_version=started.cli_version if started else None,
            permission_mode=started.permission_mode if started else None,
            tools=started.tools if started else (),
            mcp_servers=started.mcp_servers if started else (),
            stop_reason=self._stop_reason,
            error_label=self._label,
            refused=self._refused,
            api_retries=self._retries,
            last_retry=self._last_retry,
            rate_limited=self._limit is not None,
            rate_limit_resets_at=self._limit.resets_at if self._limit else None,
            hook_events=self._hooks,
        )
        for tally in (self._lines, self._agent_text, self._message_usage, self._calls, self._results):
            transcript = tally.onto(transcript)
        return transcript

    # --- messages

    def _assistant(self, frame: StreamFrame) -> Events:
        body = frame.body
        from_subagent = _from_subagent(body)
        if not from_subagent:
            self._label = as_text(body.get("error"))
            stop_reason = as_text(as_object(body.get("message")).get("stop_reason"))
            self._stop_reason = stop_reason or self._stop_reason
            # What is no error was answered: by a fallback, or to another message.
            self._refused = _REFUSAL in {self._label, stop_reason} or (self._refused and self._label is not None)
        self._last_retry = None
        self._message_usage.message(as_object(body.get("message")))
        return self._message(frame, from_subagent=from_subagent)

    def _message(self, frame: StreamFrame, *, from_subagent: bool = False) -> Events:
        """Read a message's blocks in order; Claude's ``assistant`` and caliban's ``message`` have the same kinds."""
        claude = frame.type == "assistant"
        keep = self._lines.has_room(frame.size)
        texts: list[str] = []
        events: list[StreamEvent] = []
        for block in blocks(frame.body):
            kind = block.get("type")
            if kind == "text":
                texts.append(text_of(block))
                events.append(AssistantText(text=texts[-1], from_subagent=from_subagent))
            elif kind == "tool_use":
                use = tool_use(block, text_is_unparsed=not claude)
                if claude:
                    self._calls.watch(use)
                events += self._tool_started(use, from_subagent=from_subagent, size=frame.size if keep else None)
        self._agent_text.message(texts if keep else [], from_subagent=from_subagent)
        return tuple(events)

    def _caliban_message(self, frame: StreamFrame) -> Events:
        return self._user(frame) if frame.body.get("role") == "user" else self._message(frame)

    def _user(self, frame: StreamFrame) -> Events:
        from_subagent = _from_subagent(frame.body)
        events: list[StreamEvent] = []
        for found in tool_results(frame.body):
            events += self._tool_ended(found, from_subagent=from_subagent)
        return tuple(events) or _other(frame)

    def _text_delta(self, frame: StreamFrame) -> Events:
        delta = as_text(frame.body.get("delta")) or ""
        if self._lines.has_room(frame.size):
            self._agent_text.delta(delta)
        return (TextStreamed(text=delta),)

    # --- tool calls

    def _tool_started(self, use: ToolUse, *, from_subagent: bool, size: int | None) -> Events:
        """Note a call; ``size``: bytes of its line, ``None`` if its input is not kept."""
        is_new = self._calls.start(use, from_subagent=from_subagent, size=size, line=self._lines.lines) is not None
        if use.name == STRUCTURED_OUTPUT_TOOL and size is not None and not from_subagent:
            delivered = use.input if use.text is None or not _is_whole(use.text) else use.text
            if delivered is not None and (is_new or self._calls.is_full):  # a report counts whenever it comes
                self._calls.deliver(delivered)
        if not is_new:
            return ()
        return (
            ToolStarted(
                tool_use_id=use.id, name=use.name or UNKNOWN_TOOL, input=use.input, from_subagent=from_subagent
            ),
        )

    def _tool_ended(self, result: ToolResult, *, from_subagent: bool) -> Events:
        if not self._calls.end(result, from_subagent=from_subagent):
            return ()
        return (
            ToolEnded(
                tool_use_id=result.tool_use_id,
                is_error=result.is_error,
                text=result.text,
                from_subagent=from_subagent,
            ),
        )

    def _short_tool_use(self, frame: StreamFrame) -> Events:
        use = tool_use(frame.body, text_is_unparsed=True)
        return self._tool_started(
            use, from_subagent=False, size=frame.size if self._lines.has_room(frame.size) else None
        )

    def _short_tool_result(self, frame: StreamFrame) -> Events:
        return self._tool_ended(tool_result(frame.body), from_subagent=False)

    # --- the session

    def _result(self, frame: StreamFrame) -> Events:
        stop_reason = as_text(frame.body.get("stop_reason"))
        self._stop_reason = stop_reason or self._stop_reason
        self._refused = self._refused or _REFUSAL in {stop_reason, as_text(frame.body.get("terminal_reason"))}
        self._last_retry = None
        return (self._results.read(frame.body, label=self._label),)

    def _system(self, frame: StreamFrame) -> Events:
        match frame.subtype:
            case "init" if self._started is None:
                self._started = session_started(frame.body, self._session_id)
                return (self._started,)
            case "api_retry":
                self._retries += 1
                self._last_retry = api_retried(frame.body)
                return (self._last_retry,)
            case "permission_denied":
                return (self._denied(frame.body),)
            case "model_refusal_no_fallback":
                self._refused = self._refused or not _from_subagent(frame.body)
            case "model_refusal_fallback":
                self._refusal_fallback(frame.body)
            case "hook_started":
                self._hooks += 1
        return _other(frame)

    def _refusal_fallback(self, body: Mapping[str, object]) -> None:
        """Note that a model declined and another one answered in its place: for the session, or for a subagent."""
        original, other = (as_text(body.get(key)) for key in ("original_model", "fallback_model"))
        category = as_text(body.get("api_refusal_category"))
        why = f" ({category})" if category else ""
        is_of_subagent = body.get("scope") == "local"
        self._refused = self._refused and is_of_subagent
        self._lines.warn(
            f"model_refusal_fallback: {original or 'the model'} refused{why}, {other or 'another model'} answered"
        )

    def _denied(self, body: Mapping[str, object]) -> ToolDenied:
        denial = self._results.deny(body)
        return ToolDenied(
            tool_use_id=denial.tool_use_id, name=denial.tool_name, message=as_text(body.get("message")) or ""
        )

    def _rate_limit(self, frame: StreamFrame) -> Events:
        limit = rate_limited(frame.body)
        self._limit = limit if limit.rejected else None
        return (limit,)

    def _cli_warning(self, frame: StreamFrame) -> Events:
        warned = CliWarned(subtype=frame.subtype, message=as_text(frame.body.get("message")) or "")
        self._lines.warn(f"{warned.subtype or 'warning'}: {warned.message}")
        return (warned,)

    def _hook(self, frame: StreamFrame) -> Events:
        self._hooks += 1
        return _other(frame)

    _HANDLERS: ClassVar[Mapping[str, Callable[[TranscriptBuilder, StreamFrame], Events]]] = {
        "assistant": _assistant,
        "user": _user,
        "system": _system,
        "result": _result,
        "control_request": _control,
        "control_response": _control,
        "control_cancel_request": _control,
        "tool_progress": _tool_progress,
        "rate_limit_event": _rate_limit,
        "stream_event": _nothing_new,  # progress only: the assistant frames are the record
        "message": _caliban_message,
        "text": _text_delta,
        "thinking": _nothing_new,
        "tool_use": _short_tool_use,
        "tool_result": _short_tool_result,
        "hook_event": _hook,
        "warning": _cli_warning,
    }


def _is_whole(text: str) -> bool:
    """Return whether a text may hold a report: one that was cut off within its JSON does not."""
    return text.rstrip().endswith(("}", '"', "`", ">"))


def _from_subagent(body: Mapping[str, object]) -> bool:
    return as_text(body.get("parent_tool_use_id")) is not None


def _other(frame: StreamFrame) -> Events:
    return (Other(type=frame.type, subtype=frame.subtype),)
