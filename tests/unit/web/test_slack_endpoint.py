"""Only Slack itself is heard at Slack's address, and only for what it has signed just now."""

from __future__ import annotations

import hashlib
import hmac
import json
from urllib.parse import urlencode

import pytest

from claudeops.structs import replace
from claudeops.web.endpoints import Endpoint
from support.listening import CHAT_KEY, SIGNING, Door, bearer, token_for
from support.slack import CHANNEL, Posted, SlackServer, signed

ADDRESS = "/api/v1/slack/interactions"
PRESSED = SlackServer().pressed(Posted(channel=CHANNEL, ts="1.1", fields={"text": "may it?"}), "token", user="U1")


@pytest.fixture
def door() -> Door:
    return Door()


def by_slack(door: Door, *, secret: str = SIGNING["team"], off: float = 0.0) -> tuple[bytes, dict[str, str]]:
    return signed(PRESSED, secret=secret, at=door.clock.now().timestamp() + off)


async def test_what_slack_has_signed_is_taken_for_the_target_whose_secret_it_is(door: Door) -> None:
    for secret in SIGNING.values():
        body, headers = by_slack(door, secret=secret)
        answer = await door.ask("POST", ADDRESS, body, headers=headers)
        assert (answer.status, answer.json) == (200, {"status": "received"})

    assert [(json.loads(payload), set(targets)) for payload, targets in door.presses.taken] == [
        (PRESSED, {"team"}),
        (PRESSED, {"others"}),
    ]


@pytest.mark.parametrize("off", [-301.0, 301.0, -86_400.0])
async def test_a_replayed_or_early_signature_proves_nothing(door: Door, off: float) -> None:
    body, headers = by_slack(door, off=off)

    assert (await door.ask("POST", ADDRESS, body, headers=headers)).status == 401
    assert door.presses.taken == []


@pytest.mark.parametrize("off", [-299.0, 299.0])
async def test_a_clock_may_be_a_little_off(door: Door, off: float) -> None:
    body, headers = by_slack(door, off=off)

    assert (await door.ask("POST", ADDRESS, body, headers=headers)).status == 200


async def test_a_wrong_signature_proves_nothing(door: Door) -> None:
    body, good = by_slack(door)
    proof, stamp = good["x-slack-signature"], good["x-slack-request-timestamp"]
    wrong = [
        {},
        {"x-slack-signature": proof},
        {"x-slack-request-timestamp": stamp},
        {**good, "x-slack-signature": proof.removeprefix("v0=")},
        {**good, "x-slack-signature": proof.replace("v0=", "v1=")},
        {**good, "x-slack-signature": proof[:-1] + ("0" if proof[-1] != "0" else "1")},
        {**good, "x-slack-signature": "v0="},
        {**good, "x-slack-signature": "v0=\u00e9"},
        {**good, "x-slack-request-timestamp": str(int(stamp) + 1)},
        {**good, "x-slack-request-timestamp": f"{stamp}.0"},
        by_slack(door, secret="another-secret")[1],
        by_slack(door, secret="")[1],
    ]

    assert {(await door.ask("POST", ADDRESS, body, headers=headers)).status for headers in wrong} == {401}
    assert (await door.ask("POST", ADDRESS, body + b"x", headers=good)).status == 401
    assert door.presses.taken == []


async def test_no_token_and_no_key_opens_it(door: Door) -> None:
    door.tokens.kept = {1: token_for(1, "slack", "read", "@slack", "alerts:slack", "team")}
    body, _ = by_slack(door)

    for headers in (bearer(1), {"authorization": f"Bearer {CHAT_KEY}"}):
        assert (await door.ask("POST", ADDRESS, body, headers=headers)).status == 401
    assert door.presses.taken == []


async def test_without_a_secret_nothing_is_open_not_even_to_an_empty_one(door: Door) -> None:
    for secrets in ({}, {"team": ""}):
        door.authenticator.slack = secrets
        body, headers = by_slack(door, secret="")
        assert (await door.ask("POST", ADDRESS, body, headers=headers)).status == 401


@pytest.mark.parametrize("name", ["@slack", "slack", "%40slack"])
async def test_slacks_secret_signs_for_no_source_of_alerts(door: Door, name: str) -> None:
    body, headers = by_slack(door)

    assert (await door.ask("POST", f"/api/v1/alerts/{name}", body, headers=headers)).status in {401, 404}
    assert door.intake.taken == []


async def test_what_cannot_be_read_is_answered_all_the_same(door: Door) -> None:
    proof = signed({}, secret=SIGNING["team"], at=door.clock.now().timestamp())
    assert (await door.ask("POST", ADDRESS, proof[0], headers=proof[1])).status == 200


async def test_a_page_of_another_site_and_a_foreign_host_are_refused_before_anything(door: Door) -> None:
    body, headers = by_slack(door)

    assert (await door.ask("POST", ADDRESS, body, headers=headers, host="evil.example.com")).status == 421
    assert (await door.ask("POST", ADDRESS, body, headers={**headers, "sec-fetch-site": "cross-site"})).status == 403
    assert (await door.ask("GET", ADDRESS, headers=headers)).status == 405


async def test_a_flood_is_told_to_come_later(door: Door) -> None:
    body, headers = by_slack(door)
    door.presses.full = True

    answer = await door.ask("POST", ADDRESS, body, headers=headers)

    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    forged = {**headers, "x-slack-signature": "v0=" + "0" * 64}
    statuses = [(await door.ask("POST", ADDRESS, body, headers=forged)).status for _ in range(100)]
    assert set(statuses) == {401, 503}
    assert door.presses.taken == []


def test_a_row_that_nobody_could_call_is_a_mistake() -> None:
    (row,) = [row for row in Door().listener.table.rows if not row.takes_tokens]
    assert isinstance(row, Endpoint)
    with pytest.raises(ValueError, match="nobody could ever call it"):
        replace(row, signer="")


async def test_a_body_may_be_no_form_at_all(door: Door) -> None:
    for raw in (b"", b"\xff\xfe", b"payload=%zz&" * 100, urlencode({"x": "y"}).encode()):
        stamped = signed({}, secret=SIGNING["team"], at=door.clock.now().timestamp())[1]["x-slack-request-timestamp"]
        proof = _proof(raw, stamped)
        headers = {"x-slack-request-timestamp": stamped, "x-slack-signature": proof}
        assert (await door.ask("POST", ADDRESS, raw, headers=headers)).status == 200
    assert all(payload in {b"", b"%zz"} for payload, _ in door.presses.taken)


def _proof(raw: bytes, stamp: str) -> str:
    return "v0=" + hmac.new(SIGNING["team"].encode(), f"v0:{stamp}:".encode() + raw, hashlib.sha256).hexdigest()
