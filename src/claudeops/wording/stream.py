"""One line of a session's log as people see it: what it is, in one line, and the text that belongs to it.

Every line has exactly one such value, by itself alone: so the number of a line names it, and whoever has seen the lines
up to a number has seen all there was. A line that says nothing to people is of the kind `other`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.stream.events import (
    ApiRetried,
    AssistantText,
    CliWarned,
    LineMalformed,
    RateLimited,
    ResultRead,
    SessionStarted,
    StreamEvent,
    TextStreamed,
    ToolDenied,
    ToolEnded,
    ToolStarted,
)
from claudeops.domain.stream.transcript import Transcript
from claudeops.formats.stream.blocks import blocks
from claudeops.formats.stream.framing import Malformed, StreamFrame, as_object, as_text, decode
from claudeops.structs import replace
from claudeops.text.escapes import visible
from claudeops.wording.live import Viewpoint, agent_text_line, live_status, result_line

TEXT_CHARACTERS: Final = 4000
TITLE_CHARACTERS: Final = 200

_SAYS_LITTLE: Final = "a line that is no JSON"
_VIEW: Final = Viewpoint(root=None, redact=str, command_chars=TITLE_CHARACTERS)  # a log is redacted already
_NAMED: Final = (  # what a text of a call is taken from, where it has one
    *("command", "file_path", "pattern", "query", "url", "prompt", "description"),
)


class ShownKind(StrEnum):
    """What a line is, for people."""

    BEGAN = "began"  # the CLI has started
    TEXT = "said"
    THOUGHT = "thought"
    CALL = "call"  # of a tool
    RESULT = "result"  # of a call
    JUDGED = "judged"  # a call is put before the gate, or the CLI's own rules refused it
    REPORT = "report"
    DONE = "done"  # what the session has cost; the CLI ends, or goes on with another turn
    WARNING = "warning"  # of the CLI, or about the model API
    OTHER = "other"


class ShownLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line; its texts are cut, and hide nothing."""

    line: int  # from 1
    at: datetime | None  # when it came, UTC; None: not known
    kind: ShownKind
    title: str  # one line
    text: str = ""
    is_cut: bool = False  # there is more of the text in the log
    tool_use_id: str | None = None  # of the call that it is about
    is_error: bool = False
    cost_usd: float | None = None  # of the session so far


class LineReader(Protocol):
    """What turns frames into facts: a harness has one for its kind of CLI."""

    def feed(self, item: StreamFrame | Malformed | None) -> tuple[StreamEvent, ...]:
        """Return the facts of one line."""

    def close(self) -> Transcript:
        """Return what the lines so far amount to."""


def shown(content: bytes, *, line: int, at: datetime | None, reader: Callable[[], LineReader]) -> ShownLine:
    """Return what people see of a line. No content raises."""
    item = decode(content)
    one = reader()  # of its own: what a line is must not depend on where reading began
    facts = [found for event in one.feed(item) if (found := _found(event)) is not None]
    if not facts:
        facts = [_thought(item) or _other(item, content)]
    best = min(facts, key=lambda found: _FIRST.index(found.kind))
    same = sum(found.kind is best.kind for found in facts)
    cost = None
    if best.kind is ShownKind.DONE:
        cost, best = _done(best, one.close())
        facts = [best]
    text = "\n".join(found.text for found in facts if found.text and found.kind in {best.kind, *_BESIDE})
    return ShownLine(
        line=line,
        at=at,
        kind=best.kind,
        title=_one_line(best.title) + (f" (and {same - 1} more)" if same > 1 else ""),
        text=visible(text[:TEXT_CHARACTERS]),
        is_cut=len(text) > TEXT_CHARACTERS,
        tool_use_id=_one_line(best.tool_use_id) if best.tool_use_id else None,
        is_error=best.is_error,
        cost_usd=cost,
    )


class _Fact(msgspec.Struct, frozen=True, kw_only=True):
    kind: ShownKind
    title: str
    text: str = ""
    tool_use_id: str | None = None
    is_error: bool = False


_FIRST: Final = (
    *(ShownKind.REPORT, ShownKind.RESULT, ShownKind.CALL, ShownKind.JUDGED, ShownKind.DONE, ShownKind.BEGAN),
    *(ShownKind.TEXT, ShownKind.THOUGHT, ShownKind.WARNING, ShownKind.OTHER),
)
"""Which of several facts of one line names it; the model's own texts beside it stay."""

_BESIDE: Final = frozenset({ShownKind.TEXT, ShownKind.JUDGED})


def _done(found: _Fact, transcript: Transcript) -> tuple[float | None, _Fact]:
    """Return what a result line says that the session has cost, and the line with its figures."""
    cost, turns = transcript.cost_usd, transcript.num_turns
    figures = (None if cost is None else f"${cost:.4f}", None if turns is None else f"{turns} turns")
    text = transcript.error_text or transcript.result_text or ""
    return cost, replace(found, title=_joined(found.title, *figures), text=text)


