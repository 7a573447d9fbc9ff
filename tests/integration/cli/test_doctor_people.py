"""What doctor says of those who are told, and who tell: nothing is sent, and nobody is pinged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from claudeops.cli.doctor.command import CHECKS, run_check
from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus
from claudeops.cli.doctor.people import alerts, notify, unreachable_approvers
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import TargetKind
from claudeops.scripted_api.telegram import ScriptedTelegram, serve_telegram
from claudeops.settings import Settings
from support.chatting import ROOM, TOKEN
from support.receivers import receiving
from support.settings_world import World, make_world
from support.slack import APP_TOKEN, BOT_TOKEN, Answer, slack
from support.store_values import NOW
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

CASE = cast("DoctorContext", None)
UUID = "5bf66975-d4c7-4bf5-bcc8-b8d8a82ea278"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def settings(world: World, **given: str) -> Settings:
    return world.settings(ANTHROPIC_API_KEY="sk-ant-none", **given)


# --- who tells --------------------------------------------------------------------------------------------


async def sources(world: World, text: str, **given: str) -> Finding:
    file = world.file("alerts.toml", text)
    return await alerts(CASE, settings(world, CLAUDEOPS_ALERTS_PATH=str(file), **given))


SIGNED = '[[source]]\nname = "scripts"\nkind = "generic"\nsecret_env = ["NEW_SECRET", "OLD_SECRET"]\n'


async def test_a_source_whose_signatures_all_fail_is_told(world: World) -> None:
    nothing, half, whole = (
        await sources(world, SIGNED),
        await sources(world, SIGNED, NEW_SECRET="a-secret-of-theirs"),
        await sources(world, SIGNED, NEW_SECRET="a-secret-of-theirs", OLD_SECRET="another-secret"),
    )

    assert [found.status for found in (nothing, half, whole)] == [
        FindingStatus.WARNING,
        FindingStatus.WARNING,
        FindingStatus.OK,
    ]
    assert "scripts signs with NEW_SECRET, OLD_SECRET, which is not set: none of its signatures holds." in nothing.text
    assert "OLD_SECRET" in half.text
    assert whole.text.startswith("It declares 1 source, 0 rules, 0 heartbeats (1 generic).")


async def test_sources_before_a_closed_door_are_told(world: World) -> None:
    text = '[[source]]\nname = "am"\nkind = "alertmanager"\n'

    assert "CLAUDEOPS_LISTENER is off" in (await sources(world, text, CLAUDEOPS_LISTENER="off")).text
    assert (await alerts(CASE, settings(world))).status is FindingStatus.OK  # there is no file


# --- who is told ------------------------------------------------------------------------------------------


async def test_a_courier_that_cannot_be_started_is_a_finding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    given = settings(world, CLAUDEOPS_APPRISE_URLS="json://127.0.0.1:9")
    case = DoctorContext(settings=given, fault=None, refused={}, warnings=(), now=NOW)
    check = next(check for check in CHECKS if check.name == "notify")

    found = await run_check(check, case)

    assert (found.status, "could not be checked" in found.text) == (FindingStatus.FAILED, True)


async def test_an_address_that_apprise_does_not_know_is_found_before_the_night_and_nothing_is_sent(
    world: World,
) -> None:
    with receiving() as phone:
        good = await notify(CASE, settings(world, CLAUDEOPS_APPRISE_URLS=phone.address))
        bad = await notify(CASE, settings(world, CLAUDEOPS_APPRISE_URLS=f"{phone.address},tgramm://a-secret/chat"))
        heard = list(phone.bodies)

    assert (good.status, bad.status) == (FindingStatus.OK, FindingStatus.FAILED)
    assert bad.text == "Apprise does not understand the address of apprise-2."
    assert "a-secret" not in bad.text + str(bad.remedy)
    assert heard == []


async def test_whoever_tells_nobody_hears_of_it(world: World) -> None:
    assert "nobody is told" in (await notify(CASE, settings(world))).text


def test_an_approver_whom_no_question_can_reach_is_told() -> None:
    telegram, slack, apprise = TargetKind.TELEGRAM, TargetKind.SLACK, TargetKind.APPRISE
    alice, bob = Approver(name="alice", ids={telegram: "7"}), Approver(name="bob", ids={slack: "U7"})

    assert list(unreachable_approvers([alice, bob], [telegram, slack, apprise])) == []
    assert list(unreachable_approvers([alice, bob], [telegram])) == [
        "bob can answer nowhere: there is no target of the kind slack."
    ]
    assert list(unreachable_approvers([], [slack])) == ["Nobody may answer in slack: no approver has a slack_user_id."]
    assert list(unreachable_approvers([], [apprise])) == []


# --- chats that take nothing, or whose answers do not arrive --------------------------------------------------

TELEGRAM = """
[[targets]]
name = "ops"
kind = "telegram"
token_env = "BOT"
chat = "{chat}"
api = "{api}"

