"""Attacks with what a request says: what reaches the model API is what was judged and paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from claudeops.domain.spending import prices
from claudeops.domain.spending.tokens import TokenUsage
from claudeops.engine.meter.account import CallRequest
from claudeops.engine.meter.bodies import MAX_BODY_BYTES
from support.metering import ASKED, MODEL, bench, paid
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

SAYS = {"text": "I look at the services."}
HANGS = {"hang": True}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}


def asked(*blocks: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"role": "user", "content": list(blocks)}]


async def test_no_request_lowers_what_is_reserved_for_others(sqlite: Database) -> None:
    async with bench(sqlite, SAYS, with_rules=paid(tier=0.5)) as the, the.account() as account:
        for tokens in (-100_000_000, 0, 10**30, 64_001, "100", None):
            answer = await the.ask(account, max_tokens=tokens)
            assert (answer.status, answer.headers["x-should-retry"]) == (400, "false")
            assert "max_tokens must be a whole number from 1 to 64000" in str(answer.json["error"])
        assert (the.api.requests, the.calls) == ([], [])


async def test_the_api_sees_the_names_that_were_judged_and_sees_them_once(sqlite: Database) -> None:
    cheap = b'"max_tokens": 1, "max_tokens": 60000, "metadata": {"user_id": "a", "user_id": "b"}'
    body = b'{"model": "claude-opus-5-5", "model": "%s", "messages": [], %s}' % (MODEL.encode(), cheap)
    async with bench(sqlite, SAYS) as the, the.account() as account:
        answer = await the.ask_raw(account, body)
        assert answer.status == 200
        [seen] = the.api.requests
        assert dict(seen.headers)["content-length"] == str(
            len(
                msgspec.json.encode(
                    {"model": MODEL, "messages": [], "max_tokens": 60_000, "metadata": {"user_id": "b"}}
                )
            )
        )
        assert (seen.body["model"], seen.body["max_tokens"], seen.body["metadata"]) == (MODEL, 60_000, {"user_id": "b"})


async def test_what_is_judged_is_what_is_reserved(sqlite: Database) -> None:
    body = b'{"model":"%s","messages":[],"max_tokens":60000,"max_tokens":5}' % MODEL.encode()
    async with bench(sqlite, HANGS) as the, the.account() as account, the.meanwhile(the.ask_raw, account, body):
        [call] = the.calls
        assert float(str(call["charged_usd"])) < 60_000 * 5 / 1e6


async def test_long_numbers_and_odd_texts_arrive_as_they_were_sent(sqlite: Database) -> None:
    odd = {
        "user_id": "é😀 \u0000 \u2028 \\ / \x7f",
        "n": [123456789012345678901234567890, -0.0, 1e22, 0.1, 2**64, None],
    }
    async with bench(sqlite, SAYS) as the, the.account() as account:
        body = json.dumps({**ASKED, "metadata": odd}).encode()  # all of it in escapes
        assert (await the.ask_raw(account, body)).status == 200
        assert repr(the.api.requests[0].body["metadata"]) == repr(odd)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n": 8}, "the field n is not passed on"),
        ({"speed": "fast"}, "speed fast is not passed on"),
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "the field thread is not passed on"),
        ({"mcp_servers": [{"type": "url", "url": "https://example.org"}]}, "the field mcp_servers is not passed on"),
        ({"fallbacks": [{"model": "claude-opus-5-5"}]}, "the field fallbacks is not passed on"),
        ({"tools": [SEARCH]}, "the tier has no tool WebSearch"),
        ({"tools": [{"type": "code_execution_20250825", "name": "x"}]}, "the tool code_execution_20250825 is not"),
        ({"messages": asked({"type": "document", "source": {"type": "url", "url": "https://x"}})}, "document by url"),
        ({"messages": asked({"type": "image", "source": {"type": "file", "file_id": "x"}})}, "the image by file is"),
        ({"messages": asked({"type": "container_upload", "file_id": "x"})}, "the block container_upload is not"),
        ({"system": [{"type": "text", "text": "x", "cache_control": {"ttl": "1d"}}]}, "ttl of 1d is not passed on"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "/v1/messages/count_tokens"])
async def test_what_the_api_would_fetch_run_or_remember_is_refused_in_a_sentence(
    sqlite: Database, path: str, changes: Mapping[str, object], sentence: str
) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        answer = await the.ask(account, path, **changes)
        assert (answer.status, the.api.requests, the.calls) == (400, [], [])
        assert sentence in str(answer.json["error"])


async def test_a_search_is_paid_for_as_if_it_read_the_whole_window_each_time(sqlite: Database) -> None:
    price = prices.PRICES[MODEL]
    whole = 9 * price.window * price.rates.cache_write_1h / 1e6
    async with bench(sqlite, HANGS) as the, the.account(searches=True) as account:
        async with the.meanwhile(the.ask, account, tools=[SEARCH]):
            assert float(str(the.calls[0]["charged_usd"])) >= whole + 8 * prices.WEB_SEARCH_USD
        # Cut off: how often it had searched and read by then, nobody knows.
        assert float(str(the.calls[0]["charged_usd"])) >= whole


async def test_a_document_is_paid_for_as_if_it_filled_the_window(sqlite: Database) -> None:
    price = prices.PRICES[MODEL]
    whole = price.window * price.rates.cache_write_1h / 1e6
    async with (
        bench(sqlite, HANGS) as the,
        the.account() as account,
        the.meanwhile(the.ask, account, messages=asked(PDF)),
    ):
        assert float(str(the.calls[0]["charged_usd"])) >= whole


def test_searches_of_a_model_without_a_price_are_charged() -> None:
    asked_for = CallRequest(model="claude-haiku-9", prompt_tokens=1, output_tokens=1, searches=8)
    assert asked_for.cost(TokenUsage(web_searches=8)) is None
    assert asked_for.charge(TokenUsage(web_searches=8)) == pytest.approx(0.08)


async def test_features_that_nobody_knows_are_refused_in_the_apis_own_words(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        body = msgspec.json.encode(ASKED)
        answer = await the.ask_raw(account, body, anthropic_beta="effort-2025-11-24,fast-mode-2026-02-01")
        assert (answer.status, the.api.requests) == (400, [])
        assert "Unexpected value(s) `fast-mode-2026-02-01` for the `anthropic-beta` header." in str(
            answer.json["error"]
        )


async def test_only_headers_that_are_known_go_on(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        odd = {"x_portkey_config": "dear", "anthropic_workspace_id": "other", "content_encoding": "gzip", "cookie": "x"}
        known = {"x_stainless_lang": "js", "anthropic_version": "2023-06-01", "x_claude_code_session_id": "s"}
        await the.ask_raw(account, msgspec.json.encode(ASKED), **odd, **known)
        seen = dict(the.api.requests[0].headers)
        assert [name for name in seen if name.replace("-", "_") in odd] == []
        assert {name.replace("-", "_"): seen[name] for name in seen if name.replace("-", "_") in known} == known
        assert seen["content-type"] == "application/json"


@pytest.mark.parametrize("query", ["service_tier=priority", "beta=true&x=1", "beta=%74rue"])
async def test_no_other_query_goes_on(sqlite: Database, query: str) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        assert (await the.ask(account, f"/v1/messages?{query}")).status == 400
        assert the.api.requests == []


async def test_the_longest_body_goes_on_and_a_longer_one_does_not(sqlite: Database) -> None:
    async with bench(sqlite, SAYS) as the, the.account() as account:
        empty = len(msgspec.json.encode({**ASKED, "messages": asked({"type": "text", "text": ""})}))
        text = "x" * (MAX_BODY_BYTES - empty)
        assert (await the.ask(account, messages=asked({"type": "text", "text": text}))).status == 200
        assert len(the.api.requests) == 1
        assert the.meter.bodies.held_bytes == 0
        async with the.connected(the.head(account, MAX_BODY_BYTES + 1)) as stream:
            assert (await stream.receive()).startswith(b"HTTP/1.1 413")
        assert len(the.api.requests) == 1
