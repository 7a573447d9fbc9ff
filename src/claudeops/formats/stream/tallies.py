"""Tallies: what a transcript accumulates of lines, text, tool calls and usage while a stream runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.report.report import MARKER_BEGINNINGS, REPORT_CHARACTERS
from claudeops.domain.spending.tokens import MessageUsage, TokenUsage
from claudeops.domain.stream.events import LineMalformed
from claudeops.domain.stream.transcript import (
    TEXT_CHARACTERS,
    ObservedCall,
    Transcript,
    both_ends,
    characters,
    says_it_waits,
    together,
)
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
#
# Kept whole while it is short. Of a long text the beginning and the end go into the session's row; a report is looked
# for in the latest texts, legacy markers in all of a text that came in pieces: of its older part those lines stay that
# hold a marker or a fence. What is left out stands in the session's log.


_KEPT_LINES: Final = (*MARKER_BEGINNINGS, "```", "~~~")


class TextLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a session's text is kept, in characters."""

    text: int = TEXT_CHARACTERS
    report: int = REPORT_CHARACTERS
    lines: int = REPORT_CHARACTERS  # of a text in pieces: those that stay of what is left out
    texts: int = 100_000  # of which a report may be one: a text of some letters takes twenty times their memory
    pieces: int = 1000  # that are held one by one: each takes fifty bytes more than its letters
    together: int = 65_536  # of such pieces

    @property
    def most(self) -> int:
        """The size at which what is too much is left out: not at each text, because that looks at all of them."""
        return self.report + self.report // 4


