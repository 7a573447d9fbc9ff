"""Who is let in at which address, and what everybody else is told."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import urlencode

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claudeops.domain.probes.probe import PingVerb
from claudeops.errors import StoreError
from claudeops.structs import replace
from claudeops.web.endpoints import Endpoint
from claudeops.web.listener import CALLS_AT_ONCE, MOST_AT_ONCE, MOST_BYTES, AllowedHosts
from claudeops.web.ports import ReadinessCheck
from support.listening import CHAT_KEY, HOST, NOON, PLANTED, SHARED, Door, TestClock, bearer, secret_of, token_for

ALERTS = "/api/v1/alerts/prometheus"
BODY = b'{"alerts":[]}'
PARAMS = {"source": "prometheus", "name": "backup", "id": "7"}
OTHERS = {"read", "alerts:other", "heartbeats:other", "alerts:prometheus2", "alerts"}


@pytest.fixture
def door() -> Door:
    return Door()


def rows() -> list[Endpoint]:
    return list(Door().listener.table.rows)


def target_of(row: Endpoint) -> str:
    return row.path.format_map(PARAMS)


def signature(body: bytes, *, secret: str = SHARED, clock: TestClock, off: float = 0) -> dict[str, str]:
    stamp = str(int(clock.now().timestamp() + off))
    proof = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"x-claudeops-signature": f"t={stamp},v1={proof}"}


# --- every row of the table ---------------------------------------------------------------------------------


def test_only_health_is_open_to_everybody() -> None:
    assert [row.label for row in rows() if row.scope is None] == [
        "GET /healthz",
        "GET /health",
        "GET /api/v1/health",
        "GET /readyz",
    ]


def test_no_row_is_open_because_it_might_have_been_signed() -> None:
    (row,) = [row for row in rows() if row.label == "POST /api/v1/webhook"]
    with pytest.raises(ValueError, match="POST /api/v1/webhook"):
        replace(row, scope=None)
    with pytest.raises(ValueError, match="POST /api/v1/webhook"):
        replace(row, body=None)


@pytest.mark.parametrize("row", [row for row in rows() if row.takes_tokens], ids=lambda row: row.label)
async def test_a_row_is_for_those_with_its_scope_and_nobody_else(row: Endpoint, door: Door) -> None:
    needed = row.needs(PARAMS)
    door.tokens.kept = {
        1: token_for(1, *([needed] if needed else [])),
        2: token_for(2, *OTHERS - {needed}),
        3: replace(token_for(3, *([needed] if needed else [])), expires_at=NOON),
        4: replace(token_for(4, *([needed] if needed else [])), revoked_at=NOON),
    }
    target = target_of(row)
    if row.method == "GET" and "alerts" in row.path:
        target = target.replace("prometheus", "checks")
        door.tokens.kept[1] = token_for(1, "alerts:checks")

    async def status(headers: dict[str, str], host: str = HOST) -> int:
        return (await door.ask(row.method, target, b"x", headers=headers, host=host)).status

    good = row.status
    outside = good if row.scope is None else 401
    assert await status(bearer(1)) == good
    assert await status({}) == outside
    assert await status(bearer(2)) == (good if row.scope is None else 403)
    assert [await status(bearer(number)) for number in (3, 4, 99)] == [outside] * 3
    assert await status({"authorization": f"Basic {secret_of(1)}"}) == outside
    assert await status({"authorization": bearer(1)["authorization"][:-1] + "x"}) == outside
    assert await status({"x-forwarded-for": "127.0.0.1"}) == outside
    assert await status({"remote-user": "ada"}) == 403  # for the operator's proxy alone
    assert await status(bearer(1), host="evil.example.com") == 421
    assert await status({**bearer(1), "sec-fetch-site": "cross-site"}) == 403
    assert await status({**bearer(1), "origin": "http://evil.example.com"}) == 403


@pytest.mark.parametrize("row", [row for row in rows() if row.scope is not None], ids=lambda row: row.label)
async def test_no_token_is_taken_out_of_an_address(row: Endpoint, door: Door) -> None:
    for name in ("token", "access_token", "API_KEY"):
        answer = await door.ask(row.method, f"{target_of(row)}?{name}={secret_of(1)}", headers=bearer(1))
        assert answer.status == 401
        assert secret_of(1).encode() not in answer.body


async def test_a_head_request_is_answered_where_nothing_is_done(door: Door) -> None:
    assert (await door.ask("HEAD", "/healthz")).status == 200
    assert (await door.ask("HEAD", "/api/v1/heartbeats/backup", headers=bearer(1))).status == 405
    assert door.pings.heard == []


# --- names and sites ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]:8080", "[::1]", "ops.example.com.", "10.1.2.3:80", "[fe80::1]"],
)
def test_we_know_our_own_names_and_addresses_are_no_names(host: str) -> None:
    assert AllowedHosts.of(["OPS.example.com"]).has(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "ops.example.com.b.example", "b.example", "localhost.b.example", "127.0.0.1.b.example", "[", ":"),
        *("[::1].b.example", "[::1]b.example", "[::1].b.example:8080", "[::1]:80.b.example", "[::1]@b.example", "[::1"),
        *("[::1]:8080:80", "[127.0.0.1].b.example", "[127.0.0.1]", "[localhost]", "[ops.example.com]", "[]", "[]:80"),
        *("localhost:80.b.example", "localhost:80@b.example", "127.0.0.1:b.example", "localhost:\u0668"),
    ],
)
def test_no_other_name_leads_here(host: str) -> None:
    assert not AllowedHosts.of(["ops.example.com"]).has(host)


@pytest.mark.parametrize("host", ["[", "a/b?c", "localhost:x/y", "localhost:99999999", "[::1", "\u00e9"])
async def test_no_host_header_is_ever_our_fault(door: Door, host: str) -> None:
    for target in ("/healthz", "/nothing", "/healthz?x=1"):
        answer = await door.ask("GET", target, host=host)
        assert answer.status in {200, 404, 421, 422}
    assert "request_crashed" not in door.log.getvalue()


async def test_without_a_host_nothing_is_answered(door: Door) -> None:
    assert (await door.ask("GET", "/healthz", host=None)).status == 421


async def test_a_page_of_our_own_may_ask(door: Door) -> None:
    for headers in ({"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}, {"origin": "http://127.0.0.1:8080"}):
        assert (await door.ask("GET", "/healthz", headers=headers)).status == 200


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/v1/alerts/", 404),
        ("POST", "/api/v1/alerts/a%20b", 404),
        ("POST", "/api/v1/alerts/../x", 404),
        ("GET", "/healthz/", 404),
        ("PUT", ALERTS, 405),
        ("GET", "/api/v1/webhook", 405),
        ("POST", "/healthz", 405),
        ("GET", "/healthz?x=1", 422),
    ],
)
async def test_what_is_not_there_is_a_problem_document(door: Door, method: str, target: str, status: int) -> None:
    answer = await door.ask(method, target, headers=bearer(1))

    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json) == {"type", "title", "status", "detail", "instance", "operation", "retryable", "hint"}
    assert answer.json["title"] == HTTPStatus(status).phrase
    assert ("allow" in answer.headers) is (status == 405)


async def test_a_refusal_says_how_to_get_in_and_is_logged_once_a_minute(door: Door) -> None:
    answer = await door.ask("POST", ALERTS, BODY)
    for _ in range(49):
        door.clock.go_on(1)
        await door.ask("POST", ALERTS, BODY)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    door.clock.go_on(60)
    await door.ask("POST", ALERTS, BODY)

    lines = [json.loads(line) for line in door.log.getvalue().splitlines()]
    assert [(line["event"], line["count"]) for line in lines] == [("caller_refused", 1), ("caller_refused", 50)]
    assert lines[0]["route"] == "POST /api/v1/alerts/{source}"


# --- alerts -------------------------------------------------------------------------------------------------


async def test_a_body_is_taken_as_it_came_and_answered_when_it_is_stored(door: Door) -> None:
    answer = await door.ask("POST", f"{ALERTS}?a=1", b"\xff{", b"no json", headers=bearer(1))

    assert answer.status == 202
    assert answer.json == {"delivery": "1", "alerts": 1, "readable": True, "repeats": False}
    (taken,) = door.intake.taken
    assert (taken.source, taken.body, taken.query, taken.at) == ("prometheus", b"\xff{no json", {"a": "1"}, NOON)


async def test_a_source_says_who_it_is_by_its_signature(door: Door) -> None:
    for secret in (SHARED, "the-secret-before"):
        headers = signature(BODY, secret=secret, clock=door.clock)
        assert (await door.ask("POST", "/api/v1/alerts/scripts", BODY, headers=headers)).status == 202


@pytest.mark.parametrize("source", ["prometheus", "grafana", "unknown"])
async def test_a_signature_is_good_for_its_own_source_alone(door: Door, source: str) -> None:
    headers = signature(BODY, clock=door.clock)
    assert (await door.ask("POST", f"/api/v1/alerts/{source}", BODY, headers=headers)).status == 401


async def test_a_signature_of_another_body_or_time_is_none(door: Door) -> None:
    target = "/api/v1/alerts/scripts"
    good = signature(BODY, clock=door.clock)
    bad = [signature(BODY, clock=door.clock, off=off) for off in (-301, 301)]
    bad += [signature(BODY, secret="", clock=door.clock), {"x-claudeops-signature": ""}, {}]

    assert [(await door.ask("POST", target, BODY, headers=headers)).status for headers in bad] == [401] * len(bad)
    assert (await door.ask("POST", target, BODY + b" ", headers=good)).status == 401
    assert door.intake.taken == []


async def test_the_chat_key_opens_the_webhook_and_nothing_else(door: Door) -> None:
    headers = {"authorization": f"Bearer {CHAT_KEY}"}
    targets = ("/api/v1/webhook", "/api/v1/alerts/webhook", ALERTS, "/api/v1/heartbeats/backup")

    assert [(await door.ask("POST", target, BODY, headers=headers)).status for target in targets] == [
        202,
        202,
        403,
        403,
    ]
    assert [taken.source for taken in door.intake.taken] == ["webhook", "webhook"]


async def test_healthchecks_may_say_all_in_the_address(door: Door) -> None:
    answer = await door.ask("GET", "/api/v1/alerts/checks?uuid=u&status=down", headers=bearer(1))
    other = await door.ask("GET", f"{ALERTS}?status=down", headers=bearer(1))

    assert (answer.status, other.status) == (202, 405)
    assert [taken.query for taken in door.intake.taken] == [{"uuid": "u", "status": "down"}]


async def test_nobody_speaks_for_the_probes(door: Door) -> None:
    door.tokens.kept[1] = token_for(1, "alerts:probes")
    assert (await door.ask("POST", "/api/v1/alerts/probes", BODY, headers=bearer(1))).status == 404
    assert door.intake.taken == []


async def test_a_body_that_is_too_long_is_refused_however_its_length_is_said(door: Door) -> None:
    half = b"x" * (MOST_BYTES // 2)
    told = {**bearer(1), "content-length": str(MOST_BYTES + 1)}

    assert (await door.ask("POST", ALERTS, half, half, headers=bearer(1))).status == 202
    assert (await door.ask("POST", ALERTS, half, half, b"x", headers=bearer(1))).status == 413
    assert (await door.ask("POST", ALERTS, b"", headers=told)).status == 413
    assert (await door.ask("POST", ALERTS, b"", headers={**told, "content-length": "9" * 500})).status == 413


async def test_what_cannot_be_stored_is_sent_again_later(door: Door) -> None:
    door.intake.error = StoreError("the disk is full.")
    answer = await door.ask("POST", ALERTS, BODY, headers=bearer(1))

    assert (answer.status, answer.headers["retry-after"], answer.json["retryable"]) == (503, "5", True)
    assert b"disk" not in answer.body  # what an error says may name hosts and files
    assert "the disk is full." in door.log.getvalue()


async def test_while_the_database_is_away_nobody_is_told_that_his_token_is_bad(door: Door) -> None:
    door.tokens.away = True
    for _ in range(20):
        assert (await door.ask("POST", ALERTS, BODY, headers=bearer(1))).status == 503
    assert door.tokens.reads == 1

    door.tokens.away = False
    door.clock.go_on(0.2)
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(1))).status == 202


async def test_a_bug_of_ours_is_told_and_logged_and_ends_nothing(door: Door) -> None:
    door.intake.error = ZeroDivisionError("planted-secret")
    answer = await door.ask("POST", ALERTS, BODY, headers=bearer(1))

    assert answer.status == 500
    assert b"planted" not in answer.body
    assert "request_crashed" in door.log.getvalue()
    assert (await door.ask("GET", "/healthz")).status == 200


async def test_who_calls_too_often_is_told_to_come_again_in_a_way_that_loses_nothing(door: Door) -> None:
    door.tokens.kept[4] = token_for(4, "alerts:prometheus")
    statuses = [(await door.ask("POST", ALERTS, BODY, headers=bearer(1))).status for _ in range(int(CALLS_AT_ONCE) + 1)]

    assert statuses == [202] * int(CALLS_AT_ONCE) + [503]
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(4))).status == 202
    door.clock.go_on(0.5)
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(1))).status == 202


async def test_too_much_at_once_is_put_off_and_goes_on_afterwards(door: Door) -> None:
    door.intake.hold = anyio.Event()
    statuses: list[int] = []

    async def send() -> None:
        statuses.append((await door.ask("POST", ALERTS, BODY, headers=bearer(1))).status)

    async with anyio.create_task_group() as tasks:
        for _ in range(MOST_AT_ONCE + 3):
            tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        assert statuses == [503] * 3
        assert (await door.ask("GET", "/healthz")).status == 200
        door.intake.hold.set()
    assert statuses == [503] * 3 + [202] * MOST_AT_ONCE


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=300), source=st.sampled_from(["prometheus", "checks", "scripts"]))
async def test_no_body_and_no_proof_is_ever_our_fault(body: bytes, source: str) -> None:
    door = Door()
    answer = await door.ask("POST", f"/api/v1/alerts/{source}", body, headers=bearer(1) if len(body) % 2 else {})
    assert answer.status in {202, 401, 403}


@settings(max_examples=500)
@given(text=st.text(st.characters(max_codepoint=255), max_size=80))
async def test_no_authorization_header_is_ever_our_fault(text: str) -> None:
    answer = await Door().ask("POST", ALERTS, BODY, headers={"authorization": text})
    assert answer.status == 401


# --- tokens over time ---------------------------------------------------------------------------------------


async def test_a_new_token_works_at_once_and_a_revoked_one_for_a_second_at_most(door: Door) -> None:
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(9))).status == 401
    door.tokens.kept[9] = token_for(9, "alerts:prometheus")
    door.clock.go_on(0.1)
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(9))).status == 202
    del door.tokens.kept[9]
    door.clock.go_on(1)
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(9))).status == 401


async def test_a_token_ends_on_time_though_it_was_read_before(door: Door) -> None:
    door.clock.at = NOON + timedelta(hours=1) - timedelta(seconds=0.5)
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(3))).status == 202
    door.clock.go_on(0.5)
    assert (await door.ask("POST", ALERTS, BODY, headers=bearer(3))).status == 401


async def test_a_flood_of_guesses_is_no_flood_of_queries(door: Door) -> None:
    for number in range(1000):
        await door.ask("POST", ALERTS, BODY, headers=bearer(100 + number))
        door.clock.go_on(0.001)
    assert door.tokens.reads <= 11


async def test_two_proofs_are_none(door: Door) -> None:
    headers = [("authorization", bearer(1)["authorization"]), ("authorization", bearer(2)["authorization"])]
    assert (await door.ask("POST", ALERTS, BODY, headers=headers)).status == 401


async def test_the_last_use_is_written_in_the_end_at_the_latest(door: Door) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door.authenticator.keep_uses)
        await anyio.wait_all_tasks_blocked()
        await door.ask("POST", ALERTS, BODY, headers=bearer(1))
        tasks.cancel_scope.cancel()
    assert door.tokens.last == {1: NOON}


# --- health and heartbeats ----------------------------------------------------------------------------------


async def test_health_needs_neither_database_nor_checks(door: Door) -> None:
    door.tokens.away = True
    door.checks = [ReadinessCheck(name="database_writes", ok=False, detail="the disk of nas is full.")]
    alive, ready = (
        await door.ask("GET", "/healthz", headers=bearer(1)),
        await door.ask("GET", "/readyz", headers=bearer(1)),
    )

    assert (alive.status, alive.json) == (200, {"status": "ok"})
    assert (ready.status, ready.json) == (503, {"status": "not_ready", "checks": {"database_writes": False}})
    assert door.tokens.reads == 1  # for the second one, which might have shown more


async def test_why_it_is_not_ready_is_for_those_who_may_read(door: Door) -> None:
    door.checks = [
        ReadinessCheck(name="meter", ok=True),
        ReadinessCheck(name="disk", ok=False, detail="the disk of nas is full."),
    ]
    answers = [await door.ask("GET", "/readyz", headers=headers) for headers in ({}, bearer(1), bearer(2))]

    assert [answer.status for answer in answers] == [503] * 3
    assert [answer.json.get("details") for answer in answers] == [None, None, {"disk": "the disk of nas is full."}]


@pytest.mark.parametrize(
    ("ending", "verb"), [("", PingVerb.SUCCESS), ("/start", PingVerb.START), ("/fail", PingVerb.FAIL), ("/log", None)]
)
async def test_a_heartbeat_is_heard_by_either_method(door: Door, ending: str, verb: PingVerb | None) -> None:
    target = f"/api/v1/heartbeats/backup{ending}"
    got = await door.ask("GET", f"{target}?rid=1", headers=bearer(1))
    posted = await door.ask("POST", target, b"42 files\n\xff done" + b"x" * 20_000, headers=bearer(1))

    assert (got.status, posted.status) == (200, 200)
    assert got.json == {"name": "backup", "ping": "log" if verb is None else verb.value, "handled": True}
    (first, second) = door.pings.heard
    assert first == ("backup", verb, "")
    assert door.pings.runs == ["1", ""]
    assert second[:2] == ("backup", verb)
    assert second[2].startswith("42 files \N{REPLACEMENT CHARACTER} donexxx")
    assert len(second[2]) == 500


KEY = "sk-ant-" + "a" * 20


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"pass {PLANTED} used", "pass [redacted] used"),
        (f"{KEY} expired", "[redacted] expired"),
        ("to https://ops:pass-word@db/x", "to https://ops:[redacted]@db/x"),
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\ndone", "[redacted] done"),
        ("x" * 490 + f" {PLANTED}", "x" * 490 + " [redacted"),
        (" " * 9_990 + PLANTED, ""),
        ("a" + " " * 9_984 + f"pwd {PLANTED}", "a pwd"),
        ("a" + "\n" * 9_984 + f"pwd\n{PLANTED}", "a pwd"),
        (f"{PLANTED} " * 800, ("[redacted] " * 800)[:500]),
        ("\u202ebackup\u202c done", "\\u202ebackup\\u202c done"),
        ("\x1b[2Jdone\x07", "\\u001b[2Jdone\\u0007"),
        ("zero\u200bwidth \U000e0041", "zero\\u200bwidth \\U000e0041"),
        ("42 files\r\n\tin 3 s", "42 files in 3 s"),
        ("日本語 🔑 ok", "日本語 🔑 ok"),
    ],
)
async def test_what_comes_with_a_heartbeat_is_kept_without_secrets_and_hides_nothing(
    door: Door, sent: str, kept: str
) -> None:
    for ending in ("", "/start", "/fail", "/log"):
        await door.ask("POST", f"/api/v1/heartbeats/backup{ending}", sent.encode(), headers=bearer(1))
    assert [text for _, _, text in door.pings.heard] == [kept] * 4


@pytest.mark.parametrize("secret", [KEY, PLANTED, f"run-{KEY}"])
async def test_the_name_of_a_run_is_no_secret_and_still_the_same_run(door: Door, secret: str) -> None:
    for rid in (secret, secret, f"{secret}b", "plain-1", "plain.1/\u202e"):
        await door.ask("GET", f"/api/v1/heartbeats/backup?{urlencode({'rid': rid})}", headers=bearer(1))
    first, again, other, *plain = door.pings.runs
    assert first == again != other
    assert KEY not in first + other
    assert PLANTED not in first + other
    assert plain == ["plain-1", "plain.1"]


async def test_a_heartbeat_that_nobody_declares_is_told_so(door: Door) -> None:
    assert (await door.ask("GET", "/api/v1/heartbeats/other", headers=bearer(1))).status == 404
