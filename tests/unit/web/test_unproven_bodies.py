"""Whoever has no proof keeps those who have one from nothing: not by bodies that never end, nor by wrong signatures."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from claudeops.web.authentication import Rate
from claudeops.web.bodies import MOST_BYTES, UNPROVEN_BYTES, UNPROVEN_SECONDS, UnprovenBodies
from claudeops.web.listener import GUESSES_PER_SECOND
from support.listening import NOON, SHARED, SIGNING, Door, TestClock, bearer
from support.loop_time import loop_time
from support.slack import signed
from support.waiting import PATIENCE_SECONDS, until

SCRIPTS = "/api/v1/alerts/scripts"
GRAFANA = "/api/v1/alerts/grafana"
SLACK = "/api/v1/slack/interactions"
STAMP = str(int(NOON.timestamp()))
JUNK = "0" * 64


def scripts(body: bytes, *, secret: str = SHARED) -> dict[str, str]:
    proof = hmac.new(secret.encode(), f"{STAMP}.".encode() + body, hashlib.sha256).hexdigest()
    return {"x-claudeops-signature": f"t={STAMP},v1={proof}"}


def grafana(body: bytes) -> dict[str, str]:
    return {"x-grafana-alerting-signature": hmac.new(b"of-grafana", body, hashlib.sha256).hexdigest()}


FORGED = {
    SCRIPTS: {"x-claudeops-signature": f"t={STAMP},v1={JUNK}"},
    GRAFANA: {"x-grafana-alerting-signature": JUNK},
    SLACK: {"x-slack-signature": f"v0={JUNK}", "x-slack-request-timestamp": STAMP},
}


async def all_who_sign(door: Door) -> list[int]:
    """Send what each signer has signed; return what is answered."""
    pressed, proof = signed({}, secret=SIGNING["team"], at=NOON.timestamp())
    return [
        (await door.ask("POST", SCRIPTS, b'{"a":1}', headers=scripts(b'{"a":1}'))).status,
        (await door.ask("POST", GRAFANA, b'{"alerts":[]}', headers=grafana(b'{"alerts":[]}'))).status,
        (await door.ask("POST", SLACK, pressed, headers=proof)).status,
    ]


@asynccontextmanager
async def unfinished(door: Door, count: int, chunk: bytes = b"{", target: str = SCRIPTS) -> AsyncIterator[list[int]]:
    """Keep so many bodies unfinished for the length of the block; yield what those were answered that were dropped."""
    rest = anyio.Event()
    answered: list[int] = []

    async def send() -> None:
        answered.append((await door.ask("POST", target, chunk, b"}", headers=FORGED[target], held=rest)).status)

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        yield answered
        rest.set()


@pytest.fixture
def door() -> Door:
    """Return a listener that drops bodies to make room alone: on a slow machine their time would be over as well."""
    door = Door()
    door.listener.unproven.seconds = 2 * PATIENCE_SECONDS
    return door


@pytest.mark.parametrize("target", [SCRIPTS, GRAFANA, SLACK])
@pytest.mark.parametrize("count", [16, 64, 500, 2000])
async def test_unfinished_bodies_keep_nobody_out_however_many_there_are(door: Door, target: str, count: int) -> None:
    async with unfinished(door, count, target=target) as answered:
        assert await all_who_sign(door) == [202, 202, 200]
        assert (await door.ask("POST", "/api/v1/alerts/prometheus", b"{}", headers=bearer(1))).status == 202
        assert set(answered) <= {503}


@pytest.mark.parametrize(("size", "count"), [(1, 2000), (70_000, 300), (MOST_BYTES - 1, 20)])
async def test_unfinished_bodies_have_bounded_room_and_the_oldest_go_first(door: Door, size: int, count: int) -> None:
    async with unfinished(door, 1, b"x") as oldest, unfinished(door, count, b"x" * size) as later:
        most = UNPROVEN_BYTES // max(size, 16 * 1024)
        assert (oldest, later) == ([503], [503] * (count - most))
        assert await all_who_sign(door) == [202, 202, 200]


async def test_room_that_is_left_is_used_again(door: Door) -> None:
    for _ in range(5):
        async with unfinished(door, 16, b"x" * (MOST_BYTES - 1)) as answered:
            assert answered == []


async def test_a_body_that_is_dropped_may_come_again(door: Door) -> None:
    rest = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def slow() -> None:
            answer = await door.ask("POST", SCRIPTS, b"{", b"}", headers=scripts(b"{}"), held=rest)
            assert (answer.status, answer.headers["retry-after"], answer.json["retryable"]) == (503, "5", True)
            assert (await door.ask("POST", SCRIPTS, b"{", b"}", headers=scripts(b"{}"))).status == 202

        tasks.start_soon(slow)
        await anyio.wait_all_tasks_blocked()
        async with unfinished(door, 16, b"x" * (MOST_BYTES - 1)):
            pass


async def test_an_unproven_body_gets_less_time_than_a_proven_one() -> None:
    door, rest = Door(), anyio.Event()
    statuses: list[tuple[str, int]] = []

    async def send(target: str, headers: dict[str, str]) -> None:
        statuses.append((target, (await door.ask("POST", target, b"{", b"}", headers=headers, held=rest)).status))

    with loop_time() as time:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, SCRIPTS, scripts(b"{}"))
            tasks.start_soon(send, "/api/v1/alerts/prometheus", bearer(1))
            await anyio.wait_all_tasks_blocked()
            time.leap(UNPROVEN_SECONDS + 0.1)
            await until(lambda: bool(statuses))
            assert statuses == [(SCRIPTS, 408)]
            rest.set()
    assert statuses[1:] == [("/api/v1/alerts/prometheus", 202)]


LONG_AGO = str(int(NOON.timestamp()) - 301)


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (SCRIPTS, {}),
        (SCRIPTS, {"x-claudeops-signature": ""}),
        (SCRIPTS, {"x-claudeops-signature": f"v1={JUNK}"}),
        (SCRIPTS, {"x-claudeops-signature": f"t={STAMP},v1="}),
        (SCRIPTS, {"x-claudeops-signature": f"t={STAMP},v1={JUNK}0"}),
        (SCRIPTS, {"x-claudeops-signature": f"t={LONG_AGO},v1={JUNK}"}),
        (SCRIPTS, {"x-claudeops-signature": f"t={STAMP},t={STAMP},v1={JUNK}"}),
        (SCRIPTS, FORGED[GRAFANA]),
        (GRAFANA, {}),
        (GRAFANA, {"x-grafana-alerting-signature": "abc"}),
        (GRAFANA, FORGED[SCRIPTS]),
        (SLACK, {}),
        (SLACK, {"x-slack-signature": f"v0={JUNK}"}),
        (SLACK, {"x-slack-signature": f"v0={JUNK}", "x-slack-request-timestamp": LONG_AGO}),
        (SLACK, {"x-slack-signature": JUNK, "x-slack-request-timestamp": STAMP}),
    ],
)
async def test_what_cannot_be_a_signature_of_now_is_refused_before_its_body_is_read(
    door: Door, target: str, headers: dict[str, str]
) -> None:
    answer = await door.ask("POST", target, b"{", b"}", headers=headers, held=anyio.Event())
    assert answer.status == 401


@pytest.mark.parametrize("target", [SCRIPTS, GRAFANA, SLACK])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.1.2.3"])
async def test_wrong_signatures_keep_no_right_one_out_not_even_from_the_same_address(
    door: Door, target: str, peer: str
) -> None:
    wrong: list[int] = []
    for _ in range(20):
        wrong += [(await door.ask("POST", target, b"{}", headers=FORGED[target], peer=peer)).status for _ in range(25)]
        assert await all_who_sign(door) == [202, 202, 200]
    assert Counter(wrong) == {401: int(GUESSES_PER_SECOND), 503: 500 - int(GUESSES_PER_SECOND)}


async def test_a_connection_ends_with_the_guess_that_is_one_too_many(door: Door) -> None:
    async def guess(peer: str) -> tuple[int, str]:
        answer = await door.ask("POST", SCRIPTS, b"{}", headers=FORGED[SCRIPTS], peer=peer)
        return answer.status, answer.headers.get("connection", "")

    assert {await guess("2001:db8::1") for _ in range(int(GUESSES_PER_SECOND))} == {(401, "")}
    assert await guess("2001:db8::2") == (503, "close")  # one network has many addresses
    assert await guess("2001:db8:0:1::1") == (401, "")
    assert await guess("::ffff:10.0.0.1") == (401, "")
    door.clock.go_on(1)
    assert await guess("2001:db8::1") == (401, "")


def test_who_calls_is_not_remembered_without_bound() -> None:
    rate = Rate(per_second=1, most=1, clock=TestClock(), most_callers=3)
    assert [rate.admits(str(number)) for number in range(1000)] == [True] * 1000
    assert [rate.admits(str(number)) for number in (999, 998, 997, 996)] == [False, False, False, True]


async def test_bodies_that_came_whole_need_no_room_any_more() -> None:
    door = Door()
    door.listener.unproven = UnprovenBodies(most_bytes=100_000)  # a small bound shows a leak soon
    for number in range(50):
        body = b"[" + b"1," * 30_000 + str(number).encode() + b"]"
        assert (await door.ask("POST", SCRIPTS, body, headers=scripts(body))).status == 202