class TextTally(msgspec.Struct, kw_only=True):
    """Accumulates the main agent's text; nothing of subagents is kept."""

    limits: TextLimits = msgspec.field(default_factory=TextLimits)
    message_seen: bool = False  # deltas count only if no message ever comes
    last: str | None = None  # blocks of the last message with text
    _messages: _Messages | None = None
    _streamed: _Streamed | None = None

    def message(self, texts: list[str], *, from_subagent: bool) -> None:
        """Take the text blocks of one message."""
        if from_subagent:
            return
        if not self.message_seen:
            self.message_seen, self._streamed = True, None
        if not texts:
            return
        if self._messages is None:
            self._messages = _Messages(limits=self.limits)
        self._messages.add(texts)
        text = together(texts)
        if text and not text.isspace():  # not strip(), which copies a text of any length
            self.last = text

    def delta(self, text: str) -> None:
        """Take a piece of a text."""
        if self.message_seen or not text:
            return
        if self._streamed is None:
            self._streamed = _Streamed(limits=self.limits)
        self._streamed.add(text)

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the text so far."""
        if self._messages is not None:
            return replace(
                transcript,
                main_texts=tuple(self._messages.texts),
                text=self._messages.text(self.last),
                last_assistant_text=self.last,
                says_it_waits=self._messages.says_it_waits(),
            )
        if self._streamed is None:
            return replace(transcript, last_assistant_text=self.last)
        streamed = self._streamed.for_report()
        return replace(
            transcript,
            main_texts=(streamed,),
            text=self._streamed.text(),
            last_assistant_text=streamed,
            says_it_waits=self._streamed.says_it_waits(),
        )


class _Messages(msgspec.Struct, kw_only=True):
    """The texts of messages: all of them, or the latest of which a report may be one, each once."""

    limits: TextLimits
    texts: list[str] = msgspec.field(default_factory=list)
    _waits: bool = False  # says so in what is not in ``texts``
    _size: int = 0  # of ``texts``
    _total: int = -1  # of all that came, with one newline between two
    _beginning: str | None = None  # once something was left out
    _before: str = ""  # the end of what was left out, if ``texts`` are not enough for an end

    def add(self, texts: list[str]) -> None:
        """Take the texts of one message."""
        self.texts += texts
        self._size += sum(map(len, texts))
        self._total += sum(map(characters, texts)) + len(texts)
        if self._size > self.limits.most or len(self.texts) > self.limits.texts + self.limits.texts // 4:
            self._leave_out()

    def text(self, last: str | None) -> str:
        """Return all as one text, or its both ends; ``last`` is the last message that is not blank."""
        if self._beginning is None and self._total <= self.limits.text:
            return "\n".join(self.texts)
        if last is None:
            return ""
        half = min(self.limits.text, self._total) // 2  # many texts of some letters may be short together
        latest = list(_up_to(half, reversed(self.texts)))
        end = "\n".join(filter(None, (self._before, *reversed(latest))))[-half:]
        beginning = self._first(half) if self._beginning is None else self._beginning
        return both_ends(beginning[:half], last[-half:] if not end.strip() else end, total=self._total)

    def says_it_waits(self) -> bool:
        """Say whether a text that `text` may leave out says that the session waits."""
        return self._waits or (self._total > self.limits.text and any(map(says_it_waits, self.texts)))

    def _first(self, size: int) -> str:
        return "\n".join(_up_to(size, self.texts))[:size]

    def _leave_out(self) -> None:
        if self._beginning is None:
            self._beginning = self._first(self.limits.text // 2)
        latest: dict[str, None] = {}
        size, half = 0, self.limits.text // 2
        self._before = ""
        for text in reversed(self.texts):
            if text and text not in latest:
                if latest and (size + len(text) > self.limits.report or len(latest) >= self.limits.texts):
                    self._before = text[-half:] if size < half else ""
                    break
                latest[text] = None
                size += len(text)
        self._waits = self._waits or any(says_it_waits(text) for text in self.texts if text not in latest)
        self.texts = list(reversed(latest))
        self._size = size


class _Streamed(msgspec.Struct, kw_only=True):
    """A text that comes in pieces: whole, or its end and the lines before that which may matter for a report."""

    limits: TextLimits
    _waits: bool = False  # says so in what was left out
    _pieces: list[str] = msgspec.field(default_factory=list)
    _pieces_size: int = 0
    _parts: list[str] = msgspec.field(default_factory=list)  # pieces together
    _size: int = 0  # of the parts
    _total: int = 0  # of all that came
    _leave_out_at: int = 0
    _beginning: str | None = None  # once something was left out
    _kept_lines: list[str] = msgspec.field(default_factory=list)  # of what was left out
    _kept_size: int = 0
    _has_words: bool = False

    def __post_init__(self) -> None:
        self._leave_out_at = self.limits.most

    def add(self, piece: str) -> None:
        """Take a piece."""
        self._pieces.append(piece)
        self._pieces_size += len(piece)
        if len(self._pieces) >= self.limits.pieces or self._pieces_size >= self.limits.together:
            self._join()

    def for_report(self) -> str:
        """Return what a report is looked for in."""
        self._join()
        return "".join((*(f"{line}\n" for line in self._kept_lines), *self._parts))

    def text(self) -> str:
        """Return the whole text, or its both ends."""
        self._join()
        if self._total <= self.limits.text and self._beginning is None:
            return "".join(self._parts)
        if not self._has_words:
            return ""
        half = self.limits.text // 2
        whole = "".join(self._parts)
        beginning = whole[:half] if self._beginning is None else self._beginning
        return both_ends(beginning, whole.rstrip()[-half:], total=self._total)

    def says_it_waits(self) -> bool:
        """Say whether what `text` may leave out says that the session waits."""
        return self._waits or (self._total > self.limits.text and says_it_waits("".join(self._parts)))

    def _join(self) -> None:
        if not self._pieces:
            return
        part = "".join(self._pieces)
        self._pieces.clear()
        self._pieces_size = 0
        self._has_words = self._has_words or not part.isspace()
        self._parts.append(part)
        self._size += len(part)
        self._total += len(part)
        if self._size > self._leave_out_at:
            self._leave_out()

    def _leave_out(self) -> None:
        whole = "".join(self._parts)
        end = whole.rfind("\n", 0, len(whole) - self.limits.report) + 1
        if not end and len(whole) <= 2 * self.limits.most:  # a long line: it may still end
            self._leave_out_at = 2 * self.limits.most
            return
        end = end or len(whole) - self.limits.report
        if self._beginning is None:
            self._beginning = whole[: self.limits.text // 2]
        gone = whole[:end]
        self._parts = [whole[end:]]
        self._size = len(self._parts[0])
        self._leave_out_at = self.limits.most
        self._waits = self._waits or says_it_waits(gone)
        self._keep_lines(gone.removesuffix("\n").split("\n"))

    def _keep_lines(self, lines: Iterable[str]) -> None:
        kept = "\n".join(line for line in lines if any(sign in line for sign in _KEPT_LINES))
        if kept and self._kept_size < self.limits.lines:
            self._kept_lines.append(kept)
            self._kept_size += len(kept)


def _up_to(size: int, texts: Iterable[str]) -> Iterator[str]:
    """Yield texts that are not blank until they have as many characters."""
    for text in texts:
        if size <= 0:
            return
        if not text.isspace():
            yield text
            size -= len(text) + 1


# --- tool calls ---------------------------------------------------------------------------------------


UNKNOWN_TOOL: Final = "unknown"
"""The name of a call whose name the stream never gave."""

MOST_CALLS: Final = 10_000
"""Calls, and messages with their usage, that are distinguished by their ids; more of them are only counted."""

HELD_INPUT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of lines whose inputs are held in memory; further ones are read in the log, if they are needed."""

_MOST_REPORTS: Final = 50  # calls that deliver a report: the latest, which are those that `extract` reads
_SUBAGENT_TOOLS: Final = frozenset({"Task", "Agent"})  # renamed in CLI 2.1.63; the init line still says Task


