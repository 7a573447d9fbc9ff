"""One scripted step as the message that goes out: ids, substitution, stop reason. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL
from claudeops.rehearsal.script import LAST_RESULT, ToolUse, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.rehearsal.script import Step, StopReason

_MARK: Final = re.compile(r"\{\{([a-z][a-z0-9_.-]*)\}\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextBlock:
    """Text of the model."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolUseBlock:
    """A tool call of the model."""

    id: str
    name: str
    input: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message of the model, complete."""

    id: str
    model: str
    content: tuple[TextBlock | ToolUseBlock, ...]
    stop_reason: StopReason
    usage: Usage


NOTHING_CAPTURED: Final[Mapping[str, str]] = MappingProxyType({})


def compose(
    step: Step, *, model: str, seed: str, last_result: str, captured: Mapping[str, str] = NOTHING_CAPTURED
) -> Message:
    """Return the message of a step that has one.

    The ids are made from ``seed``, which must differ between any two messages of a conversation: a CLI that
    resumes a session sends old tool calls and new ones together.
    """
    values = {**captured, LAST_RESULT: last_result}
    text = substitute(step.text or "", values)
    said = (TextBlock(text=text),) if text else ()
    calls = tuple(
        ToolUseBlock(id=_id("toolu", seed, ordinal), name=call.name, input=call.input)
        for ordinal, call in enumerate(_calls(step, values, captured))
    )
    return Message(
        id=_id("msg", seed),
        model=model,
        content=(*said, *calls),
        stop_reason=step.stop_reason or ("tool_use" if calls else "end_turn"),
        usage=step.usage,
    )


def plain(text: str, *, model: str, seed: str) -> Message:
    """Return a message of text only, for requests that no step answers."""
    usage = Usage(cache_creation_input_tokens=0, cache_read_input_tokens=0)
    content = (TextBlock(text=text),)
    return Message(id=_id("msg", seed), model=model, content=content, stop_reason="end_turn", usage=usage)


def _calls(step: Step, values: Mapping[str, str], captured: Mapping[str, str]) -> tuple[ToolUse, ...]:
    # Tool inputs take only what a step captured: docker's --format has braces of its own, and all that a tool
    # printed has no business in a shell.
    calls = tuple(ToolUse(name=call.name, input=_filled(call.input, captured)) for call in step.tool_calls)
    if step.report is None:
        return calls
    return (*calls, ToolUse(name=STRUCTURED_OUTPUT_TOOL, input=_filled(step.report, values)))


def _filled(table: Mapping[str, object], values: Mapping[str, str]) -> dict[str, object]:
    return {key: substituted(value, values) for key, value in table.items()}


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Return the text with each ``{{name}}`` that has a value replaced by it, in one pass."""
    return _MARK.sub(lambda found: values.get(found[1], found[0]), text)


def substituted(value: object, values: Mapping[str, str]) -> object:
    """Return a JSON value with its marks replaced, in every string but the keys."""
    match value:
        case str():
            return substitute(value, values)
        case dict():
            return {key: substituted(item, values) for key, item in value.items()}
        case list() | tuple():
            return [substituted(item, values) for item in value]
        case _:
            return value


def _id(kind: str, seed: str, ordinal: int = 0) -> str:
    return f"{kind}_{hashlib.sha256(f'{seed}/{ordinal}'.encode()).hexdigest()[:24]}"
