"""What Slack says is read by its ids alone, and by nothing that somebody could choose."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.gate.approval import Approval, ApprovalStatus
from claudeops.text.redact import Redactor
from claudeops.wording.notices.approving import card
from claudeops.wording.notices.slack import LIMIT, MOST_ACTIONS, Press, answered, asking, payload_of, plain, presses
from claudeops.wording.notices.texts import Wording
from support.slack import CHANNEL, Posted, SlackServer, faults, signed

MESSAGE = Posted(channel=CHANNEL, ts="1700000000.000001", fields={"text": "may it?"})
PRESSED = SlackServer().pressed(MESSAGE, "the-token", user="U1ALICE")


def read(**changes: object) -> tuple[Press, ...]:
    return presses(json.dumps({**PRESSED, **changes}).encode())


def test_a_press_is_who_where_and_what() -> None:
    assert read() == (Press(user="U1ALICE", channel=CHANNEL, ts=MESSAGE.ts, value="the-token"),)


def test_names_that_somebody_may_choose_are_not_who_he_is() -> None:
    (press,) = read(user={"id": "U2MALLORY", "username": "U1ALICE", "name": "alice"})

    assert press.user == "U2MALLORY"


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "view_submission"},
        {"type": "message_action"},
        {"user": {}},
        {"user": {"id": ""}},
        {"user": {"id": 7}},
        {"user": {"id": ["U1ALICE"]}},
        {"user": None},
        {"user": {"id": "U" * 65}},
        {"channel": {"id": "C" * 65}},
        {"actions": []},
        {"actions": [{"value": ""}]},
        {"actions": [{"value": "x" * 201}]},
        {"actions": [{"selected_option": {"value": "the-token"}}]},
        {"actions": {"value": "the-token"}},
    ],
)
def test_what_is_no_press_is_nothing(changes: dict[str, object]) -> None:
    assert read(**changes) == ()


def test_a_message_from_slack_has_few_presses() -> None:
    assert len(read(actions=[{"value": f"token-{number}"} for number in range(100)])) == MOST_ACTIONS


def test_neither_the_token_nor_anything_else_secret_is_in_its_repr() -> None:
    assert "the-token" not in repr(read())


def test_the_payload_of_a_form_is_what_was_in_it() -> None:
    body, _ = signed({"type": "block_actions", "text": "a&b=c d+é😀"})

    assert json.loads(payload_of(body)) == {"type": "block_actions", "text": "a&b=c d+é😀"}
    assert payload_of(urlencode([("payload", "first"), ("payload", "second")]).encode()) == b"first"


@given(st.binary(max_size=500))
def test_no_form_and_no_payload_is_ever_our_fault(body: bytes) -> None:
    assert isinstance(payload_of(body), bytes)
    assert isinstance(presses(body), tuple)


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"[" * 100_000, b'{"type":"block_actions"' + b" " * 100])
def test_what_is_no_json_object_is_nothing(payload: bytes) -> None:
    assert presses(payload) == ()


# --- what is sent -----------------------------------------------------------------------------------------

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "correct-horse-battery"
WORDING = Wording(redact=Redactor([SECRET]).text, public_url="https://ops.example/")


def approval(command: str) -> Approval:
    return Approval(
        id=3,
        session_id=12,
        tool_use_id="toolu_1",
        call_hash="0123",
        status=ApprovalStatus.PENDING,
        requested_at=NOON,
        expires_at=NOON + timedelta(minutes=15),
        tool_name="Bash",
        tier=3,
        workdir="/work",
        input=json.dumps({"command": command}),
        reason="inline code",
        services='["shop"]',
    )


def sent(command: str) -> Posted:
    found = card(approval(command), wording=WORDING, limit=LIMIT, now=NOON)
    fields = asking(found, yes="approve:y", no="deny:n")
    assert faults(fields) == []
    return Posted(channel=CHANNEL, ts="1", fields=fields)


def test_a_question_shows_who_asks_the_whole_call_and_both_buttons() -> None:
    message = sent("docker restart shop && echo '<ok>'")

    assert message.code == "command:\n  docker restart shop && echo '<ok>'"
    assert "session 12 (tier 3) asks for Bash" in message.all_text
    assert "services: shop" in message.all_text
    assert "claudeops approve 3" in message.all_text
    assert "https://ops.example/s/12" in message.all_text
    assert {name: button["value"] for name, button in message.buttons.items()} == {"No": "deny:n", "Yes": "approve:y"}


@pytest.mark.parametrize(("length", "has_yes"), [(2000, True), (2900, False), (3000, False), (50_000, False)])
def test_a_call_that_does_not_fit_has_no_yes_and_is_not_shown_in_part(length: int, has_yes: bool) -> None:
    message = sent("echo " + "x" * length)

    assert set(message.buttons) == ({"No", "Yes"} if has_yes else {"No"})
    assert ("xxx" in message.all_text) is has_yes
    assert ("does not fit here" in message.all_text) is not has_yes


@pytest.mark.parametrize("hiding", ["a;token=x)or(exec(1)", "a://u:`reboot`@h", "password=`reboot`"])
def test_a_call_with_a_part_that_looks_like_a_secret_has_no_yes(hiding: str) -> None:
    message = sent(f"python3 -c ' {hiding}'")

    assert set(message.buttons) == {"No"}
    assert "no yes can be given here" in message.all_text


@given(st.text(max_size=2500))
def test_no_command_breaks_a_limit_hides_or_leaks(command: str) -> None:
    message = sent(f"{command} {SECRET} \u202e")

    assert SECRET not in json.dumps(message.fields)
    assert "\u202e" not in message.all_text
    assert "Yes" not in message.buttons or "\\u202e" in message.code


def test_nothing_in_a_text_is_a_sign_of_slacks() -> None:
    fields = plain("<!channel> <@U1> & <https://evil.example|shop> *bold*")

    assert fields["text"] == "&lt;!channel&gt; &lt;@U1&gt; &amp; &lt;https://evil.example|shop&gt; *bold*"
    assert (fields["mrkdwn"], fields["unfurl_links"], fields["unfurl_media"]) == (False, False, False)


def test_an_answered_question_has_no_buttons_and_says_what_came_of_it() -> None:
    found = card(approval("docker restart shop"), wording=WORDING, limit=LIMIT, now=NOON)
    message = Posted(channel=CHANNEL, ts="1", fields=answered(found, "YES: slack:alice said yes."))

    assert faults(message.fields) == []
    assert message.buttons == {}
    assert message.all_text.endswith("YES: slack:alice said yes.")
    assert "docker restart shop" in message.code


def test_a_question_that_does_not_fit_gets_no_yes_even_if_somebody_gave_it_one() -> None:
    found = card(approval("x" * 9000), wording=WORDING, limit=LIMIT, now=NOON)

    assert [each["text"]["text"] for each in asking(found, yes="approve:y", no="deny:n")["blocks"][-1]["elements"]] == [
        "No"
    ]
