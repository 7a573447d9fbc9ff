"""Turns a scripted step into a message, and a message into bytes: one JSON object or server-sent events. Pure.

https://docs.anthropic.com/en/api/messages-streaming gives the order of the events.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.scripted_api.script import LAST_RESULT, ScriptedToolUse, ScriptStep, StopReason, Usage

BEGUN_OUTPUT_TOKENS = 1
"""Output tokens that the first event of a stream reports, before any output."""

NOTHING_CAPTURED: Final[Mapping[str, str]] = MappingProxyType({})

PLACEHOLDER: Final = re.compile(r"\{\{([a-z][a-z0-9_.-]*)\}\}")


class TextBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Text of the model."""

    text: str


class ToolUseBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of the model."""

    id: str
    name: str
    input: Mapping[str, object]


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the model, complete."""

    id: str
    model: str
    content: tuple[TextBlock | ToolUseBlock, ...]
    stop_reason: StopReason
    usage: Usage


# --- a step as a message -----------------------------------------------------------------------------


def compose(
    step: ScriptStep, *, model: str, seed: str, last_result: str, captured: Mapping[str, str] = NOTHING_CAPTURED
) -> ModelMessage:
    """Return the message of a step that has one.

    The ids are derived from ``seed``, which must differ between any two messages of a conversation: a CLI that resumes
    a session sends old and new tool calls together.
    """
    values = {**captured, LAST_RESULT: last_result}
    text = fill_text(step.text or "", values)
    spoken = (TextBlock(text=text),) if text else ()
    calls = tuple(
        ToolUseBlock(id=_id("toolu", seed, ordinal), name=call.name, input=call.input)
        for ordinal, call in enumerate(_calls(step, values, captured))
    )
    return ModelMessage(
        id=_id("msg", seed),
        model=model,
        content=(*spoken, *calls),
        stop_reason=step.stop_reason or ("tool_use" if calls else "end_turn"),
        usage=step.usage,
    )


def plain(text: str, *, model: str, seed: str) -> ModelMessage:
    """Return a message with text alone, for requests that no step answers."""
    usage = Usage(cache_creation_input_tokens=0, cache_read_input_tokens=0)
    content = (TextBlock(text=text),)
    return ModelMessage(id=_id("msg", seed), model=model, content=content, stop_reason="end_turn", usage=usage)


def fill_text(text: str, values: Mapping[str, str]) -> str:
    """Return the text with each placeholder that has a value replaced by it, in one pass."""
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def fill(value: object, values: Mapping[str, str]) -> object:
    """Return a JSON value with the placeholders of every string, except keys, replaced by their values."""
    match value:
        case str():
            return fill_text(value, values)
        case dict():
            return {key: fill(item, values) for key, item in value.items()}
        case list() | tuple():
            return [fill(item, values) for item in value]
        case _:
            return value


def _calls(step: ScriptStep, values: Mapping[str, str], captured: Mapping[str, str]) -> tuple[ScriptedToolUse, ...]:
    # Tool inputs get captured values only: docker's --format has braces of its own, and the whole output of a tool
    # must not reach a shell.
    calls = tuple(ScriptedToolUse(name=call.name, input=_filled(call.input, captured)) for call in step.tool_calls)
    if step.report is None:
        return calls
    return (*calls, ScriptedToolUse(name=STRUCTURED_OUTPUT_TOOL, input=_filled(step.report, values)))


def _filled(table: Mapping[str, object], values: Mapping[str, str]) -> dict[str, object]:
    return {key: fill(value, values) for key, value in table.items()}


def _id(kind: str, seed: str, ordinal: int = 0) -> str:
    return f"{kind}_{hashlib.sha256(f'{seed}/{ordinal}'.encode()).hexdigest()[:24]}"


# --- a message as bytes ------------------------------------------------------------------------------


def as_json(message: ModelMessage) -> bytes:
    """Return the body of a response that is not streamed."""
    return msgspec.json.encode({**_head(message), "content": [_block(block) for block in message.content]})


def events(message: ModelMessage) -> tuple[bytes, ...]:
    """Return the encoded events of a streamed response, ``message_start`` to ``message_stop``."""
    return tuple(_event(data) for data in _stream(message))


def halves(pieces: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the first half of a response: of its events, or of its bytes when it is one piece."""
    if len(pieces) == 1:
        return (pieces[0][: len(pieces[0]) // 2],)
    return pieces[: len(pieces) // 2]


def error_body(*, error_type: str, message: str, request_id: str) -> bytes:
    """Return the body of an error response."""
    return msgspec.json.encode(
        {"type": "error", "error": {"type": error_type, "message": message}, "request_id": request_id}
    )


def _stream(message: ModelMessage) -> Iterator[dict[str, object]]:
    begun = {**msgspec.structs.asdict(message.usage), "output_tokens": BEGUN_OUTPUT_TOKENS}
    yield {"type": "message_start", "message": {**_head(message), "content": [], "stop_reason": None, "usage": begun}}
    for index, block in enumerate(message.content):
        yield {"type": "content_block_start", "index": index, "content_block": _empty(block)}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending = {"stop_reason": message.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": msgspec.structs.asdict(message.usage)}
    yield {"type": "message_stop"}


def _head(message: ModelMessage) -> dict[str, object]:
    return {
        "id": message.id,
        "type": "message",
        "role": "assistant",
        "model": message.model,
        "content": [],
        "stop_reason": message.stop_reason,
        "stop_sequence": None,
        "usage": msgspec.structs.asdict(message.usage),
    }


def _block(block: TextBlock | ToolUseBlock) -> dict[str, object]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}


def _empty(block: TextBlock | ToolUseBlock) -> dict[str, object]:
    nothing: Mapping[str, object] = {"text": ""} if isinstance(block, TextBlock) else {"input": {}}
    return {**_block(block), **nothing}


def _deltas(block: TextBlock | ToolUseBlock) -> Iterator[dict[str, object]]:
    """Yield a block's content in two pieces, so that the reader must join them."""
    if isinstance(block, TextBlock):
        for piece in _pieces(block.text):
            yield {"type": "text_delta", "text": piece}
    else:
        for piece in _pieces(msgspec.json.encode(block.input).decode()):
            yield {"type": "input_json_delta", "partial_json": piece}


def _pieces(text: str) -> tuple[str, ...]:
    middle = len(text) // 2
    return tuple(piece for piece in (text[:middle], text[middle:]) if piece)


def _event(data: dict[str, object]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (str(data["type"]).encode(), msgspec.json.encode(data))
