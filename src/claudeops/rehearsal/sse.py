"""A message in the two forms of the Messages API: one JSON object, or server-sent events. Pure.

https://docs.anthropic.com/en/api/messages-streaming gives the order of the events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from claudeops.rehearsal.answer import TextBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from claudeops.rehearsal.answer import Message, ToolUseBlock

BEGUN_OUTPUT_TOKENS = 1
"""Output tokens that the first event of a stream reports, before there is any output."""


def as_json(message: Message) -> bytes:
    """Return the body of an answer that was not asked to stream."""
    return msgspec.json.encode({**_head(message), "content": [_block(block) for block in message.content]})


def events(message: Message) -> tuple[bytes, ...]:
    """Return the encoded events of a streamed answer, ``message_start`` to ``message_stop``."""
    return tuple(_event(data) for data in _stream(message))


def halves(pieces: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the first half of an answer: of its events, or of its bytes when it is one piece."""
    if len(pieces) == 1:
        return (pieces[0][: len(pieces[0]) // 2],)
    return pieces[: len(pieces) // 2]


def error_body(*, error_type: str, message: str, request_id: str) -> bytes:
    """Return the body of an error answer."""
    return msgspec.json.encode(
        {"type": "error", "error": {"type": error_type, "message": message}, "request_id": request_id}
    )


def _stream(message: Message) -> Iterator[dict[str, object]]:
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


def _head(message: Message) -> dict[str, object]:
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
    """Yield a block's content in two pieces, so that whoever reads it has to join them."""
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
