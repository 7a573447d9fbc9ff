"""What a stream's messages say that they used, where no result line came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claudeops.domain.spending.budget import from_stream
from claudeops.domain.spending.tokens import MessageUsage, TokenUsage
from support.store_values import ending, running
from support.streams import read

MODEL = "claude-opus-4-5"


def message(key: str, output: int, *, model: str = MODEL, **changes: object) -> dict[str, Any]:
    usage = {
        "input_tokens": 10,
        "output_tokens": output,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_1h_input_tokens": 5},
    }
    text = [{"type": "text", "text": "."}]
    return {"type": "assistant", "message": {"id": key, "model": model, "content": text, "usage": usage}, **changes}


def used(output: int, model: str = MODEL) -> MessageUsage:
    usage = TokenUsage(
        input_tokens=10,
        output_tokens=output,
        cache_read_tokens=100,
        cache_write_tokens=20,
        cache_write_1h_tokens=5,
    )
    return MessageUsage(model=model, usage=usage)


def seen(*frames: dict[str, Any]) -> Sequence[MessageUsage]:
    return read(*frames).transcript.messages_used


def test_a_message_that_is_printed_for_each_block_counts_once_with_what_it_said_last() -> None:
    assert seen(message("msg_1", 1), message("msg_1", 7), message("msg_2", 3)) == (used(7), used(3))


def test_subagents_messages_count_and_the_clis_own_do_not() -> None:
    of_subagent = message("msg_2", 3, parent_tool_use_id="toolu_1")
    assert seen(message("msg_1", 1), of_subagent, message("msg_3", 0, model="<synthetic>")) == (used(1), used(3))


def test_strange_messages_count_for_nothing() -> None:
    bodies: list[object] = [None, [], {"id": 7}, {"id": "a", "model": MODEL}]
    assert seen(*({"type": "assistant", "message": body} for body in bodies)) == ()


def test_a_session_without_a_result_line_costs_what_its_messages_cost() -> None:
    told = from_stream(ending(running()), (used(100), used(200)))
    assert (told.input_tokens, told.output_tokens, told.cached_input_tokens) == (20, 300, 200)
    assert told.cost_usd is not None
    assert abs(told.cost_usd - (20 * 5 + 300 * 25 + 200 * 0.5 + 30 * 6.25 + 10 * 10) / 1e6) < 1e-12
    assert told.warnings[0].startswith("cost-from-stream: ")


def test_a_message_without_a_price_leaves_the_cost_unknown() -> None:
    told = from_stream(ending(running()), (used(100), used(1, "claude-opus-9")))
    assert (told.cost_usd, told.input_tokens) == (None, 20)


def test_a_result_line_knows_better() -> None:
    known = ending(running(), cost_usd=0.5, input_tokens=1)
    assert from_stream(known, (used(100),)) == known
    assert from_stream(ending(running()), ()) == ending(running())
