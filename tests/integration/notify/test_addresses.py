"""An address that Apprise does not understand is named with the reason, and nothing of it is shown."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from claudeops import logs
from claudeops.notify.channels.apprise import AddressCheck, Courier
from claudeops.store.store import Store
from support.receivers import receiving
from support.store_values import NOW
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

SECRETS = ("hunter2", "a-secret", "4711abc", "sesame")
WRONG = {
    "tgramm://4711abc:hunter2/chat": "did you mean tgram://?",
    "tgram://hunter2/a-secret": "it is no address of Telegram, which is written as tgram://{bot_token}",
    "discord://4711abc": "which is written as discord://{webhook_id}/{webhook_token}",
    "slack://hunter2": "which is written as slack://{token_a}/{token_b}/{token_c}",
    "json://": "it is no address of JSON, which is written as json://{host}",
    "hunter2": "it begins with no service://",
    "sesame-opens://a-secret/hunter2": "Apprise knows no service that is called so",
    "://hunter2": "it begins with no service://",
    "pbul://": "it is no address of Pushbullet",
    "twilio://4711abc:hunter2@a-secret/sesame": "it is no address of Twilio",
}
RIGHT = (
    "json://127.0.0.1/token?+X=a,b",
    "mailto://user:hunter2@mail.example?to=a@one.example,b@two.example",
    "ntfy://topic",
    "jsons://127.0.0.1:8443/token",
)


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


@pytest.fixture(autouse=True)
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


@dataclass
class Counted(Courier):
    """A courier that counts what it is to check."""

    asked: list[Mapping[str, str]] = field(default_factory=list)
    dies: int = 0  # how often it says nothing at first

    async def check(self, addresses: Mapping[str, str]) -> Mapping[str, str]:
        self.asked.append({**addresses})
        if self.dies:
            self.dies -= 1
            return {}
        return await super().check(addresses)


def checking(store: Store, courier: Courier, checked: dict[str, str], **addresses: str) -> AddressCheck:
    return AddressCheck(
        courier=courier,
        addresses=addresses,
        events=store.probes,
        redact=str,
        now=lambda: NOW,
        log=logs.get_logger(),
        checked=checked,
    )


async def test_each_address_is_named_with_what_is_wrong_and_nothing_of_it() -> None:
    named = {f"target {index}": address for index, address in enumerate((*WRONG, *RIGHT))}

    found = await Courier(environment={}).check(named)

    reasons = dict(zip((*WRONG, *RIGHT), found.values(), strict=True))
    assert {address: reason for address, reason in reasons.items() if address in RIGHT} == dict.fromkeys(RIGHT, "")
    for address, reason in WRONG.items():
        assert reason in reasons[address], reasons[address]
        assert not [secret for secret in SECRETS if secret in reasons[address]]


async def test_a_wrong_address_is_an_event_until_it_is_right_and_each_value_is_checked_once(
    store: Store, database: Database, logged: io.StringIO
) -> None:
    courier = Counted(environment={})
    with receiving() as phone:
        first = checking(store, courier, {}, apprise=phone.address, mail="tgramm://hunter2/chat")
        await first.run()
        (event,) = database.rows("events")
        await first.run()
        again = checking(store, courier, first.checked, apprise=phone.address, mail="tgramm://hunter2/chat")
        await again.run()
        mended = checking(store, courier, again.checked, apprise=phone.address, mail="json://127.0.0.1")
        await mended.run()
        assert phone.heard == []

    assert (event["fingerprint"], event["level"]) == ("address_refused:mail", "critical")
    assert event["message"] == (
        "Apprise does not understand the address of mail, so nothing is sent there: "
        "Apprise knows no service that is called so (did you mean tgram://?)."
    )
    assert [sorted(asked) for asked in courier.asked] == [["apprise", "mail"], ["mail"]]
    (event,) = database.rows("events")
    assert event["resolved_at"] == NOW
    assert "hunter2" not in logged.getvalue()
    assert "address_refused" in logged.getvalue()


async def test_a_courier_that_dies_leaves_an_address_unchecked_and_no_event(store: Store, database: Database) -> None:
    courier = Counted(environment={}, dies=1)
    check = checking(store, courier, {}, mail="nonsense")

    assert not await check.check_once()
    assert database.rows("events") == []
    assert await check.check_once()
    assert len(database.rows("events")) == 1


async def test_an_address_stands_in_no_argument_and_no_repr(store: Store, tmp_path: Path) -> None:
    check = checking(store, Courier(environment={}), {"mail": "json://hunter2"}, mail="json://hunter2")

    assert "hunter2" not in repr(check)
    assert os.fspath(tmp_path) not in repr(check)
