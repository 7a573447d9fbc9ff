"""One scripted step as the message that goes out: ids, substitution, stop reason. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL
from claudeops.rehearsal.script import LAST_RESULT, ToolUse, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.rehearsal.script import Step, StopReason


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


def compose(step: Step, *, model: str, seed: str, last_result: str) -> Message:
    """Return the message of a step that has one.

    The ids are made from ``seed``, which must differ between any two messages of a conversation: a CLI that
    resumes a session sends old tool calls and new ones together.
    """
    text = substitute(step.text or "", last_result)
    said = (TextBlock(text=text),) if text else ()
    calls = tuple(
        ToolUseBlock(id=_id("toolu", seed, ordinal), name=call.name, input=call.input)
        for ordinal, call in enumerate(_calls(step, last_result))
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


def _calls(step: Step, last_result: str) -> tuple[ToolUse, ...]:
    # Tool inputs go out as they were written: docker's --format has braces of its own, and what a tool
    # printed has no business in a shell.
    if step.report is None:
        return step.tool_calls
    report = {key: substituted(value, last_result) for key, value in step.report.items()}
    return (*step.tool_calls, ToolUse(name=STRUCTURED_OUTPUT_TOOL, input=report))


def substitute(text: str, last_result: str) -> str:
    """Return the text with the last results in place of their mark."""
    return text.replace(LAST_RESULT, last_result)


def substituted(value: object, last_result: str) -> object:
    """Return a JSON value with the last results in place of their mark, in every string but the keys."""
    match value:
        case str():
            return substitute(value, last_result)
        case dict():
            return {key: substituted(item, last_result) for key, item in value.items()}
        case list() | tuple():
            return [substituted(item, last_result) for item in value]
        case _:
            return value


def _id(kind: str, seed: str, ordinal: int = 0) -> str:
    return f"{kind}_{hashlib.sha256(f'{seed}/{ordinal}'.encode()).hexdigest()[:24]}"
