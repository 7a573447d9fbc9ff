"""A step becomes the bytes of the Messages API, and every request gets an answer of its shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec
import pytest

from claudeops.scripted_api import responses
from claudeops.scripted_api.player import Finish, Player, ScriptedReply
from claudeops.scripted_api.requests import Recorded, RequestKind
from claudeops.scripted_api.responses import ModelMessage, TextBlock, ToolUseBlock, compose
from claudeops.scripted_api.script import Script, ScriptedError, ScriptedToolUse, ScriptStep, Usage

MESSAGE = ModelMessage(
    id="msg_1",
    model="claude-haiku-4-5",
    content=(TextBlock(text="I look ä🙂"), ToolUseBlock(id="toolu_1", name="Bash", input={"command": "df\n"})),
    stop_reason="tool_use",
    usage=Usage(input_tokens=1, output_tokens=2, cache_creation_input_tokens=3, cache_read_input_tokens=4),
)
SESSION = {"x-claude-code-session-id": "s"}


def decoded(events: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the data of encoded events, having checked their frame."""
    data = []
    for event in events:
        name, line, *rest = event.split(b"\n")
        assert rest == [b"", b""]
        data.append(msgspec.json.decode(line.removeprefix(b"data: ")))
        assert name == b"event: " + data[-1]["type"].encode()
    return data


