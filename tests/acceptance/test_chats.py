"""A daemon and commands of an operator's speak to a scripted Telegram, as processes of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from claudeops.scripted_api.telegram import BotMessage, TelegramFault, serve_telegram
from support.chatting import ALICE, ROOM, TOKEN
from support.operating import Operator, conclude, look, operator
from support.senders import starts_nothing
from support.waiting import until

pytestmark = pytest.mark.anyio

UNCLEAR: Final = "python3 -c 'print(6*7)'"
WAITING: Final = "SELECT * FROM approvals WHERE status = 'pending'"
NAMED: Final = "SELECT * FROM approval_messages WHERE external_id IS NOT NULL"


def chats(root: Path, url: str) -> dict[str, str]:
    """Return the variables of a daemon with a chat."""
    file = root / "notify.toml"
    file.write_text(
        f'[[targets]]\nname = "ops"\nkind = "telegram"\ntoken_env = "BOT"\nchat = "{ROOM}"\napi = "{url}"\n'
        f'[[approvers]]\nname = "alice"\ntelegram_id = "{ALICE}"\n'
    )
    return {"CLAUDEOPS_NOTIFY_PATH": str(file), "BOT": TOKEN}


async def test_a_test_message_says_what_telegram_answered(tmp_path: Path) -> None:
    async with (
        serve_telegram(token=TOKEN, chats=(ROOM,)) as telegram,
        operator(tmp_path, haiku=[conclude()]) as someone,
    ):
        environment = chats(tmp_path, telegram.url)
        done = await someone.run("notify", "test", "ops", **environment)
        assert (done.code, done.stdout.startswith("ops: delivered after")) == (0, True), done.stderr
        assert "this is a test" in telegram.messages[0].text

        telegram.faults["sendMessage"] = [TelegramFault(status=403)]
        refused = await someone.run("notify", "test", "ops", "-o", "json", **environment)
        assert (refused.code, refused.document["result"]) == (1, "failed")
        assert refused.document["answer"] == "HTTP status 403: scripted 403"

        away = await someone.run("notify", "test", "ops", **chats(tmp_path, "http://127.0.0.1:9"))
        assert (away.code, "cannot be reached" in away.stdout) == (1, True)
        assert TOKEN not in refused.stdout + refused.stderr + away.stdout + away.stderr


async def test_a_question_is_answered_in_the_chat_and_after_a_restart_none_goes_on_asking(tmp_path: Path) -> None:
    async with (
        serve_telegram(token=TOKEN, chats=(ROOM,)) as telegram,
        operator(tmp_path, haiku=[conclude()], opus=[look(UNCLEAR), conclude(), look(UNCLEAR), conclude()]) as someone,
    ):
        environment = {**chats(tmp_path, telegram.url), **starts_nothing(tmp_path)}

        def asking() -> list[BotMessage]:
            return [message for message in telegram.messages if list(message.buttons) == ["No", "Yes"]]

        async with someone.daemon(**environment) as daemon:
            await until(lambda: "daemon_ready" in daemon.output.read_text())
            await asked(someone)
            await until(lambda: bool(asking()))
            (first,) = asking()
            telegram.tap(first, "Yes", sender=ALICE)
            await until(lambda: "and the call was let through" in first.text)
            (row,) = someone.rows("SELECT status, decided_by FROM approvals")
            assert (row["status"], row["decided_by"]) == ("used", "telegram:alice")

            await asked(someone)
            await someone.until(NAMED, lambda rows: len(rows) == 2)
            daemon.process.kill()
        (second,) = asking()

        async with someone.daemon(**environment):
            await until(lambda: "restart of the daemon" in second.text)
            assert second.buttons == {}
        logged = "".join(path.read_text() for path in tmp_path.glob("daemon-*.log"))
    assert TOKEN not in logged
    assert TOKEN.partition(":")[2] not in json.dumps(someone.rows("SELECT * FROM approval_messages"), default=str)


async def asked(someone: Operator) -> None:
    """Queue a session that asks, and wait until it does."""
    done = await someone.run("bootstrap", "--tier", "3", "--prompt", "look at web", "--detach")
    assert done.code == 0, done.stderr
    await someone.until(WAITING, lambda rows: len(rows) == 1)


async def test_a_bot_that_cannot_hear_and_an_address_that_is_none_are_said_wherever_an_operator_looks(
    tmp_path: Path,
) -> None:
    async with (
        serve_telegram(token=TOKEN, chats=(ROOM,)) as telegram,
        operator(tmp_path, haiku=[conclude()]) as someone,
    ):
        telegram.webhook = "https://elsewhere.example/hook"
        environment = {
            **chats(tmp_path, telegram.url),
            **starts_nothing(tmp_path),
            "CLAUDEOPS_APPRISE_URLS": "tgramm://hunter2:sesame/chat",
        }
        async with someone.daemon(**environment) as daemon:
            await someone.until(
                "SELECT fingerprint FROM events WHERE resolved_at IS NULL ORDER BY fingerprint",
                lambda rows: (
                    [
                        str(row["fingerprint"]).partition(" on node ")[0]
                        for row in rows
                        if ":" in str(row["fingerprint"])
                    ]
                    == ["address_refused:apprise", "chat_deaf:ops"]
                ),
            )
            status = await someone.run("status", **environment)
            doctor = await someone.run("doctor", "-o", "json", **environment)
            await until(lambda: any("`claudeops approve N`" in each.text for each in telegram.messages))
            logged = daemon.output.read_text()

    assert re.search(
        r"(?m)^chats +node \S+: answers in ops are not received \(Conflict: can't use getUpdates", status.stdout
    )
    checks = doctor.document["checks"]
    assert isinstance(checks, list)
    (found,) = [check for check in checks if check["name"] == "notify"]
    assert found["status"] == "failed"
    assert "did you mean tgram://?" in str(found)
    assert "hunter2" not in str(found) + logged
    assert "sesame" not in str(found) + logged
