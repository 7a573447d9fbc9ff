"""What an answer of the Messages API says about tokens, however it is cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from claudeops.domain.holds import ApiError
from claudeops.domain.spending.tokens import TokenUsage
from claudeops.formats.usage import LONGEST_BODY, UsageReader

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "usage": {
            "input_tokens": 12,
            "output_tokens": 1,
            "cache_read_input_tokens": 5400,
            "cache_creation_input_tokens": 900,
            "cache_creation": {"ephemeral_5m_input_tokens": 600, "ephemeral_1h_input_tokens": 300},
            "service_tier": "standard",
        },
    },
}
TEXT = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 'say "usage": 7\n\n'}}
DELTA = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 60}}
STOP = {"type": "message_stop"}
BEGUN = TokenUsage(
    input_tokens=12, output_tokens=1, cache_read_tokens=5400, cache_write_tokens=900, cache_write_1h_tokens=300
)
WHOLE = TokenUsage(
    input_tokens=12, output_tokens=60, cache_read_tokens=5400, cache_write_tokens=900, cache_write_1h_tokens=300
)


def stream(*events: Mapping[str, object], end: str = "\n") -> bytes:
    return "".join(
        f"event: {event['type']}{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in events
    ).encode()


def read(*pieces: bytes, streamed: bool = True) -> UsageReader:
    reader = UsageReader(streamed=streamed)
    for piece in pieces:
        reader.push(piece)
    reader.close()
    return reader


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_stream_is_read_in_pieces_of_any_size(size: int, end: str) -> None:
    whole = stream(START, TEXT, DELTA, STOP, end=end)
    reader = read(*(whole[at : at + size] for at in range(0, len(whole), size)))
    assert (reader.usage, reader.whole, reader.error, reader.unreadable) == (WHOLE, True, None, False)


def test_what_a_broken_stream_has_said_is_known() -> None:
    reader = read(stream(START, TEXT))
    assert (reader.usage, reader.whole) == (BEGUN, False)


def test_every_event_that_tells_something_is_told_of() -> None:
    reader = UsageReader(streamed=True)
    told = [reader.push(stream(event)) for event in (START, TEXT, DELTA, STOP)]
    assert told == [True, False, True, False]
    assert UsageReader(streamed=True).push(stream(START, TEXT)), "also where more follows in the same piece"


def test_later_usage_replaces_only_what_it_names() -> None:
    more = {"type": "message_delta", "usage": {"output_tokens": 5, "input_tokens": None, "cache_read_input_tokens": 6}}
    assert read(stream(START, more, DELTA)).usage == TokenUsage(
        input_tokens=12, output_tokens=60, cache_read_tokens=6, cache_write_tokens=900, cache_write_1h_tokens=300
    )


def test_unstreamed_answer_is_read_at_its_end() -> None:
    message = {"type": "message", "content": [{"type": "text", "text": "{}"}], **START["message"]}  # type: ignore[dict-item]
    body = json.dumps(message).encode()
    reader = read(body[:50], body[50:], streamed=False)
    assert (reader.usage, reader.whole) == (BEGUN, True)


def test_error_is_known_by_its_type_streamed_or_not() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    expected = ApiError(type="overloaded_error", message="Overloaded")
    assert read(json.dumps(error).encode(), streamed=False).error == expected
    broken = read(stream(START, error))
    assert (broken.error, broken.usage, broken.whole) == (expected, BEGUN, False)


def test_searches_speed_and_place_are_known() -> None:
    usage = {"server_tool_use": {"web_search_requests": 2}, "speed": "fast", "inference_geo": "us"}
    assert read(stream({"type": "message_delta", "usage": usage})).usage == TokenUsage(
        web_searches=2, fast=True, us_only=True
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"data: {\n\n",
        b'data: {"usage": 7}\n\n',
        b'data: {"type": "message_delta", "usage": {"output_tokens": "many"}}\n\n',
        b"\xff\xfe\x00data:\n",
        b'data: {"usage": ' + b"[" * 5000 + b"\n\n",
    ],
)
def test_nothing_that_arrives_raises(answer: bytes) -> None:
    assert read(answer).usage is None
    assert read(answer, streamed=False).usage is None


def test_negative_counts_are_none_at_all() -> None:
    assert read(stream({"type": "message_delta", "usage": {"output_tokens": -5}})).usage == TokenUsage()


def test_body_without_end_is_not_kept() -> None:
    reader = UsageReader(streamed=False)
    for _ in range(3):
        reader.push(b"x" * (LONGEST_BODY // 2))
    assert not reader.close()
    assert reader.unreadable
