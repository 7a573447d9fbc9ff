"""Where notices go: names, addresses, and that no address is shown."""

from __future__ import annotations

import pytest

from claudeops.errors import ConfigurationError
from claudeops.settings.notify import Targets, read_notify_again, split_addresses
from support.settings_world import World

FILE = """
[[targets]]
name = "phone"
url_env = "PHONE_URL"

[[targets]]
name = "team"
url_file = "team.url"
"""
PHONE = "ntfys://me:phone-password@ntfy.example/claudeops"
TEAM = "discord://1234/averyverylongtoken"


def test_without_anything_nobody_is_told(world: World) -> None:
    settings = world.settings()

    assert (settings.notices.targets, dict(settings.notices.addresses), settings.notices.digest_cron) == ((), {}, None)


def test_each_address_of_the_variable_is_a_target_of_its_own(world: World) -> None:
    settings = world.settings(CLAUDEOPS_APPRISE_URLS="json://one, json://two json://one")

    assert dict(settings.notices.addresses) == {"apprise": "json://one", "apprise-2": "json://two"}
    assert [target.name for target in settings.notices.targets] == ["apprise", "apprise-2"]


def test_a_file_names_where_addresses_are_and_both_are_kept_from_sessions_and_logs(world: World) -> None:
    file, team = world.file("notify.toml", FILE), world.file("team.url", f"{TEAM}\n")

    settings = world.settings(CLAUDEOPS_NOTIFY_PATH="notify.toml", PHONE_URL=PHONE)

    assert dict(settings.notices.addresses) == {"phone": PHONE, "team": TEAM}
    assert {file, team} <= set(settings.private_files)
    assert {"phone-password", "averyverylongtoken", PHONE, TEAM} <= set(settings.secrets)
    assert "phone-password" not in repr(settings)
    assert "averyverylongtoken" not in repr(settings)


PARTED = {
    "json://one, json://two json://one": ["json://one", "json://two"],
    "json://one,json://two": ["json://one", "json://two"],
    "json://one\n  json://two\r\n\tjson://three\n": ["json://one", "json://two", "json://three"],
    "json://one ,, json://two,": ["json://one", "json://two"],
    "mailto://u:p@mail.example?to=a@one.example,b@two.example": [
        "mailto://u:p@mail.example?to=a@one.example,b@two.example"
    ],
    "mailto://u:p@mail.example?to=a@one.example, b@two.example json://two": [
        "mailto://u:p@mail.example?to=a@one.example,b@two.example",
        "json://two",
    ],
    "json://host/?+X=a,b,c,JSONS://two/?+Y=d,e": ["json://host/?+X=a,b,c", "JSONS://two/?+Y=d,e"],
    "tgram://123:abc/1,2,-3,ntfy://topic": ["tgram://123:abc/1,2,-3", "ntfy://topic"],
    "sns://key/secret/us-east-1/+12,+34 ,json://two": ["sns://key/secret/us-east-1/+12,+34", "json://two"],
    "json://one nonsense json://two": ["json://one", "nonsense", "json://two"],
    "": [],
    " ,\n, ": [],
}


@pytest.mark.parametrize("given", PARTED)
def test_a_comma_parts_addresses_only_where_the_next_one_begins(given: str, world: World) -> None:
    settings = world.settings(CLAUDEOPS_APPRISE_URLS=given)

    assert list(settings.notices.addresses.values()) == PARTED[given]


def test_many_commas_are_read_at_once() -> None:
    assert list(split_addresses("json://host/" + "a," * 200_000)) == ["json://host/" + ("a," * 200_000).strip(",")]
    assert list(split_addresses("a, " * 50_000)) == [("a," * 50_000).strip(",")]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "PHONE_URL, which is not set"),
        ({"PHONE_URL": "no address at all: s3cret"}, "write one address"),
        ({"PHONE_URL": PHONE}, "team.url"),
    ],
)
def test_a_missing_or_wrong_address_is_said_without_it(world: World, environ: dict[str, str], said: str) -> None:
    world.file("notify.toml", FILE)

    with pytest.raises(ConfigurationError) as refusal:
        world.settings(environ, CLAUDEOPS_NOTIFY_PATH="notify.toml")

    assert said in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
    assert "phone-password" not in str(refusal.value)


def test_a_mistake_in_the_file_names_file_and_line(world: World) -> None:
    world.file("notify.toml", FILE.replace("url_env", "url_evn"))

    with pytest.raises(ConfigurationError, match=r"notify\.toml, line 4: .* did you mean 'url_env'\?"):
        world.settings(CLAUDEOPS_NOTIFY_PATH="notify.toml")


