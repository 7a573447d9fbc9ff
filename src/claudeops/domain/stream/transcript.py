"""What the messages of a stream say that they used: all that is known where no result line came and nobody counted.

The CLI prints a message once for each of its blocks, every time with the usage known by then, so messages are told
apart by their id. Side requests are not in the stream, and a message that was cut off says too little.

What a session's stream said, reduced to what its row and its report need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.model import ErrorCategory
from claudeops.domain.spending.tokens import MessageUsage, TokenUsage
from claudeops.domain.stream.events import ApiRetried, McpServer
from claudeops.domain.stream.framing import as_count, as_object, as_text

_SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the CLI wrote itself."""


@dataclass(kw_only=True, slots=True)
class SpendTally:
    """Accumulates usage by message."""

    messages: dict[str, tuple[str, Mapping[str, object]]] = field(default_factory=dict)
    """Model and usage by message id; what came last counts. Read at the end: a message comes once for each block."""

    def message(self, body: Mapping[str, object]) -> None:
        """Take the message of an ``assistant`` frame, a subagent's too."""
        key, model, usage = as_text(body.get("id")), as_text(body.get("model")), body.get("usage")
        if key is None or model is None or model == _SYNTHETIC or not isinstance(usage, dict):
            return
        self.messages[key] = (model, usage)

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the usage so far."""
        used = (MessageUsage(model=model, usage=_used(usage)) for model, usage in self.messages.values())
        return replace(transcript, messages_used=tuple(used))


class CallSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the stream showed it so far."""

    tool_use_id: str  # "" when the stream named none
    name: str
    input: Mapping[str, object] | None  # None: the model's JSON did not parse
    from_subagent: bool = False
    ended: bool = False  # a result came; says nothing about whether it ran
    is_error: bool = False
    results_before: int = 0  # how many calls had ended when this one first appeared


class PermissionDenial(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the CLI's own rules refused."""

    tool_use_id: str
    tool_name: str
    input: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """A stream so far, or whole. ``None`` is what the stream did not say.

    Text of subagents is no part of it; a result line counts whoever caused it.
    """

    # --- the session
    session_id: str | None = None  # first non-empty one at the top level of any frame
    api_key_source: str | None = None  # of the first init line only, even where that line lacks it
    model: str | None = None
    cli_version: str | None = None
    permission_mode: str | None = None
    tools: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()

    # --- text
    main_texts: tuple[str, ...] = ()  # text blocks of the main agent, as sent
    text: str = ""  # text blocks of the main agent as sent, one newline between them
    display_text: str = ""  # the same for people: stripped, blank blocks dropped
    last_assistant_text: str | None = None  # the last message that had text
    result_text: str | None = None  # of the last result line; JSON text where a structured output came

    # --- result lines
    results: int = 0
    subtype: str | None = None  # of the last result line
    is_error: bool = False  # some result line said so; sticks
    error_subtype: str | None = None  # of the last result line that is an error
    error_text: str | None = None  # same; not cut, except where a category stands beside it
    error_category: ErrorCategory | None = None  # of a CLI with words of its own; None: the usual rules say
    error_label: str | None = None  # the CLI's own name for the error, from the assistant frame before it
    stated_error: str | None = None  # what the last result line calls its error, failed or not
    api_error_status: int | None = None  # HTTP status
    terminal_reason: str | None = None
    stop_reason: str | None = None  # the last that the main agent's messages or a result line gave
    num_turns: int | None = None
    input_tokens: int = 0  # meaningless without a result line, as the next one
    output_tokens: int = 0
    cached_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    cost_usd: float | None = None  # cumulative, as the CLI counts it
    duration_ms: int | None = None  # as the CLI counts it
    messages_used: tuple[MessageUsage, ...] = ()  # what each message used, by the messages themselves
    structured_outputs: tuple[Mapping[str, object], ...] = ()  # of result lines, in order, not validated
    structured_calls: tuple[Mapping[str, object], ...] = ()  # inputs of the main agent's report calls, in order

    # --- calls
    tool_calls: Mapping[str, CallSeen] = field(default_factory=dict)  # by id, in order of appearance
    tool_calls_reported: int = 0  # what a result line counted itself
    permission_denials: tuple[PermissionDenial, ...] = ()
    background_launches: int = 0  # subagents started with ``run_in_background``
    ask_user_question: bool = False  # the model asked whoever is not there

    # --- the model API
    api_retries: int = 0
    last_retry: ApiRetried | None = None  # a retry that nothing has followed yet
    rate_limited: bool = False  # the last that was heard of the plan's limit is that it is hit
    rate_limit_resets_at: datetime | None = None  # UTC

    # --- counters
    lines: int = 0  # all that came, blank ones included
    frames: int = 0  # JSON objects
    typed_frames: int = 0  # JSON objects with a ``type`` key, whatever it holds
    unknown_frames: int = 0  # JSON objects of a type that we do not know
    malformed_lines: int = 0
    hook_events: int = 0
    harness_metadata: Mapping[str, object] = field(default_factory=dict)  # what only one kind of CLI tells
    warnings: tuple[str, ...] = ()  # in order

    @property
    def result_seen(self) -> bool:
        """Say whether at least one result line came."""
        return self.results > 0

    @property
    def first_frame_seen(self) -> bool:
        """Say whether the CLI printed anything that is a frame."""
        return self.frames > 0

    @property
    def silent(self) -> bool:
        """Say whether nothing came at all, readable or not."""
        return self.frames == 0 and self.malformed_lines == 0

    @property
    def tool_calls_seen(self) -> int:
        """Return the number of calls: as shown, or as the CLI counted where it shows none."""
        return max(len(self.tool_calls), self.tool_calls_reported)

    @property
    def tool_errors(self) -> int:
        """Return the number of calls whose result is an error."""
        return sum(call.is_error for call in self.tool_calls.values())

    @property
    def open_tools(self) -> tuple[str, ...]:
        """Return the ids of calls without a result, in order of appearance."""
        return tuple(key for key, call in self.tool_calls.items() if not call.ended)

    @property
    def final_text(self) -> str | None:
        """Return the session's last word: the result text, else the last assistant text."""
        return self.last_assistant_text if self.result_text is None else self.result_text

    @property
    def idle(self) -> bool:
        """Say whether the session neither did nor said anything."""
        return self.tool_calls_seen == 0 and not self.text.strip()


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
