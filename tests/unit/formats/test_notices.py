"""The file of targets: what it says, and what is told of a mistake in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import TargetKind
from claudeops.domain.notices.notice import Target, Topic
from claudeops.domain.schedules.windows import read_window
from claudeops.formats.notices import SecretPlace, read_document
from claudeops.text.toml_file import TomlFault

WHOLE = """
[[targets]]
name = "phone"
url_env = "PHONE_URL"
topics = ["incident", "approval"]
min_level = "critical"

[[targets]]
name = "team"
url_file = "team.url"
quiet_hours = "22:00-07:00"
timezone = "Europe/Berlin"
max_per_hour = 12
"""


def test_a_file_says_who_is_told_what_and_when() -> None:
    phone, team = read_document(WHOLE, timezone="UTC").targets

    assert phone.target == Target(
        name="phone", topics=frozenset({Topic.INCIDENT, Topic.APPROVAL}), min_level=EventLevel.CRITICAL
    )
    assert (dict(phone.secrets), phone.line) == ({"url": SecretPlace(variable="PHONE_URL")}, 2)
    assert team.target == Target(
        name="team", quiet_hours=(read_window("22:00-07:00"),), timezone="Europe/Berlin", max_per_hour=12
    )
    assert dict(team.secrets) == {"url": SecretPlace(file="team.url")}


CHATS = """
[[targets]]
name = "ops"
kind = "telegram"
token_env = "BOT_TOKEN"
chat = -1001234567890
topics = ["approval"]

[[targets]]
name = "room"
kind = "slack"
bot_token_file = "bot.token"
app_token_env = "APP_TOKEN"
channel = "C0123456789"
api = "http://127.0.0.1:9/api/"

[[approvers]]
name = "alice"
telegram_id = 4711
slack_user_id = "U0123456789"