class CallTally(msgspec.Struct, kw_only=True):
    """Accumulates calls by id, in order of first appearance: one call shows in several frames."""

    calls: dict[str, ObservedCall] = msgspec.field(default_factory=dict)
    structured: list[Mapping[str, object] | str] = msgspec.field(default_factory=list)
    uncounted: int = 0  # calls that came after the most that are kept
    launches: int = 0
    asks_user: bool = False
    results: int = 0  # of calls that have ended
    _held: int = 0  # bytes of lines whose inputs are held

    @property
    def is_full(self) -> bool:
        """Say whether further calls are only counted."""
        return len(self.calls) >= MOST_CALLS

    def watch(self, use: ToolUse) -> None:
        """Note what clauditor's heuristics need, by block and not by id; only ``True`` is a launch."""
        if use.name in _SUBAGENT_TOOLS and (use.input or {}).get("run_in_background") is True:
            self.launches += 1
        self.asks_user = self.asks_user or use.name == "AskUserQuestion"

    def start(self, use: ToolUse, *, from_subagent: bool, size: int | None, line: int) -> ObservedCall | None:
        """Note a call; ``None`` when it was already known. Each call without an id counts separately.

        ``size``: bytes of its line, the number of which is ``line``; ``None``: its input is not kept.
        """
        key = use.id or f"#{len(self.calls)}"
        known = self.calls.get(key)
        if known is not None and known.name != UNKNOWN_TOOL:
            return None
        if known is None and self.is_full:
            self.uncounted += 1
            return None
        is_held = size is not None and (not use.input or self._held + size <= HELD_INPUT_BYTES)
        seen = ObservedCall(
            tool_use_id=use.id,
            name=use.name or UNKNOWN_TOOL,
            input=use.input if is_held else {},
            line=None if is_held or size is None else line,
            from_subagent=from_subagent,
            results_before=self.results if known is None else known.results_before,
        )
        if is_held and use.input:
            self._held += size or 0
        if known is not None:  # its result, or a frame without a name, came first
            self.calls[key] = replace(seen, ended=known.ended, is_error=known.is_error)
            return None
        self.calls[key] = seen
        return seen

    def deliver(self, report: Mapping[str, object] | str) -> None:
        """Take the input of a call that delivers a report."""
        self.structured.append(report)
        del self.structured[:-_MOST_REPORTS]

    def end(self, result: ToolResult, *, from_subagent: bool) -> ObservedCall | None:
        """Note a result; ``None`` when its call had already ended, or when it names no call.

        A result without a known call proves that there was one. Once there are too many calls, a result of another one
        counts each time that it comes: whether its call was allowed is to be seen all the same.
        """
        known = self.calls.get(result.tool_use_id)
        if not result.tool_use_id or (known is not None and known.ended):
            return None
        if known is None:
            known = ObservedCall(
                tool_use_id=result.tool_use_id, name=UNKNOWN_TOOL, input={}, from_subagent=from_subagent
            )
        ended = replace(known, ended=True, is_error=result.is_error)
        self.results += 1
        if result.tool_use_id in self.calls or not self.is_full:
            self.calls[result.tool_use_id] = ended
        return ended

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with a copy of the calls so far, which later frames do not change."""
        note = f"calls-truncated: {self.uncounted} calls after the first {MOST_CALLS} are only counted"
        return replace(
            transcript,
            warnings=(*transcript.warnings, note) if self.uncounted else transcript.warnings,
            tool_calls=MappingProxyType(dict(self.calls)),
            structured_calls=tuple(self.structured),
            tool_calls_uncounted=self.uncounted,
            background_launches=self.launches,
            ask_user_question=self.asks_user,
        )


# --- usage ---------------------------------------------------------------------------------------------


_SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the CLI wrote itself."""

_OTHERS: Final = "<others>"
"""Id and model of the entry for all messages that came after the most that are distinguished."""


class UsageTally(msgspec.Struct, kw_only=True):
    """Accumulates usage by message: all that is known where no result line came and no meter counted.

    The CLI prints a message once for each of its blocks, every time with the usage known so far, so their ids
    distinguish messages. Side requests are not in the stream, and for a message that was cut off the usage is too low.
    """

    messages: dict[str, MessageUsage] = msgspec.field(default_factory=dict)
    """By message id, without the latest message; the latest usage of each counts."""

    _latest: tuple[str, str, Mapping[str, object]] | None = None  # id, model, usage: read when another one comes

    def message(self, body: Mapping[str, object]) -> None:
        """Take the message of an ``assistant`` frame, also of a subagent."""
        key, model, usage = as_text(body.get("id")), as_text(body.get("model")), body.get("usage")
        if key is None or model is None or model == _SYNTHETIC or not isinstance(usage, dict):
            return
        if self._latest is not None and self._latest[0] != key:
            self._read_latest()
        self._latest = (key, model, usage)

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the usage so far."""
        self._read_latest()
        return replace(transcript, messages_used=tuple(self.messages.values()))

    def _read_latest(self) -> None:
        """Note the usage of the latest message; those after the first `MOST_CALLS` share an entry of unknown price."""
        if self._latest is None:
            return
        key, model, usage = self._latest
        self._latest = None
        used = _used(usage)
        if key in self.messages or len(self.messages) < MOST_CALLS:
            self.messages[key] = MessageUsage(model=model, usage=used)
            return
        others = self.messages.get(_OTHERS)
        if others is not None:
            used = TokenUsage(
                input_tokens=others.usage.input_tokens + used.input_tokens,
                output_tokens=others.usage.output_tokens + used.output_tokens,
                cache_read_tokens=others.usage.cache_read_tokens + used.cache_read_tokens,
            )
        self.messages[_OTHERS] = MessageUsage(model=_OTHERS, usage=used)


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