[[approvers]]
name = "alice"
telegram_id = "11"
slack_user_id = "U0000ALICE"
"""
SLACK = """
[[targets]]
name = "room"
kind = "slack"
bot_token_env = "BOT"
app_token_env = "APP"
channel = "C0000OPS"
api = "{api}"

[[approvers]]
name = "alice"
slack_user_id = "U0000ALICE"
"""


async def of_chats(world: World, text: str, **given: str) -> Finding:
    file = world.file("notify.toml", text)
    return await notify(CASE, settings(world, CLAUDEOPS_NOTIFY_PATH=str(file), **given))


async def telegram(world: World, served: ScriptedTelegram, token: str = TOKEN) -> Finding:
    return await of_chats(world, TELEGRAM.format(chat=ROOM, api=served.url), BOT=token)


async def test_a_bot_that_cannot_hear_and_a_chat_that_refuses_are_failures_and_nothing_is_sent(world: World) -> None:
    async with serve_telegram(token=TOKEN, chats=(ROOM,)) as served:
        well = await telegram(world, served)
        served.webhook = "https://elsewhere.example/hook"
        deaf = await telegram(world, served)
        served.webhook, served.chats = "", ()
        gone = await telegram(world, served)
        served.moved[ROOM] = -1007
        moved = await telegram(world, served)
        revoked = await telegram(world, served, token="987654321:another-token-of-a-bot")
        called = {call.method for call in served.calls}
    away = await of_chats(world, TELEGRAM.format(chat=ROOM, api="http://127.0.0.1:9"), BOT=TOKEN)

    assert [found.status for found in (well, deaf, gone, moved, revoked, away)] == [
        *(
            FindingStatus.OK,
            FindingStatus.FAILED,
            FindingStatus.FAILED,
            FindingStatus.WARNING,
            FindingStatus.FAILED,
            FindingStatus.WARNING,
        )
    ]
    assert "The bot of ops: a webhook takes what is pressed there; delete it" in deaf.text
    assert "Ops: HTTP status 400: Bad Request: chat not found; correct the chat's id" in gone.text
    assert 'write chat = "-1007"' in moved.text
    assert "BotFather" in revoked.text
    assert "cannot be reached" in away.text
    assert called == {"getMe", "getWebhookInfo", "getChat"}  # a poll would end the daemon's, a message is one too many


async def test_an_app_whose_tokens_do_not_hold_is_a_failure(world: World) -> None:
    with slack() as served:
        text, tokens = SLACK.format(api=served.api), {"BOT": BOT_TOKEN, "APP": APP_TOKEN}
        well = await of_chats(world, text, **tokens)
        mute = await of_chats(world, text, BOT="xoxb-another-bot-token", APP=APP_TOKEN)
        served.answers["apps.connections.open"] = [Answer(body={"ok": False, "error": "token_revoked"})]
        deaf = await of_chats(world, text, **tokens)
        served.answers["auth.test"] = [Answer(status=502)]
        passing = await of_chats(world, text, **tokens)
        assert served.messages == []

    assert [found.status for found in (well, mute, deaf)] == [
        FindingStatus.OK,
        FindingStatus.FAILED,
        FindingStatus.FAILED,
    ]
    assert "The app of room: Slack says invalid_auth; install the app" in mute.text
    assert "What is pressed in room would not arrive: Slack says token_revoked" in deaf.text
    assert passing.status is not FindingStatus.FAILED


async def test_what_the_daemon_has_noted_of_its_targets_is_a_failure_until_it_is_over(
    world: World, sqlite: Database
) -> None:
    with receiving() as phone:
        new = settings(world, CLAUDEOPS_APPRISE_URLS=phone.address)
        assert (await notify(CASE, new)).status is FindingStatus.OK  # there is no database yet
        here = settings(world, CLAUDEOPS_APPRISE_URLS=phone.address, CLAUDEOPS_DATABASE_URL=sqlite.url)
        async with opened(sqlite) as store:
            for name in ("target_refused:apprise", "target_refused:gone", "chat_deaf:ops", "disk"):
                event = NewEvent(level=EventLevel.CRITICAL, message=f"it is {name}\u202e.", fingerprint=name)
                await store.probes.note(event, over=False, now=NOW)
            noted = await notify(CASE, here)
            for name in ("target_refused:apprise", "chat_deaf:ops"):
                event = NewEvent(level=EventLevel.CRITICAL, message="", fingerprint=name)
                await store.probes.note(event, over=True, now=NOW)
        over = await notify(CASE, here)

    assert (noted.status, over.status) == (FindingStatus.FAILED, FindingStatus.OK)
    assert noted.text == "it is chat_deaf:ops\\u202e. it is target_refused:apprise\\u202e."
