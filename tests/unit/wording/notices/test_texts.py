"""What a message says, and what it never says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.alerts import incidents
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.notice import Announcement, Notice, Topic, decoded, encoded
from claudeops.text.redact import Redactor
from claudeops.wording.notices.texts import (
    MOST_CHARACTERS,
    Wording,
    call_in_words,
    in_words,
    incident_opened,
    incident_resolved,
    message,
    of_event,
)

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "correct-horse-battery"
WORDING = Wording(redact=Redactor([SECRET]).text, public_url="https://ops.example/")


def notice(text: str = "shop is down", **more: object) -> Notice:
    fields = {"topic": Topic.EVENT, "level": EventLevel.CRITICAL, "text": text, "key": "event:1", **more}
    return Notice(**fields)  # type: ignore[arg-type]


def test_a_message_says_level_service_sentence_deeds_cost_tier_and_link() -> None:
    told = notice(
        service="shop", session_id=12, tier=2, done=("restart shop",), denied=("remove shop",), cost_usd=0.4211
    )

    said = message([told], WORDING)

    assert said.title == "CRITICAL · shop"
    assert said.body == (
        "shop is down · done: restart shop · denied: remove shop · $0.42 · tier 2\nhttps://ops.example/s/12"
    )


def test_an_incident_without_a_session_has_a_link_of_its_own() -> None:
    assert message([notice(incident=7)], WORDING).body.endswith("\nhttps://ops.example/incidents/7")
    assert message([notice(incident=7, session_id=12)], WORDING).body.endswith("\nhttps://ops.example/s/12")
    assert message([notice(incident=7)], Wording(redact=str)).body == "shop is down"


def test_without_an_address_of_ours_there_is_no_link() -> None:
    said = message([notice(session_id=12)], Wording(redact=str))

    assert said.body == "shop is down"


def test_what_may_have_been_told_before_says_so() -> None:
    assert message([notice(again=True)], WORDING).title == "(again) CRITICAL"


def test_several_are_told_in_one_message_and_those_without_room_are_counted() -> None:
    many = [notice(f"service {number} is down " + "x" * 60) for number in range(40)]

    said = message(many, WORDING)

    assert said.title == "CRITICAL · 40 notices"
    lines = said.body.splitlines()
    assert len(said.body) <= MOST_CHARACTERS
    assert lines[0].startswith("CRITICAL · service 0 is down")
    assert lines[-1] == f"and {40 - (len(lines) - 1)} more."


@given(
    text=st.text(max_size=3000),
    service=st.text(max_size=300),
    done=st.lists(st.text(max_size=400), max_size=9),
    again=st.booleans(),
)
def test_nothing_foreign_leaks_hides_calls_or_grows(text: str, service: str, done: list[str], again: bool) -> None:
    hostile = f"{text} {SECRET} @everyone <!channel> <@U123> \u202eevil\u200b {text}"
    told = notice(hostile, service=f"{service}{SECRET}", done=(*done, hostile), again=again)

    said = message([told], Wording(redact=WORDING.redact))

    whole = f"{said.title}\n{said.body}"
    assert len(whole) <= MOST_CHARACTERS + 1
    assert "correct-horse" not in whole
    assert "\u202e" not in whole
    assert "\u200b" not in whole
    assert "@everyone" not in whole
    assert "<!" not in whole
    assert "<@" not in whole


def test_a_stored_notice_is_read_as_it_was_written_and_others_are_none() -> None:
    told = notice(service="shop", done=("restart shop",), tier=1)

    assert decoded(encoded(told)) == told
    assert decoded("{}") is None
    assert decoded("no json") is None


def test_an_event_of_nothing_in_particular_is_the_daemons_own() -> None:
    event = NewEvent(level=EventLevel.WARNING, message="the disk is full")

    assert of_event(event, event_id=3, session_id=None).topic is Topic.SELF
    assert of_event(event, event_id=3, session_id=7).topic is Topic.EVENT
    assert of_event(event, event_id=3, session_id=7, about=Announcement(topic=Topic.APPROVAL)).topic is Topic.APPROVAL


def test_an_incident_is_told_when_it_opens_and_when_it_is_over_each_time_anew() -> None:
    incident = incidents.opened(7, group_key="shop", services=["shop"], severity=EventLevel.CRITICAL, at=AT)

    began = incident_opened(incident, "ShopDown fires.")
    over = incident_resolved(incident, now=AT + timedelta(hours=2, minutes=5), cost_usd=1.5, done=("restart shop",))

    assert (began.text, began.key) == ("incident 7: ShopDown fires.", "incident:7:opened:0")
    assert (over.text, over.key) == ("incident 7 is resolved after 2 h 5 min.", "incident:7:resolved:0")
    assert over.level is EventLevel.CRITICAL  # it reaches whoever has heard of the beginning


def test_a_duration_is_said_by_its_two_largest_units() -> None:
    assert in_words(timedelta(seconds=0)) == "0 s"
    assert in_words(timedelta(days=1, hours=2, minutes=3)) == "1 d 2 h"
    assert in_words(timedelta(minutes=3)) == "3 min"


# --- questions --------------------------------------------------------------------------------------------


def question(command: str, *, tool: str = "Bash") -> Notice:
    text = "approval 3 is needed: see `claudeops list-approvals`, then `claudeops approve 3` or `claudeops deny 3`."
    call = call_in_words(tool, json.dumps({"command": command}))
    return notice(text, topic=Topic.APPROVAL, level=EventLevel.WARNING, tier=3, session_id=12, approval_id=3, call=call)


def test_a_question_shows_the_call_how_to_answer_and_where_to_look() -> None:
    said = message([question("python3 mend.py\n  --service web")], WORDING)

    assert said.body == (
        "approval 3 is needed: see `claudeops list-approvals`, then `claudeops approve 3` or `claudeops deny 3`."
        " · Bash: python3 mend.py --service web · tier 3\nhttps://ops.example/s/12"
    )


def test_a_call_that_is_long_is_cut_says_so_and_leaves_how_to_answer_whole() -> None:
    said = message([question("echo " + "x" * 30_000)], WORDING)

    assert "`claudeops approve 3`" in said.body
    assert f"… ({30_005 - 500} characters more) · tier 3" in said.body
    assert len(said.body) < MOST_CHARACTERS + 50


def test_what_a_call_hides_shows_and_its_secrets_do_not() -> None:
    said = message([question(f"curl -H {SECRET} \u202e\u200b @everyone")], WORDING)

    assert SECRET not in said.body
    assert "\\u202e\\u200b" in said.body
    assert "@everyone" not in said.body


def test_a_call_without_a_command_is_shown_by_its_input() -> None:
    assert call_in_words("Write", '{"file_path": "/etc/x"}') == 'Write: {"file_path": "/etc/x"}'
    assert call_in_words("Odd", "no json") == "Odd: no json"
    assert call_in_words("Bash", '{"command": 7}') == 'Bash: {"command": 7}'