def _found(event: StreamEvent) -> _Fact | None:  # noqa: PLR0911 - one case a fact
    match event:
        case SessionStarted():
            return _Fact(kind=ShownKind.BEGAN, title=_joined("starts", event.model, _version(event)))
        case AssistantText():
            return _Fact(kind=ShownKind.TEXT, title=agent_text_line(event.text, _VIEW), text=event.text)
        case TextStreamed():
            return _Fact(kind=ShownKind.OTHER, title="a piece of a text", text=event.text)
        case ToolStarted():
            return _call(event)
        case ToolEnded():
            return _Fact(
                kind=ShownKind.RESULT,
                title=result_line(event.text, _VIEW) or "no output",
                text=event.text or "",
                tool_use_id=event.tool_use_id,
                is_error=event.is_error,
            )
        case ToolDenied():
            title = f"refused by the CLI: {event.name}"
            return _Fact(
                kind=ShownKind.JUDGED, title=title, text=event.message, tool_use_id=event.tool_use_id, is_error=True
            )
        case ResultRead():
            return _Fact(kind=ShownKind.DONE, title=event.subtype or "done", is_error=event.is_error)
        case _:
            return _about_the_run(event)


def _about_the_run(event: StreamEvent) -> _Fact | None:
    match event:
        case ApiRetried():
            why = _joined(event.error, None if event.status is None else f"HTTP {event.status}")
            return _Fact(kind=ShownKind.WARNING, title=_joined("the model API is asked again", why or None))
        case RateLimited():
            title = _joined("limit of the plan", event.window, event.status)
            return _Fact(kind=ShownKind.WARNING, title=title, is_error=event.rejected)
        case CliWarned():
            return _Fact(kind=ShownKind.WARNING, title=event.subtype or "warning", text=event.message)
        case LineMalformed():
            return _Fact(kind=ShownKind.OTHER, title=f"{_SAYS_LITTLE}: {event.reason}")
        case _:
            return None


def _call(event: ToolStarted) -> _Fact:
    """Return a call; of one whose input has a single text that says it all, that text."""
    given = event.input or {}
    if event.name == STRUCTURED_OUTPUT_TOOL:
        summary = as_text(given.get("summary"))
        return _Fact(
            kind=ShownKind.REPORT,
            title=_joined("report", summary),
            text=_written(given),
            tool_use_id=event.tool_use_id,
        )
    only = next((text for name in _NAMED if (text := as_text(given.get(name)))), None)
    return _Fact(
        kind=ShownKind.CALL,
        title=live_status(event.name, event.input, _VIEW, task=""),
        text=only if only is not None and len(given) == 1 else _written(given) if given else "",
        tool_use_id=event.tool_use_id,
    )


def _thought(item: StreamFrame | Malformed | None) -> _Fact | None:
    """Return a line of nothing but thoughts."""
    if not isinstance(item, StreamFrame):
        return None
    of_codex = as_object(item.body.get("item"))
    found = [as_text(block.get("thinking")) for block in blocks(item.body) if block.get("type") == "thinking"]
    if of_codex.get("type") == "reasoning":
        found.append(as_text(of_codex.get("text")))
    text = "\n".join(filter(None, found))
    return _Fact(kind=ShownKind.THOUGHT, title=agent_text_line(text, _VIEW), text=text) if text else None


def _other(item: StreamFrame | Malformed | None, content: bytes) -> _Fact:
    if item is None:
        return _Fact(kind=ShownKind.OTHER, title=_SAYS_LITTLE if content.strip() else "an empty line")
    if isinstance(item, Malformed):
        return _Fact(kind=ShownKind.OTHER, title=f"{_SAYS_LITTLE}: {item.reason}")
    request = as_object(item.body.get("request"))
    wrapped = as_object(request.get("input"))
    tool_use_id = as_text(request.get("tool_use_id")) or as_text(wrapped.get("tool_use_id"))
    if item.type == "control_request" and tool_use_id is not None:
        tool = as_text(request.get("tool_name")) or as_text(wrapped.get("tool_name")) or "a call"
        return _Fact(kind=ShownKind.JUDGED, title=f"the gate is asked: {tool}", tool_use_id=tool_use_id)
    return _Fact(
        kind=ShownKind.OTHER, title=": ".join(filter(None, (item.type, item.subtype))) or "a line without a type"
    )


def _joined(*parts: str | None) -> str:
    return " · ".join(filter(None, parts))


def _version(event: SessionStarted) -> str | None:
    return None if event.cli_version is None else f"CLI {event.cli_version}"


def _written(given: Mapping[str, object]) -> str:
    """Return an input as text, of which only the beginning is shown."""
    lines: Iterable[str] = (f"{name}: {_value(value)}" for name, value in given.items())
    return "\n".join(lines)


def _value(value: object) -> str:
    if isinstance(value, str):
        return value[: TEXT_CHARACTERS + 1]
    try:
        return json.dumps(value, ensure_ascii=False)[: TEXT_CHARACTERS + 1]
    except (ValueError, RecursionError):  # numbers of thousands of digits, arrays within arrays within arrays
        return "..."


def _one_line(text: str) -> str:
    return visible(_VIEW.display(text, TITLE_CHARACTERS))
