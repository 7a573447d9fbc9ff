"""A daemon and commands of an operator's speak to a scripted Slack, as processes of their own, by both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from support.aftermath import processes_of, runs
from support.loopback_http import ask
from support.operating import Operator, conclude, look, operator
from support.senders import starts_nothing, url_of
from support.slack import APP_TOKEN, BOT_TOKEN, CHANNEL, SIGNING_SECRET, Answer, Posted, SlackServer, signed, slack
from support.waiting import until

pytestmark = pytest.mark.anyio

UNCLEAR: Final = "python3 -c 'print(6*7)'"
WAITING: Final = "SELECT * FROM approvals WHERE status = 'pending'"
NAMED: Final = "SELECT * FROM approval_messages WHERE external_id IS NOT NULL"
ALICE: Final = "U0000ALICE"
SECRETS: Final = {"BOT": BOT_TOKEN, "APP": APP_TOKEN, "SIGNING": SIGNING_SECRET}


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack() as served:
        yield served


def channels(root: Path, api: str) -> dict[str, str]:
    """Return the variables of a daemon with a channel, which hears by both ways."""
    file = root / "notify.toml"
    file.write_text(
        f'[[targets]]\nname = "ops"\nkind = "slack"\nchannel = "{CHANNEL}"\napi = "{api}"\n'
        'bot_token_env = "BOT"\napp_token_env = "APP"\nsigning_secret_env = "SIGNING"\n'
        f'[[approvers]]\nname = "alice"\nslack_user_id = "{ALICE}"\n'
    )
    return {"CLAUDEOPS_NOTIFY_PATH": str(file), **SECRETS}


async def test_a_test_message_says_what_slack_answered(tmp_path: Path, server: SlackServer) -> None:
    async with operator(tmp_path, haiku=[conclude()]) as someone:
        environment = channels(tmp_path, server.api)
        done = await someone.run("notify", "test", "ops", **environment)
        assert (done.code, done.stdout.startswith("ops: delivered after")) == (0, True), done.stderr
        assert "this is a test" in server.messages[0].all_text

        server.answers["chat.postMessage"] = [Answer(body={"ok": False, "error": "not_in_channel"})]
        refused = await someone.run("notify", "test", "ops", "-o", "json", **environment)
        assert (refused.code, refused.document["result"]) == (1, "failed")
        assert refused.document["answer"] == "Slack says not_in_channel"

        server.answers["apps.connections.open"] = [Answer(body={"ok": False, "error": "invalid_auth"})]
        deaf = await someone.run("notify", "test", "ops", **environment)
        assert deaf.code == 1
        assert "what is pressed would not be heard by Socket Mode: Slack says invalid_auth" in deaf.stdout

        away = await someone.run("notify", "test", "ops", **channels(tmp_path, "http://127.0.0.1:9/api"))
        assert (away.code, "cannot be reached" in away.stdout) == (1, True)
    said = "".join(each.stdout + each.stderr for each in (done, refused, deaf, away))
    assert [secret for secret in SECRETS.values() if secret in said] == []


async def test_a_question_is_answered_by_both_ways_and_nothing_outlives_the_daemon(
    tmp_path: Path, server: SlackServer
) -> None:
    looks = [look(UNCLEAR), conclude(), look(UNCLEAR), conclude(), look(UNCLEAR), conclude()]
    async with operator(tmp_path, haiku=[conclude()], opus=looks) as someone:
        listens = {"CLAUDEOPS_LISTENER": "on", "CLAUDEOPS_DASHBOARD_PORT": "0"}
        environment = {**channels(tmp_path, server.api), **starts_nothing(tmp_path), **listens}

        async with someone.daemon(**environment) as daemon:
            await until(lambda: "slack_connected" in daemon.output.read_text())
            url = await url_of(daemon)
            (ear,) = ears(daemon.process.pid)
            begun_with = f"{ear.cmdline()} {ear.environ()}"
            await asked(someone)
            await until(lambda: len(asking(server)) == 1)
            (first,) = asking(server)
            server.tap(first, first.buttons["Yes"]["value"], user=ALICE)
            await until(lambda: "and the call was let through" in first.all_text)

            await asked(someone)
            await until(lambda: len(asking(server)) == 1)
            (second,) = asking(server)
            assert await posted(url, server, second, secret="0" * 32) == 401
            assert await posted(url, server, second) == 200
            await until(lambda: "NO: slack:alice said no" in second.all_text)
            said = someone.rows("SELECT status, decided_by FROM approvals ORDER BY id")
            assert [(row["status"], row["decided_by"]) for row in said] == [
                ("used", "slack:alice"),
                ("denied", "slack:alice"),
            ]

            await asked(someone)
            await someone.until(NAMED, lambda rows: len(rows) == 3)
            daemon.process.kill()
            await until(lambda: not runs(ear.pid))
        (third,) = asking(server)

        async with someone.daemon(**environment) as again:
            await until(lambda: "restart of the daemon" in third.all_text)
            assert third.buttons == {}
            await until(lambda: bool(ears(again.process.pid)))
            (last,) = ears(again.process.pid)
        assert not last.is_running()
        logged = "".join(path.read_text() for path in tmp_path.glob("daemon-*.log"))
        stored = json.dumps(someone.rows("SELECT * FROM approval_messages"), default=str)
    assert [secret for secret in SECRETS.values() if secret in logged + begun_with + stored + server.sent] == []


def ears(daemon: int) -> list[psutil.Process]:
    """Return the daemon's processes that listen to Slack."""
    return processes_of("claudeops.notify.slack_socket", daemon)


def asking(server: SlackServer) -> list[Posted]:
    return [message for message in server.messages if list(message.buttons) == ["No", "Yes"]]


async def posted(url: str, server: SlackServer, message: Posted, *, secret: str = SIGNING_SECRET) -> int:
    """Press No, as Slack posts it; return the status."""
    payload = server.pressed(message, message.buttons["No"]["value"], user=ALICE)
    body, headers = signed(payload, secret=secret)
    return (await ask(f"{url}/api/v1/slack/interactions", raw=body, headers=headers)).status


async def asked(someone: Operator) -> None:
    """Queue a session that asks, and wait until it does."""
    done = await someone.run("bootstrap", "--tier", "3", "--prompt", "look at web", "--detach")
    assert done.code == 0, done.stderr
    await someone.until(WAITING, lambda rows: len(rows) == 1)
