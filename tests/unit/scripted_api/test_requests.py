"""What is read out of a request: who asks, what the model was told, and no credential."""

from __future__ import annotations

import msgspec
import pytest

from claudeops.scripted_api.requests import NO_BODY, Recorded, RequestKind, one_line, session_key, without_credentials

REMINDER = "\n\n<system-reminder>\n<total_tokens>14993628 tokens left</total_tokens>\n</system-reminder>"


def recorded(body: object) -> Recorded:
    raw = msgspec.Raw(msgspec.json.encode(body))
    return Recorded(number=1, kind=RequestKind.MAIN, method="POST", path="/v1/messages", headers={}, raw=raw)


def result(tool_use_id: str, content: object, **more: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": content, **more}


def user(*blocks: object) -> dict[str, object]:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    ("headers", "user_id", "key"),
    [
        pytest.param({"x-claude-code-session-id": "s1"}, '{"session_id":"s2"}', "s1", id="header_first"),
        pytest.param({}, '{"device_id":"d","session_id":"s2"}', "s2", id="metadata_without_header"),
        pytest.param({}, "user_1_account__session_2", "anonymous", id="metadata_that_is_no_json"),
        pytest.param({}, '["session_id"]', "anonymous", id="metadata_of_another_shape"),
        pytest.param({}, None, "anonymous", id="nothing"),
        pytest.param(
            {"x-claude-code-session-id": "s1", "x-claude-code-agent-id": "a7"}, None, "s1/a7", id="subagent_apart"
        ),
    ],
)
def test_sessions_are_told_apart_by_what_the_cli_sends(headers: dict[str, str], user_id: object, key: str) -> None:
    assert session_key(headers, {"metadata": {"user_id": user_id}}) == key


def test_no_credential_is_kept_of_the_headers() -> None:
    headers = {"x-api-key": "k", "authorization": "Bearer k", "cookie": "k", "proxy-authorization": "k", "accept": "k"}
    kept = without_credentials(headers)
    assert [name for name, value in kept.items() if value == "k"] == ["accept"]
    assert kept.keys() == headers.keys()


def test_the_texts_are_found_in_both_shapes_of_content() -> None:
    blocks = recorded({"system": [{"type": "text", "text": "be"}, {"type": "text", "text": "calm"}], "messages": []})
    assert blocks.system_text == "be\ncalm"
    assert recorded({"system": "be calm"}).system_text == "be calm"
    said = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "no"},
        user({"type": "text", "text": "two"}),
    ]
    assert recorded({"messages": said}).user_texts == ("one", "two")


def test_a_tool_result_is_what_the_tool_printed_without_the_reminders_of_the_cli() -> None:
    content = [{"type": "text", "text": "a <system-reminder>quoted</system-reminder> b"}, {"type": "text", "text": "c"}]
    seen = recorded({"messages": [user(result("t1", f"hi{REMINDER}{REMINDER}"), result("t2", content, is_error=True))]})
    assert [(found.tool_use_id, found.text, found.is_error) for found in seen.tool_results] == [
        ("t1", "hi", False),
        ("t2", "a <system-reminder>quoted</system-reminder> b\nc", True),
    ]


def test_the_last_result_is_that_of_the_last_message_with_any() -> None:
    first, second = user(result("t1", "old")), user(result("t2", "new"), result("t3", "newer"))
    assert recorded({"messages": [first, second, user({"type": "text", "text": "go on"})]}).last_result == "new\nnewer"
    assert recorded({"messages": [user({"type": "text", "text": "begin"})]}).last_result == ""


def test_a_secret_is_found_wherever_it_hides() -> None:
    hidden = 'pass"wörd'
    places = [
        {"system": [{"text": f"x{hidden}x"}]},
        {"tools": [{"input_schema": {"properties": {hidden: {}}}}]},
        {"messages": [user(result("t1", [{"type": "text", "text": hidden}]))]},
    ]
    assert [recorded(place).mentions(hidden) for place in places] == [True, True, True]
    assert not recorded({"system": "pass"}).mentions(hidden)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([1], id="no_object"),
        pytest.param({"system": 1, "messages": "hello", "model": 2}, id="wrong_types"),
        pytest.param(
            {"messages": [1, {"role": "user"}, user(1, {"type": "tool_result"}, {"type": "text"})]}, id="holes"
        ),
    ],
)
def test_a_strange_body_is_read_as_far_as_it_makes_sense(body: object) -> None:
    seen = recorded(body)
    assert (seen.system_text, seen.model, seen.last_result, "".join(seen.user_texts)) == ("", "", "", "")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"a":', id="broken_off"),
        pytest.param(b"[" * 100_000, id="too_deep"),
        pytest.param(b'"\\ud83d"', id="half_a_character"),
        pytest.param(b"\xff", id="no_utf8"),
    ],
)
def test_what_is_no_json_is_kept_as_nothing(body: bytes) -> None:
    assert one_line(body) is NO_BODY


def test_a_body_is_kept_on_one_line() -> None:
    assert bytes(one_line(b'{\n  "a": "b\\nc"\n}\n')) == b'{"a":"b\\nc"}'