def test_a_sum_that_would_never_be_due_is_refused(world: World) -> None:
    assert world.settings(CLAUDEOPS_DIGEST_CRON="0 8 * * *").notices.digest_cron == "0 8 * * *"
    with pytest.raises(ConfigurationError, match="CLAUDEOPS_DIGEST_CRON"):
        world.settings(CLAUDEOPS_DIGEST_CRON="0 8 31 2 *")


CHATS = """
[[targets]]
name = "ops"
kind = "telegram"
token_env = "BOT_TOKEN"
chat = "-100123"

[[targets]]
name = "room"
kind = "slack"
bot_token_file = "bot.token"
signing_secret_env = "SIGNING"
channel = "C0123456789"

[[approvers]]
name = "alice"
telegram_id = "4711"
"""
BOT = "123456789:a-token-of-a-bot-in-a-test"
SLACK = "xoxb-1234567890-of-a-test"
SIGNING = "0123456789abcdef0123456789abcdef"


def test_tokens_of_chats_are_kept_from_sessions_and_logs(world: World) -> None:
    world.file("notify.toml", CHATS)
    file = world.file("bot.token", f"{SLACK}\n")

    settings = world.settings(CLAUDEOPS_NOTIFY_PATH="notify.toml", BOT_TOKEN=BOT, SIGNING=SIGNING)

    ops, room = settings.notices.chats["ops"], settings.notices.chats["room"]
    assert (dict(ops.secrets), ops.place) == ({"token": BOT}, "-100123")
    assert dict(room.secrets) == {"bot_token": SLACK, "signing_secret": SIGNING}
    assert [target.name for target in settings.notices.targets] == ["ops", "room"]
    assert [person.name for person in settings.notices.approvers] == ["alice"]
    assert dict(settings.notices.addresses) == {}
    assert {BOT, BOT.partition(":")[2], SLACK, SIGNING} <= set(settings.secrets)
    assert file in settings.private_files
    assert not [secret for secret in (BOT, SLACK, SIGNING) if secret in repr(settings)]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SIGNING": SIGNING}, "a token in BOT_TOKEN, which is not set"),
        ({"SIGNING": SIGNING, "BOT_TOKEN": "s3cret"}, "write it as BotFather gives it"),
        ({"SIGNING": "s3cret", "BOT_TOKEN": BOT}, "the app's one, in hexadecimal"),
    ],
)
def test_a_missing_or_wrong_token_is_said_without_it(world: World, environ: dict[str, str], said: str) -> None:
    world.file("notify.toml", CHATS)
    world.file("bot.token", f"{SLACK}\n")

    with pytest.raises(ConfigurationError) as refusal:
        world.settings(environ, CLAUDEOPS_NOTIFY_PATH="notify.toml")

    assert said in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


# --- an edit while the daemon runs ------------------------------------------------------------------------


def edited(world: World, text: str) -> Targets:
    """Return what an edited file says to a daemon that was started with `FILE`."""
    path = world.file("notify.toml", FILE)
    world.file("team.url", TEAM)
    settings = world.settings(CLAUDEOPS_NOTIFY_PATH="notify.toml", CLAUDEOPS_APPRISE_URLS="json://one", PHONE_URL=PHONE)
    before = Targets(
        path=path,
        targets=settings.notices.targets,
        addresses=settings.notices.addresses,
        chats=settings.notices.chats,
        approvers=settings.notices.approvers,
        files=(),
        environment=settings.notices.env,
    )
    path.write_text(text, encoding="utf-8")
    return read_notify_again(path, before=before, timezone="UTC")


def test_an_edit_is_understood_without_the_environment_of_the_start(world: World) -> None:
    found = edited(world, FILE.replace('name = "team"', 'name = "crew"\nmin_level = "critical"'))

    assert dict(found.addresses) == {"apprise": "json://one", "phone": PHONE, "crew": TEAM}
    assert [(target.name, target.min_level.value) for target in found.targets] == [
        ("apprise", "warning"),
        ("phone", "warning"),
        ("crew", "critical"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(FILE.replace("PHONE_URL", "OTHER_URL"), id="a variable that nobody hides"),
        pytest.param(FILE.replace("team.url", "other.url"), id="a file that nobody hides"),
    ],
)
def test_a_secret_that_logs_would_show_waits_for_a_restart(world: World, text: str) -> None:
    world.file("other.url", "discord://1234/another-long-token")

    with pytest.raises(ConfigurationError, match=r"was not there when claudeops was started: restart it\."):
        edited(world, text)
