"""The transcript: a session's stream, reduced to what its row and its report need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Self

import msgspec

from claudeops.domain.sessions import ErrorCategory
from claudeops.domain.spending.tokens import MessageUsage
from claudeops.domain.stream.events import ApiRetried, McpServer
from claudeops.text import regex

TEXT_CHARACTERS: Final = 1_000_000
"""The longest text of a session's row; of a longer one the beginning and the end are kept."""

_WAITING: Final = regex.Pattern(r"(?i)\b(waiting on|still waiting|continuing|in progress|in the background)\b")


def says_it_waits(text: str) -> bool:
    """Say whether a text says that something goes on in the background; no phrase goes over the end of a line."""
    return (isinstance(text, LongText) and text.waits) or _WAITING.search(text) is not None


class LongText(str):
    """A text of which parts between its two ends are left out already."""

    __slots__ = ("characters", "waits")
    characters: int  # of all of it
    waits: bool  # what is left out says that something goes on in the background

    def __new__(cls, text: str, *, characters: int, waits: bool = False) -> Self:
        """Return what is left of a text of ``characters``."""
        long = super().__new__(cls, text)
        long.characters, long.waits = characters, waits
        return long


def characters(text: str) -> int:
    """Return how many characters a text has, with those that are left out of it."""
    return text.characters if isinstance(text, LongText) else len(text)


def together(texts: Sequence[str]) -> str:
    """Return texts as one, a newline between two."""
    if len(texts) == 1:
        return texts[0]
    text = "\n".join(texts)
    total = sum(map(characters, texts)) + len(texts) - 1
    if total == len(text):
        return text
    return LongText(text, characters=total, waits=any(map(says_it_waits, texts)))


def abridged(text: str) -> str:
    """Return a text as a row holds it: of one that is too long both ends."""
    half, total = TEXT_CHARACTERS // 2, characters(text)
    return text if total <= TEXT_CHARACTERS else both_ends(text[:half], text[-half:], total=total)


def both_ends(beginning: str, end: str, *, total: int) -> str:
    """Return the two ends of a text of ``total`` characters, with a sentence between them."""
    missing = total - len(beginning) - len(end)
    return f"{beginning}\n[{missing} characters are left out here; the log of the session has them]\n{end}"


class ObservedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as far as the stream has shown it."""

    tool_use_id: str  # "" when the stream named none
    name: str
    input: Mapping[str, object] | None  # None: the model's JSON did not parse
    line: int | None = None  # of the log, where its input is to be read; None: it is here
    from_subagent: bool = False
    ended: bool = False  # a result came, which does not prove that it ran
    is_error: bool = False
    results_before: int = 0  # how many calls had ended when this one first appeared


class PermissionDenial(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the CLI's own rules refused."""

    tool_use_id: str
    tool_name: str
    input: Mapping[str, object]


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A stream so far, or whole. ``None`` means that the stream did not say.

    Text of subagents is not part of it; a result line counts whatever caused it.
    """

    # --- the session
    session_id: str | None = None  # the first non-empty one at the top level of any frame
    api_key_source: str | None = None  # of the first init line only, even where that line lacks it
    model: str | None = None
    cli_version: str | None = None
    permission_mode: str | None = None
    tools: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()

    # --- text
    main_texts: tuple[str, ...] = ()  # text blocks of the main agent, as sent; of many the latest, each once
    text: str = ""  # text blocks of the main agent as sent, one newline between them; of a long text both ends
    says_it_waits: bool = False  # what ``text`` leaves out says that something goes on in the background
    last_assistant_text: str | None = None  # the last message that had text
    result_text: str | None = None  # of the last result line; JSON text where a structured output came

    # --- result lines
    results: int = 0
    subtype: str | None = None  # of the last result line
    is_error: bool = False  # some result line was an error; stays true
    error_subtype: str | None = None  # of the last result line that is an error
    error_text: str | None = None  # likewise; not cut, unless a category is set as well
    error_category: ErrorCategory | None = None  # of a CLI with words of its own; None: the usual rules decide
    refused: bool = False  # the model's last word was that it declines, and no other model has answered since
    error_label: str | None = None  # the CLI's own name for the error, from the preceding assistant frame
    stated_error: str | None = None  # the error text of the last result line, failed or not
    api_error_status: int | None = None  # HTTP status
    terminal_reason: str | None = None
    stop_reason: str | None = None  # the last one in the main agent's messages or a result line
    num_turns: int | None = None
    input_tokens: int = 0  # meaningless without a result line, like the next one
    output_tokens: int = 0
    cached_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    cost_usd: float | None = None  # cumulative, as the CLI counts it
    duration_ms: int | None = None  # as the CLI counts it
    messages_used: tuple[MessageUsage, ...] = ()  # what each message used, according to the messages themselves
    structured_outputs: tuple[Mapping[str, object] | str, ...] = ()  # of result lines, in order, not validated
    structured_calls: tuple[Mapping[str, object] | str, ...] = ()  # inputs of the main agent's report calls, in order

    # --- calls
    tool_calls: Mapping[str, ObservedCall] = msgspec.field(default_factory=dict)  # by id, in order of appearance
    tool_calls_uncounted: int = 0  # calls beyond those
    tool_calls_reported: int = 0  # the count of a result line
    permission_denials: tuple[PermissionDenial, ...] = ()
    background_launches: int = 0  # subagents started with ``run_in_background``
    ask_user_question: bool = False  # the model asked a question that nobody is there to answer

    # --- the model API
    api_retries: int = 0
    last_retry: ApiRetried | None = None  # a retry after which nothing has come yet
    rate_limited: bool = False  # the latest notice about the plan's limit says that it is reached
    rate_limit_resets_at: datetime | None = None  # UTC

    # --- counters
    lines: int = 0  # all lines, blank ones included
    frames: int = 0  # JSON objects
    typed_frames: int = 0  # JSON objects with a ``type`` key, whatever its value
    unknown_frames: int = 0  # JSON objects of an unknown type
    malformed_lines: int = 0
    hook_events: int = 0
    harness_metadata: Mapping[str, object] = msgspec.field(default_factory=dict)  # what only one kind of CLI reports
    warnings: tuple[str, ...] = ()  # in order

    @property
    def result_seen(self) -> bool:
        """Say whether at least one result line came."""
        return self.results > 0

    @property
    def first_frame_seen(self) -> bool:
        """Say whether the CLI printed at least one frame."""
        return self.frames > 0

    @property
    def silent(self) -> bool:
        """Say whether nothing came at all, frame or malformed line."""
        return self.frames == 0 and self.malformed_lines == 0

    @property
    def tool_calls_seen(self) -> int:
        """Return the number of calls: those shown, or the CLI's own count where it shows none."""
        return max(len(self.tool_calls) + self.tool_calls_uncounted, self.tool_calls_reported)

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
        """Return the session's last words: the result text, else the last assistant text."""
        return self.last_assistant_text if self.result_text is None else self.result_text

    @property
    def idle(self) -> bool:
        """Say whether the session neither did nor said anything."""
        return self.tool_calls_seen == 0 and not self.text.strip()
