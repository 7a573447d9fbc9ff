"""A daemon tells people what it has concluded, and an address of theirs is in no log and no row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.operating import conclude, look, operator
from support.receivers import receiving
from support.senders import starts_nothing
from support.waiting import until

pytestmark = pytest.mark.anyio

DELIVERED = "SELECT * FROM outbox WHERE result = 'delivered'"


async def test_a_session_that_nobody_follows_is_told_to_those_who_want_it(tmp_path: Path) -> None:
    with receiving() as apprise, receiving() as phone:
        file = tmp_path / "notify.toml"
        file.write_text('[[targets]]\nname = "phone"\nurl_file = "phone.url"\ntopics = ["incident"]\n')
        (tmp_path / "phone.url").write_text(phone.address)
        async with (
            operator(tmp_path, haiku=[conclude()]) as someone,
            someone.daemon(
                CLAUDEOPS_INTERVAL="86400",
                CLAUDEOPS_APPRISE_URLS=apprise.address,
                CLAUDEOPS_NOTIFY_PATH=str(file),
            ) as daemon,
        ):
            await until(lambda: bool(apprise.heard and phone.heard))
            output = daemon.output
            await someone.until(DELIVERED, lambda rows: len(rows) >= 2)
            rows = someone.rows(DELIVERED)

    assert "no proof of health" in phone.bodies[0]
    assert "tier 1" in phone.bodies[0]
    assert {row["target"] for row in rows} == {"apprise", "phone"}
    assert "of-the-receiver" not in output.read_text()
    assert "of-the-receiver" not in json.dumps(rows, default=str)


async def test_an_edit_of_the_targets_is_followed_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    with receiving() as phone:
        file = tmp_path / "notify.toml"
        text = '[[targets]]\nname = "phone"\nurl_file = "phone.url"\n'
        file.write_text(text)
        (tmp_path / "phone.url").write_text(phone.address)
        async with (
            operator(tmp_path, haiku=[conclude()]) as someone,
            someone.daemon(CLAUDEOPS_INTERVAL="86400", CLAUDEOPS_NOTIFY_PATH=str(file)) as daemon,
        ):
            await until(lambda: bool(phone.heard))
            file.write_text(text.replace('"phone"\n', '"pocket"\n'))
            await daemon.until_logged("targets_changed")
            heard = len(phone.heard)
            file.write_text(f'{text}kind = "pigeon"\n')  # what is wrong is told to whom the last good file names
            await daemon.until_logged("targets_refused")
            await until(lambda: len(phone.heard) > heard)
            assert daemon.output.read_text().count('"targets_changed"') == 1
            rows = someone.rows("SELECT target, payload FROM outbox WHERE target = 'pocket'")

    assert "What it said before serves" in str(rows[-1]["payload"])


async def test_a_question_that_reaches_nobody_is_denied_within_seconds_and_not_after_a_quarter_of_an_hour(
    tmp_path: Path,
) -> None:
    unclear = look("python3 -c 'print(6*7)'")
    async with operator(tmp_path, opus=[unclear, conclude()]) as someone:
        nowhere = "json://127.0.0.1:9/0123456789abcdef-of-the-receiver"
        async with someone.daemon(CLAUDEOPS_APPRISE_URLS=nowhere, **starts_nothing(tmp_path)) as daemon:
            await daemon.until_logged("daemon_ready")
            await someone.bootstrap("--tier", "3", "--prompt", "look at web")
        (asked,) = someone.rows("SELECT * FROM approvals")
        calls = someone.rows("SELECT verdict, reason FROM tool_calls WHERE verdict = 'deny'")
        events = someone.rows("SELECT level, message FROM events WHERE fingerprint = 'approval_unheard'")

    assert asked["status"] == "expired"
    assert [str(call["reason"]).partition(": ")[0] for call in calls] == [
        "needs approval, and the question reached nobody"
    ]
    assert str(asked["unheard"]).startswith("apprise: ")
    assert "of-the-receiver" not in str(asked["unheard"])
    assert [event["level"] for event in events] == ["critical"]