def joined(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return the content of each block as a client puts it together."""
    deltas = [event for event in events if event["type"] == "content_block_delta"]
    blocks = groupby(deltas, key=lambda event: event["index"])
    return ["".join(one["delta"].get("text", one["delta"].get("partial_json")) for one in block) for _, block in blocks]


def player(*steps: dict[str, object]) -> Player:
    return Player(Script.from_mapping({"tiers": {"haiku": {"steps": list(steps)}}, "side_text": "aside"}))


def see(played: Player, *, method: str = "POST", path: str = "/v1/messages?beta=true", **body: object) -> Recorded:
    asked = {"model": "claude-haiku-4-5", "messages": [], "tools": [{"name": "Bash"}], "stream": True, **body}
    return played.see(method=method, path=path, headers=SESSION, body=msgspec.json.encode(asked))


def error_of(reply: ScriptedReply) -> dict[str, str]:
    body = msgspec.json.decode(reply.pieces[0])
    assert body["type"] == "error"
    error: dict[str, str] = body["error"]
    return error


def test_a_stream_has_the_events_of_the_api_in_its_order() -> None:
    events = decoded(responses.events(MESSAGE))
    block = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
    assert [event["type"] for event in events] == ["message_start", *block, *block, "message_delta", "message_stop"]
    assert [event["index"] for event in events[1:9]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert events[1]["content_block"] == {"type": "text", "text": ""}
    assert events[5]["content_block"] == {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}


def test_the_pieces_of_a_stream_join_to_what_was_said() -> None:
    text, call = joined(decoded(responses.events(MESSAGE)))
    assert (text, msgspec.json.decode(call)) == ("I look ä🙂", {"command": "df\n"})


def test_the_tokens_are_told_at_the_begin_and_the_output_at_the_end() -> None:
    events = decoded(responses.events(MESSAGE))
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4}
    assert events[0]["message"]["usage"] == {**usage, "output_tokens": 1}
    assert events[0]["message"]["stop_reason"] is None
    assert events[-2]["usage"] == {**usage, "output_tokens": 2}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_without_a_stream_the_same_message_is_one_object() -> None:
    assert msgspec.json.decode(responses.as_json(MESSAGE)) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5",
        "content": [
            {"type": "text", "text": "I look ä🙂"},
            {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "df\n"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "cache_creation_input_tokens": 3,
            "cache_read_input_tokens": 4,
        },
    }


@pytest.mark.parametrize(
    ("step", "stop_reason", "blocks"),
    [
        pytest.param(ScriptStep(text="done"), "end_turn", ["TextBlock"], id="text_ends_the_turn"),
        pytest.param(ScriptStep(text=""), "end_turn", [], id="silent_model"),
        pytest.param(
            ScriptStep(text="a", tool=ScriptedToolUse(name="Bash")),
            "tool_use",
            ["TextBlock", "Bash"],
            id="text_and_tool",
        ),
        pytest.param(
            ScriptStep(tools=(ScriptedToolUse(name="Bash"), ScriptedToolUse(name="Read"))),
            "tool_use",
            ["Bash", "Read"],
            id="parallel",
        ),
        pytest.param(ScriptStep(report={}), "tool_use", ["StructuredOutput"], id="empty_report"),
        pytest.param(
            ScriptStep(tool=ScriptedToolUse(name="Bash"), report={}),
            "tool_use",
            ["Bash", "StructuredOutput"],
            id="report_comes_last",
        ),
        pytest.param(ScriptStep(text="a", stop_reason="max_tokens"), "max_tokens", ["TextBlock"], id="as_scripted"),
    ],
)
def test_a_step_becomes_a_message_of_its_kind(step: ScriptStep, stop_reason: str, blocks: list[str]) -> None:
    message = compose(step, model="m", seed="x", last_result="")
    assert message.stop_reason == stop_reason
    assert [getattr(block, "name", "TextBlock") for block in message.content] == blocks


def test_the_last_result_goes_into_texts_and_reports_but_never_into_commands() -> None:
    mark = "<{{last_result}}>"
    step = ScriptStep(
        text=mark,
        tool=ScriptedToolUse(name="Bash", input={"command": f"echo {mark}"}),
        report={"summary": mark, "events": [{"message": mark, "count": 1}]},
    )
    text, tool, report = compose(step, model="m", seed="x", last_result="; rm -rf /").content
    assert text == TextBlock(text="<; rm -rf />")
    assert isinstance(tool, ToolUseBlock)
    assert isinstance(report, ToolUseBlock)
    assert tool.input == {"command": f"echo {mark}"}
    assert report.input == {"summary": "<; rm -rf />", "events": [{"message": "<; rm -rf />", "count": 1}]}


def test_no_two_tool_calls_of_a_session_share_an_id() -> None:
    calls = [{"name": "Bash"}, {"name": "Bash"}]
    played = player({"tools": calls, "times": 3})
    ids = [
        event["content_block"]["id"]
        for _ in range(3)
        for event in decoded(played.reply(see(played)).pieces)
        if event["type"] == "content_block_start"
    ]
    assert len(set(ids)) == len(ids) == 6


def test_a_side_request_gets_short_text_and_uses_no_step() -> None:
    played = player({"text": "step"})
    side = see(played, tools=[])
    assert side.kind is RequestKind.SIDE
    assert joined(decoded(played.reply(side).pieces)) == ["aside"]
    assert joined(decoded(played.reply(see(played)).pieces)) == ["step"]


def test_tokens_are_counted_without_using_a_step() -> None:
    played = player({"text": "step"})
    reply = played.reply(see(played, path="/v1/messages/count_tokens?beta=true"))
    assert msgspec.json.decode(reply.pieces[0]).keys() == {"input_tokens"}
    assert played.reply(see(played)).place == "tiers.haiku.steps[0]"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/", 200, id="is_anybody_there"),
        pytest.param("HEAD", "/", 200, id="is_anybody_there_briefly"),
        pytest.param("POST", "/", 404, id="post_root"),
        pytest.param("GET", "/v1/messages", 404, id="messages_by_get"),
        pytest.param("GET", "/v1/models", 404, id="another_endpoint"),
    ],
)
def test_everything_else_is_not_found_in_the_shape_of_the_api(method: str, path: str, status: int) -> None:
    played = player({"text": "step"})
    seen = see(played, method=method, path=path)
    reply = played.reply(seen)
    assert (seen.kind, reply.status, reply.problem) == (RequestKind.OTHER, status, None)
    if status == 404:
        assert error_of(reply) == {"type": "not_found_error", "message": f"no such endpoint: {method} {path}"}


def test_a_wrong_key_is_refused_and_uses_no_step() -> None:
    played = player({"text": "step"})
    refused = played.reply(see(played), authorised=False)
    assert (refused.status, error_of(refused)["type"]) == (401, "authentication_error")
    assert played.reply(see(played)).place == "tiers.haiku.steps[0]"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="no_object"),
        pytest.param(b'{"model":"haiku"}', id="no_messages"),
        pytest.param(b'{"model":1,"messages":[]}', id="model_is_no_name"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes) -> None:
    played = player({"text": "step"})
    reply = played.reply(played.see(method="POST", path="/v1/messages", headers={}, body=body))
    assert (reply.status, error_of(reply)["type"]) == (400, "invalid_request_error")


def test_an_error_step_goes_out_as_scripted_and_then_the_session_goes_on() -> None:
    error = {"status": 429, "message": "slow down", "headers": {"Retry-After": "1", "Request-Id": "req_x"}}
    played = player({"error": error, "times": 2, "delay_seconds": 3}, {"text": "on"})
    for _ in range(2):
        reply = played.reply(see(played))
        assert (reply.status, reply.delay_seconds, reply.usage) == (429, 3, None)
        assert error_of(reply) == {"type": "rate_limit_error", "message": "slow down"}
        assert reply.headers == {"content-type": "application/json", "request-id": "req_x", "retry-after": "1"}
    assert played.reply(see(played)).status == 200


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "object"])
def test_a_cut_message_is_never_whole(stream: bool) -> None:
    whole, cut = player({"text": "all of it"}), player({"text": "all of it", "cut": True})
    complete = whole.reply(see(whole, stream=stream))
    broken = cut.reply(see(cut, stream=stream))
    sent, missing = b"".join(complete.pieces), b"".join(broken.pieces)
    assert broken.finish is Finish.CUT
    assert sent.startswith(missing)
    assert 0 < len(missing) < len(sent)


def test_a_hang_says_nothing_or_stops_in_the_middle() -> None:
    played = player({"hang": True}, {"hang": True, "text": "well"})
    mute, stuck = played.reply(see(played)), played.reply(see(played))
    assert (mute.status, mute.pieces, mute.finish) == (None, (), Finish.SILENCE)
    assert (stuck.status, stuck.finish) == (200, Finish.SILENCE)
    assert decoded(stuck.pieces)[-1]["type"] == "content_block_delta"


def test_running_out_of_steps_is_a_problem_that_the_client_can_read() -> None:
    played = player({"text": "only"})
    played.reply(see(played))
    reply = played.reply(see(played))
    assert reply.problem == "tiers.haiku.steps[1]: the script ends here, but another request came (session s)"
    assert reply.status == 400
    assert error_of(reply) == {"type": "invalid_request_error", "message": f"rehearsal: {reply.problem}"}


def test_a_model_without_a_tier_is_a_problem() -> None:
    played = player({"text": "only"})
    reply = played.reply(see(played, model="claude-opus-4-7"))
    assert reply.problem == "tiers: there is none for the model 'claude-opus-4-7', only haiku"


def test_the_error_body_is_that_of_the_api() -> None:
    body = responses.error_body(error_type=ScriptedError(status=400).error_type, message="no", request_id="req_1")
    error = {"type": "invalid_request_error", "message": "no"}
    assert msgspec.json.decode(body) == {"type": "error", "error": error, "request_id": "req_1"}
