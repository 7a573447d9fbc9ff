"""The meter between a client and the scripted API: what passes, what is refused, what is booked."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial

import anyio
import msgspec
import pytest

from claudeops.clock import Clock
from claudeops.domain.holds import HoldKind
from claudeops.domain.sessions import Session
from claudeops.domain.spending import prices
from claudeops.engine.meter.connections import ModelApi
from claudeops.engine.meter.upstream import ModelUpstream
from claudeops.errors import ConfigurationError
from claudeops.harness.protocol import CredentialKind
from claudeops.scripted_api.requests import ResponseEnding
from claudeops.scripted_api.server import serve
from claudeops.structs import replace
from claudeops.text.redact import Redactor
from support.booked import Tokens
from support.loopback_http import ask
from support.metering import ASKED, KEY, MODEL, Bench, bench, paid, script
from support.store_values import ending, queued
from support.stores import Database
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

SAYS = {"text": "I look at the services."}
SILENT_IN_THE_MIDDLE = {"text": "well", "hang": True}


def same_tokens(the: Bench) -> bool:
    return Tokens.booked(the.calls) == Tokens.served(the.api.traffic)


def summary(the: Bench) -> list[tuple[object, object, bool]]:
    return [(call["http_status"], call["error"], call["ended_at"] is not None) for call in the.calls]


# --- what passes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_passes_byte_for_byte(sqlite: Database, *, streamed: bool) -> None:
    async with serve(script(SAYS)) as direct:
        expected = await ask(f"{direct.url}/v1/messages?beta=true", body={**ASKED, "stream": streamed})
    async with bench(sqlite, SAYS) as the, the.account() as account:
        answer = await the.ask(account, stream=streamed)
        assert (answer.status, answer.body, answer.is_whole) == (200, expected.body, True)
        assert answer.headers["content-type"] == expected.headers["content-type"]
        assert answer.headers["request-id"] == expected.headers["request-id"]
        assert summary(the) == [(200, None, True)]
        assert same_tokens(the)


async def test_the_first_words_come_before_the_answer_has_ended(sqlite: Database) -> None:
    async with bench(sqlite, SILENT_IN_THE_MIDDLE) as the, the.account() as account, the.begun(account) as first:
        assert first.startswith(b"HTTP/1.1 200")
        await until(lambda: the.calls[0]["input_tokens"] is not None)
        assert the.api.served == [], "the answer goes on"
        assert summary(the) == [(200, None, False)]


async def test_the_request_arrives_with_the_operators_key_and_its_own_query(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        await the.ask(account, metadata={"user_id": "somebody"})
        [seen] = the.api.requests
        assert (seen.path, seen.body["metadata"]) == ("/v1/messages?beta=true", {"user_id": "somebody"})
        assert the.api.traffic.mentioning(account.token) == []


async def test_an_oauth_token_goes_out_as_one_with_the_feature_that_it_needs(sqlite: Database) -> None:
    upstream = ModelUpstream(credential=CredentialKind.OAUTH_TOKEN, secret=KEY)
    async with bench(sqlite, SAYS, upstream=upstream) as the, the.account() as account:
        headers = {"authorization": f"Bearer {account.token}", "anthropic-beta": "effort-2025-11-24"}
        answer = await ask(f"{the.meter.url}/v1/messages", body=ASKED, headers=headers)
        assert answer.status == 200, "the API has taken the token"
        assert the.api.requests[0].headers["anthropic-beta"] == "oauth-2025-04-20,effort-2025-11-24"
        assert "x-api-key" not in the.api.requests[0].headers


async def test_counting_tokens_passes_and_costs_nothing(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        answer = await the.ask(account, "/v1/messages/count_tokens", stream=False)
        assert answer.json["input_tokens"]
        assert the.calls == []


async def test_somebody_is_there(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the:
        assert (await ask(f"{the.meter.url}/", method="HEAD")).status == 200
        assert the.api.requests == []


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/messages"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/complete"),
        ("GET", "/v1/organizations/api_keys"),
        ("POST", "/v1/messages/../files"),
        ("GET", "/"),
    ],
)
async def test_no_other_path_leads_anywhere(sqlite: Database, method: str, path: str) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        headers = {"x-api-key": account.token}
        assert (await ask(f"{the.meter.url}{path}", method=method, body=ASKED, headers=headers)).status == 404
        assert the.api.requests == []


@pytest.mark.parametrize("token", ["", "sk-ant-meter-guessed", KEY])
async def test_only_a_running_sessions_token_opens_it(sqlite: Database, token: str) -> None:
    async with bench(sqlite, SAYS) as the, the.account():
        answer = await ask(f"{the.meter.url}/v1/messages", body=ASKED, headers={"x-api-key": token})
        assert (answer.status, answer.headers["x-should-retry"]) == (401, "false")
        assert the.api.requests == []


async def test_a_token_dies_with_its_session(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the:
        async with the.account() as account:
            assert (await the.ask(account)).status == 200
        assert (await the.ask(account)).status == 401
        assert len(the.calls) == len(the.api.requests) == 1


async def test_another_model_than_the_tiers_is_refused(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        answer = await the.ask(account, model="claude-opus-5-5")
        assert (answer.status, the.api.requests, the.calls) == (404, [], [])
        assert "claude-opus-5-5 is not the one of this session" in str(answer.json["error"])


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"model": 7}', b'{"stream": true}'])
async def test_what_names_no_model_is_refused(sqlite: Database, raw: bytes) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        answer = await ask(f"{the.meter.url}/v1/messages", raw=raw, headers={"x-api-key": account.token})
        assert (answer.status, the.api.requests, the.calls) == (400, [], [])


async def test_a_call_beyond_the_budget_is_refused_and_its_session_told(sqlite: Database) -> None:
    dear = {**SAYS, "usage": {"output_tokens": 100_000}}  # half a dollar
    async with bench(sqlite, dear, with_rules=paid(tier=0.5)) as the, the.account() as account:
        assert (await the.ask(account)).status == 200
        answer = await the.ask(account)
        assert (answer.status, answer.headers["x-should-retry"]) == (402, "false")
        assert "the session's budget is spent" in str(answer.json["error"])
        assert the.stopped == [account.session.id]
        assert account.refusal is not None
        assert (len(the.calls), len(the.api.requests)) == (1, 1)


async def test_four_sessions_pass_a_budget_for_two_by_one_request_at_most(sqlite: Database) -> None:
    one = 0.25  # dollars: what a request costs
    used = {"input_tokens": 0, "output_tokens": 50_000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    budget = 4 * one  # two sessions of two requests
    rules = paid(tier=2 * one, chain=budget, day=budget)
    async with bench(sqlite, {**SAYS, "usage": used, "times": 40}, with_rules=rules) as the:
        for _ in range(4):
            await queued(the.store)
        running = [session async for session in the.claimable()]
        assert len(running) == 2

        async def spend(session: Session) -> None:
            async with the.meter.account(session, over_budget=lambda: the.stopped.append(session.id)) as account:
                while (await the.ask(account, max_tokens=50_000)).status == 200:
                    pass

        async with anyio.create_task_group() as tasks:
            for session in running:
                tasks.start_soon(spend, session)
        for session in running:
            await the.store.queue.finish(ending(session), rules=rules)

        assert [session async for session in the.claimable()] == []
        assert [hold.kind for hold in await the.store.holds.standing(Clock().now())] == [HoldKind.BUDGET]
        spent = sum(float(str(call["cost_usd"])) for call in the.calls)
        assert budget <= spent <= budget + one + 1e-9
        assert sorted(the.stopped) == [session.id for session in running]
        assert same_tokens(the)


async def test_without_its_database_the_meter_makes_no_call(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        the.away.add("begin")
        answer = await the.ask(account)
        assert answer.status == 500
        assert "x-should-retry" not in answer.headers, "it may work a moment later"
        the.away.clear()
        assert (await the.ask(account)).status == 200
        assert len(the.api.requests) == 1


# --- what is booked ---------------------------------------------------------------------------------------


async def test_an_end_that_the_database_does_not_take_is_kept(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the:
        async with the.account() as account:
            the.away.add("book")
            assert (await the.ask(account)).is_whole
            [left] = account.unbooked
        assert (left.id, left.http_status) == (the.calls[0]["id"], 200)
        assert left.ended_at is not None
        assert left.usage is not None
        assert left.usage.input_tokens == the.api.traffic.tokens().input_tokens


async def test_a_client_that_leaves_ends_the_request_and_what_was_said_is_booked(sqlite: Database) -> None:
    async with bench(sqlite, SILENT_IN_THE_MIDDLE) as the, the.account() as account:
        async with the.begun(account):
            await until(lambda: the.calls[0]["input_tokens"] is not None)
        await until(lambda: the.calls[0]["ended_at"] is not None)
        with anyio.fail_after(PATIENCE_SECONDS):
            await the.api.wait_for(lambda traffic: traffic.served)
        assert [served.ending for served in the.api.served] == [ResponseEnding.GONE]
        assert summary(the) == [(200, "cancelled", True)]
        assert same_tokens(the)


@pytest.mark.parametrize("step", [{"hang": True}, {"text": "well", "hang": True}, {**SAYS, "cut": True}])
async def test_a_call_that_is_cut_off_counts_with_all_the_output_that_it_was_allowed(
    sqlite: Database, step: Mapping[str, object]
) -> None:
    # What the API had sent and nobody had read yet is served all the same.
    async with bench(sqlite, step) as the, the.account() as account:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(the.ask, account, max_tokens=50_000))
            await until(lambda: len(the.api.requests) == 1)
            tasks.cancel_scope.cancel()
        await until(lambda: the.calls[0]["ended_at"] is not None)
        [call] = the.calls
        allowed = 50_000 * prices.PRICES[MODEL].rates.output / 1e6
        assert float(str(call["charged_usd"])) >= allowed > float(str(call["cost_usd"] or 0))


async def test_a_call_that_is_given_up_while_it_is_recorded_was_not_made_and_costs_nothing(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account, anyio.create_task_group() as tasks:
        the.slow.begins = anyio.Event()
        tasks.start_soon(the.ask, account)
        await the.slow.recorded.wait()
        tasks.start_soon(account.close)
        await until(lambda: account.closed)
        the.slow.begins.set()
        await until(lambda: the.calls[0]["ended_at"] is not None)
        [call] = the.calls
        assert (call["http_status"], call["error"], call["charged_usd"]) == (None, "cancelled", 0)
        assert the.api.requests == []


async def test_a_session_that_ends_ends_its_calls(sqlite: Database) -> None:
    async with bench(sqlite, SILENT_IN_THE_MIDDLE) as the:
        async with the.account() as account, the.begun(account):
            await until(lambda: the.calls[0]["input_tokens"] is not None)
            await account.close()
            assert summary(the) == [(200, "cancelled", True)]
        with anyio.fail_after(PATIENCE_SECONDS):
            await the.api.wait_for(lambda traffic: traffic.served)
        assert same_tokens(the)


async def test_an_answer_that_breaks_off_breaks_off_for_the_client_too(sqlite: Database) -> None:
    async with bench(sqlite, {**SAYS, "cut": True}) as the, the.account() as account:
        answer = await the.ask(account)
        assert (answer.status, answer.is_whole) == (200, False)
        assert b"message_start" in answer.body
        await until(lambda: the.calls[0]["ended_at"] is not None)
        assert summary(the) == [(200, "RemoteProtocolError", True)]
        assert same_tokens(the)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 529])
async def test_an_error_passes_with_its_headers_and_costs_nothing(sqlite: Database, status: int) -> None:
    error = {"error": {"status": status, "message": "no", "headers": {"retry-after": "7"}}}
    async with bench(sqlite, error) as the, the.account() as account:
        answer = await the.ask(account)
        assert (answer.status, answer.headers["retry-after"]) == (status, "7")
        [call] = the.calls
        assert (call["http_status"], call["charged_usd"], call["input_tokens"]) == (status, 0, None)
        assert call["error"] == answer.json["error"]["type"]  # type: ignore[index]


async def test_an_api_that_is_not_there_is_told_and_costs_nothing(sqlite: Database) -> None:
    nobody = ModelUpstream(base_url="http://127.0.0.1:1", secret=KEY)
    async with bench(sqlite, SAYS, upstream=nobody) as the, the.account() as account:
        answer = await the.ask(account)
        assert answer.status == 502
        assert "could not be reached (ConnectError)" in str(answer.json["error"])
        assert summary(the) == [(None, "ConnectError", True)]
        assert the.calls[0]["charged_usd"] == 0


async def test_an_alias_stands_for_no_model_without_a_price(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        answer = await the.ask(account, model="claude-haiku-9")
        assert (answer.status, the.api.requests, the.calls) == (404, [], [])
        assert "has no price here: name it in CLAUDEOPS_TIER1_MODEL" in str(answer.json["error"])


async def test_a_model_without_a_price_has_no_cost_and_counts_as_the_dearest(sqlite: Database) -> None:
    unknown = {**SAYS, "usage": {"input_tokens": 0, "output_tokens": 1000}}
    async with bench(sqlite, unknown) as the, the.account(model="claude-haiku-9") as account:
        assert (await the.ask(account, model="claude-haiku-9")).status == 200
        [call] = the.calls
        assert call["cost_usd"] is None
        assert float(str(call["charged_usd"])) >= 1000 * 75 / 1e6


async def test_the_token_is_blotted_out_wherever_the_session_shows_it(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        redactor = the.meter._deps.redactor_with(account.token)
        assert account.token not in repr(account)
        assert account.token not in redactor.text(f"ANTHROPIC_API_KEY={account.token}")
        encoded = base64.b64encode(account.token.encode())
        assert encoded not in redactor.line(b"the key: " + encoded)


async def test_no_session_waits_for_the_expressions_of_its_token(sqlite: Database) -> None:
    made: list[str] = []
    async with bench(sqlite, SAYS) as the:
        deps = the.meter._deps

        def redactor_with(secret: str) -> Redactor:
            made.append(secret)
            return deps.redactor_with(secret)

        the.meter._deps = replace(deps, redactor_with=redactor_with)
        for _ in range(2):
            the.meter.prepare()
        assert len(made) == 1
        async with the.account() as first:
            assert made == [first.token]
            the.meter.prepare()
            answer = await the.ask_raw(first, msgspec.json.encode(ASKED), x_api_key=made[1])
            assert (answer.status, the.api.requests) == (401, [])  # the token of no session yet
            async with the.account() as second:
                assert made == [first.token, second.token]
                assert second.token not in second.redactor.text(f"ANTHROPIC_API_KEY={second.token}")


# --- what concerns all sessions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, HoldKind.PARKED), (529, HoldKind.PARKED), (401, HoldKind.BREAKER), (402, HoldKind.BREAKER)],
)
async def test_a_refusal_of_the_api_holds_all_sessions_back_at_once(
    sqlite: Database, status: int, kind: HoldKind
) -> None:
    refused = {"error": {"status": status, "message": f"not with {KEY}", "headers": {"retry-after": "600"}}}
    async with bench(sqlite, refused) as the, the.account() as account:
        await the.ask(account)
        await until(lambda: bool(the.holds))
        assert [hold["name"] for hold in the.holds] == [kind.value]
        assert KEY not in str(the.holds[0]["reason"])


async def test_a_served_probe_lets_the_others_go_on(sqlite: Database) -> None:
    busy = {"error": {"status": 529, "message": "Overloaded"}}
    async with bench(sqlite, busy, SAYS) as the, the.account() as account:
        await the.ask(account)
        await until(lambda: bool(the.holds))
        await the.ask(account)
        await until(lambda: not the.holds)


async def test_refusals_of_our_own_hold_nobody_back(sqlite: Database) -> None:
    dear = {**SAYS, "usage": {"output_tokens": 100_000}}
    async with bench(sqlite, dear) as the, the.account() as account:
        await the.ask(account)
        assert (await the.ask(account)).status == 402
        assert (await the.ask(account, model="claude-opus-5-5")).status == 404
    assert the.holds == []


# --- the way to the API -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "url", "goes_through"),
    [
        ({}, None, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, None, "http://proxy:3128"),
        ({"https_proxy": "proxy:3128"}, None, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, None, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, "http://gateway:8080/x", "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "internal,.anthropic.com"}, None, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "api.anthropic.com:8443"}, None, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "*"}, None, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "thropic.com"}, None, "http://proxy:3128"),
    ],
)
def test_the_operators_proxy_is_used(network: dict[str, str], url: str | None, goes_through: str | None) -> None:
    upstream = ModelUpstream(base_url=url, network=network)
    assert upstream.proxy == goes_through


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://user:password@proxy",
        "http://user:password@",
        "http://user:password@proxy:65536",
        "http://user:password@proxy:port",
        "http://user:password@proxy..example",
        "http://user:password@[::1",
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_without_showing_it(proxy: str) -> None:
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY is no http or https proxy") as caught:
        ModelUpstream(network={"HTTPS_PROXY": proxy}).check()
    assert "password@" not in str(caught.value)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"])
def test_certificates_that_cannot_be_read_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        ModelApi(ModelUpstream(network={name: "/nowhere/ca.pem"}))