[[approvers]]
name = "bob"
telegram_id = "4712"
tiers = [2]
services = ["shop-*"]
"""


def test_chats_and_those_who_may_answer_in_them_are_named() -> None:
    document = read_document(CHATS, timezone="UTC")

    ops, room = document.targets
    assert (ops.target.kind, ops.place, ops.api) == (
        TargetKind.TELEGRAM,
        "-1001234567890",
        "https://api.telegram.org",
    )
    assert dict(ops.secrets) == {"token": SecretPlace(variable="BOT_TOKEN")}
    assert (room.target.kind, room.place, room.api) == (TargetKind.SLACK, "C0123456789", "http://127.0.0.1:9/api")
    assert dict(room.secrets) == {
        "bot_token": SecretPlace(file="bot.token"),
        "app_token": SecretPlace(variable="APP_TOKEN"),
    }
    assert document.approvers == (
        Approver(name="alice", ids={TargetKind.TELEGRAM: "4711", TargetKind.SLACK: "U0123456789"}),
        Approver(name="bob", ids={TargetKind.TELEGRAM: "4712"}, tiers=frozenset({2}), services=("shop-*",)),
    )


BOT = '[[targets]]\nname = "a"\nkind = "telegram"\n'
ROOM = '[[targets]]\nname = "a"\nkind = "slack"\n'
BOT_WHOLE = f'{BOT}token_env = "A"\nchat = "1"\n'
PERSON = f"{BOT_WHOLE}[[approvers]]\n"


MISTAKES = [
    ("[[target]]\n", 1, "targets stand under [[targets]]"),
    ("x = [", 1, "this is not TOML"),
    ("targets = 3\n", 1, "as a table, [[targets]]"),
    ("\n", 1, "there is no target in it"),
    ('[[targets]]\nname = "a"\n', 1, "give 'url_env' or 'url_file'"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\nurl_file = "a"\n', 3, "leave one of them out"),
    ('[[targets]]\nname = "a"\nurl = "ntfy://x"\n', 3, "an address is a secret"),
    ('[[targets]]\nname = "a"\nurl_env = "ntfy://x/y"\n', 3, "never the address itself"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\ntopic = []\n', 4, "did you mean 'topics'?"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\ntopics = []\n', 4, "is told nothing"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\ntopics = ["incidents"]\n', 4, "topics: Invalid enum value"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\nquiet_hours = "night"\n', 4, "write it as 22:00-06:00"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\nmax_per_hour = 0\n', 4, "cannot be kept"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\ntimezone = "Mars"\n', 4, "Mars"),
    ('[[targets]]\nname = "a b"\nurl_env = "A"\n', 2, "is not a name"),
    ('[[targets]]\nname = "apprise"\nurl_env = "A"\n', 2, "CLAUDEOPS_APPRISE_URLS"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\n[[targets]]\nname = "A"\nurl_env = "B"\n', 5, "another target"),
    ('[[targets]]\nname = "a"\nkind = "pager"\n', 3, "kind: Invalid enum value"),
    ('[[targets]]\nname = "a"\nurl_env = "A"\nchat = "1"\n', 4, 'write kind = "telegram"'),
    (BOT, 1, "not the id of a chat"),
    (f'{BOT}chat = "@ops"\n', 4, "give the number"),
    (f'{BOT}chat = "1"\n', 1, "give 'token_env' or 'token_file'"),
    (f'{BOT}chat = "1"\ntoken = "1:x"\n', 5, "by 'token_env'"),
    (f'{BOT}chat = "1"\ntoken_env = "1:x"\n', 5, "never the secret itself"),
    (f'{BOT}chat = "1"\ntoken_env = "A"\nurl_env = "B"\n', 6, 'write kind = "apprise"'),
    (f'{BOT_WHOLE}api = "api.telegram.org"\n', 6, "write it as https://api.telegram.org"),
    (f'{BOT_WHOLE}api = "https://me:secret@host"\n', 6, "this is no address of a server"),
    (f'{ROOM}channel = "#ops"\n', 4, "not the id of a channel"),
    (f'{ROOM}channel = "C01"\n', 1, "give 'bot_token_env' or 'bot_token_file'"),
    (f'{ROOM}channel = "C01"\nbot_token_env = "A"\n', 2, "Socket Mode or by HTTP"),
    ("approvers = 3\n", 1, "[[targets]] or [[approvers]]"),
    (f'{PERSON}name = "a"\n', 7, "give 'telegram_id' or 'slack_user_id'"),
    (f'{PERSON}name = "a b"\ntelegram_id = "1"\n', 7, "is not a name"),
    (f'{PERSON}name = "a"\ntelegram_id = "@alice"\n', 8, "give the number, not the name"),
    (f'{PERSON}name = "a"\nslack_user_id = "@alice"\n', 8, "member ID"),
    (f'{PERSON}name = "a"\ntelegram_ids = "1"\n', 8, "did you mean 'telegram_id'?"),
    (f'{PERSON}name = "a"\ntelegram_id = "1"\ntiers = []\n', 9, "tiers: name some"),
    (f'{PERSON}name = "a"\ntelegram_id = "1"\ntiers = [0]\n', 9, "tiers: name some"),
    (f'{PERSON}name = "a"\ntelegram_id = "1"\ntiers = ["2"]\n', 9, "tiers: Expected 'int'"),
    (f'{PERSON}name = "a"\ntelegram_id = "1"\nservices = [""]\n', 9, "services: name some"),
    (f'{PERSON}name = "a"\ntelegram_id = "1"\n[[approvers]]\nname = "A"\ntelegram_id = "2"\n', 10, "another approver"),
    (f'{PERSON}name = "a"\ntelegram_id = "1"\n[[approvers]]\nname = "b"\ntelegram_id = "1"\n', 11, "the same one"),
]


@pytest.mark.parametrize(("text", "line", "said"), MISTAKES)
def test_a_mistake_names_its_line_and_what_to_write(text: str, line: int, said: str) -> None:
    with pytest.raises(TomlFault) as fault:
        read_document(text, timezone="UTC")

    assert said in str(fault.value)
    assert fault.value.line == line


@given(st.text())
def test_any_text_is_a_file_or_a_mistake(text: str) -> None:
    with pytest.raises(TomlFault):
        read_document(text, timezone="UTC")
