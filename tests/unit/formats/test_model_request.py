"""What a session may ask of the model API: bounded by what stands in the request, or refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.model_request import (
    ANY_NUMBER,
    IMAGE_TOKENS,
    MOST_BLOCKS,
    MOST_SEARCHES,
    PROMPT_TOKENS,
    TOOL_TOKENS,
    ModelRequest,
    RequestObjection,
    read_request,
    unknown_betas,
)

MODEL: Final = "claude-haiku-4-5"
ASKED: Final[Mapping[str, object]] = {"model": MODEL, "max_tokens": 100, "messages": []}
SEARCH: Final = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}


def read(
    changes: Mapping[str, object] | None = None, *, searching: bool = False, counting: bool = False
) -> ModelRequest | RequestObjection:
    body = msgspec.json.encode({**ASKED, **(changes or {})})
    return read_request(body, serves=lambda _: None, searching=searching, counting=counting)


def taken(changes: Mapping[str, object] | None = None, *, searching: bool = False) -> ModelRequest:
    request = read(changes, searching=searching)
    assert isinstance(request, ModelRequest), request
    return request


def refused(changes: Mapping[str, object], *, searching: bool = False) -> str:
    objection = read(changes, searching=searching)
    assert isinstance(objection, RequestObjection), objection
    return objection.message


def beside(changes: Mapping[str, object], *, searching: bool = False) -> int:
    """Return the tokens that a request counts for beside its own bytes, and those of every request."""
    request = taken(changes, searching=searching)
    return request.prompt_tokens - len(request.body) - PROMPT_TOKENS


def said(*blocks: Mapping[str, object]) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def of(source: Mapping[str, object], kind: str = "document") -> dict[str, object]:
    return {"type": kind, "source": source}


# --- what is asked for ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [-100_000_000, 0, 64_001, 10**30, True, 100.0, "100", None, [100], {"a": 1}])
def test_output_is_a_number_that_the_model_can_give(tokens: object) -> None:
    assert refused({"max_tokens": tokens}) == f"max_tokens must be a whole number from 1 to 64000 for {MODEL}"


def test_output_that_is_not_bounded_is_refused() -> None:
    body = msgspec.json.encode({"model": MODEL, "messages": []})
    objection = read_request(body, serves=lambda _: None, searching=False)
    assert isinstance(objection, RequestObjection)
    assert objection.message.startswith("max_tokens must be")


def test_tokens_that_are_only_counted_need_no_bound() -> None:
    body = msgspec.json.encode({"model": MODEL, "messages": []})
    assert isinstance(read_request(body, serves=lambda _: None, searching=False, counting=True), ModelRequest)
    assert isinstance(read({"max_tokens": -1}, counting=True), RequestObjection)
    assert isinstance(read({"container": "x"}, counting=True), RequestObjection)


def test_what_may_be_thought_counts_where_that_is_more() -> None:
    assert taken({"thinking": {"type": "enabled", "budget_tokens": 5000}}).output_tokens == 5000
    assert taken({"thinking": {"type": "adaptive", "display": "updates"}}).output_tokens == 100
    assert "thinking.budget_tokens" in refused({"thinking": {"type": "enabled", "budget_tokens": -5000}})
    assert refused({"thinking": ["enabled"]}) == "thinking must be an object"


def test_of_doubled_names_what_is_judged_is_what_goes_on() -> None:
    body = (
        b'{"model":"%s","max_tokens":1,"max_tokens":64000,"messages":[],"speed":"fast","speed":null}' % MODEL.encode()
    )
    request = read_request(body, serves=lambda _: None, searching=False)
    assert isinstance(request, ModelRequest)
    assert request.output_tokens == 64_000
    assert request.body == b'{"model":"%s","max_tokens":64000,"messages":[],"speed":null}' % MODEL.encode()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 8),
        ("container", {"skills": []}),
        ("mcp_servers", [{"type": "url", "url": "https://example.org", "name": "x"}]),
        ("fallbacks", [{"model": "claude-opus-5-5"}]),
        ("fallback_credit_token", "x"),
        ("thread", {"type": "continue", "previous_message_id": "msg_1"}),
        ("resumption", {"type": "enabled"}),
        ("betas", ["fast-mode-2026-02-01"]),
        ("anthropic_beta", ["fast-mode-2026-02-01"]),
        ("requests", []),
        ("", 1),
    ],
)
def test_a_field_that_nobody_knows_is_not_passed_on(field: str, value: object) -> None:
    assert refused({field: value}) == f"the field {field} is not passed on: what it would cost is not known"
    assert taken({field: None}).output_tokens == 100, "is not there"


def test_a_sentence_can_be_said_whatever_the_session_has_written() -> None:
    for field in ("\ud800", "x" * 1_000_000, "\n\x00"):
        body = json.dumps({**ASKED, field: 1}).encode()
        objection = read_request(body, serves=lambda _: None, searching=False)
        assert isinstance(objection, RequestObjection)
        assert len(objection.message.encode()) < 200


def test_a_model_has_a_name_of_a_models_length() -> None:
    objection = read({"model": f"{MODEL}[{'m' * 100}]"})
    assert isinstance(objection, RequestObjection)
    assert objection.model


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("service_tier", "priority"),
        ("service_tier", ["auto"]),
        ("speed", "fast"),
        ("speed", {}),
        ("inference_geo", "mars"),
        ("cache_control", {"type": "ephemeral", "ttl": "24h"}),
        ("cache_control", {"type": "ephemeral", "ttl": ["1h"]}),
    ],
)
def test_what_has_another_price_is_not_passed_on(field: str, value: object) -> None:
    assert refused({field: value}).endswith("is not passed on: its prices are not known")


@pytest.mark.parametrize(
    "changes",
    [
        {"service_tier": "standard_only", "speed": "standard", "inference_geo": "us"},
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"system": "text"},
        {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "5m", "scope": "x"}}]},
        {"tool_choice": {"type": "auto"}, "metadata": {"user_id": "x"}, "stop_sequences": ["x"], "stream": True},
        {"temperature": 1, "top_k": 5, "top_p": 0.9, "output_config": {"effort": "medium", "format": {"type": "url"}}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]}},
        {"messages": [{"role": "system", "content": [], "output_config": {"effort": "low"}, "clear_at": "next"}]},
    ],
)
def test_what_is_known_is_passed_on_as_it_is(changes: Mapping[str, object]) -> None:
    assert msgspec.json.decode(taken(changes).body) == {**ASKED, **changes}
    assert beside(changes) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": {"role": "user"}},
        {"messages": "text"},
        {"messages": ["text"]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "user", "content": {"type": "image"}}]},
        {"messages": [{"role": "user", "content": ["text"]}]},
        {"messages": [{"content": "text"}]},
        {"messages": [{"role": ["user"], "content": "text"}]},
        {"system": {"type": "document"}},
        {"tools": {"type": SEARCH["type"]}},
        {"tools": [SEARCH["type"]]},
        {"context_management": [{"edits": []}]},
        {"context_management": {"edits": {"type": "compact_20260112"}}},
        {"context_management": {"edits": [{"type": "compact_20260112"}]}},
        {"cache_control": "1h"},
    ],
)
def test_what_has_another_shape_is_refused(changes: Mapping[str, object]) -> None:
    assert refused(changes)


# --- content ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["document", "image"])
@pytest.mark.parametrize(
    "source",
    [
        {"type": "url", "url": "https://example.org/1000-pages.pdf"},
        {"type": "file", "file_id": "file_1"},
        {"type": ["base64"]},
        {},
        None,
        "base64",
    ],
)
def test_what_the_api_would_fetch_is_not_passed_on(kind: str, source: Mapping[str, object]) -> None:
    inside = {"type": "tool_result", "tool_use_id": "x", "content": [of(source, kind)]}
    around = of({"type": "content", "content": [of(source, kind)]})
    for blocks in (of(source, kind), inside, around):
        assert refused(said(blocks)).startswith(f"the {kind} by ")
    assert refused({"system": [of(source, kind)]})


@pytest.mark.parametrize(
    "kind",
    ["container_upload", "mcp_tool_use", "compaction", "fallback", "code_execution_tool_result", None, 7, ["text"]],
)
def test_a_block_that_nobody_knows_is_not_passed_on(kind: object) -> None:
    assert refused(said({"type": kind, "file_id": "file_1"})).startswith("the block ")


def test_what_is_more_than_its_bytes_is_counted_as_more() -> None:
    image = of({"type": "base64", "media_type": "image/png", "data": "AAAA"}, "image")
    assert beside(said(image, image)) == 2 * IMAGE_TOKENS
    assert beside(said({"type": "tool_result", "content": [image]})) == IMAGE_TOKENS
    assert beside(said(of({"type": "content", "content": [image]}))) == IMAGE_TOKENS
    assert beside(said(of({"type": "text", "media_type": "text/plain", "data": "x"}))) == 0
    assert beside(said(of({"type": "base64", "media_type": "application/pdf", "data": "x"}))) >= ANY_NUMBER / 2
    assert beside({"tools": [{"type": "computer_20251124", "name": "computer"}]}) == TOOL_TOKENS


def test_a_tools_own_input_is_no_content() -> None:
    use = {"type": "tool_use", "id": "x", "name": "Bash", "input": {"type": "document", "source": {"type": "url"}}}
    assert beside(said(use)) == 0


def test_blocks_are_bounded_in_number_and_depth() -> None:
    text: dict[str, object] = {"type": "text", "text": "x"}
    assert refused(said(*[text] * MOST_BLOCKS)) == f"the request has more than {MOST_BLOCKS} messages and blocks"
    deep = text
    for _ in range(300):
        deep = of({"type": "content", "content": [deep]})
    assert refused(said(deep)) == "the request has blocks too deep within blocks"


# --- tools ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "web_fetch_20250910",
        "web_search_20260209",
        "code_execution_20250825",
        "advisor_20260301",
        "mcp_toolset",
        "tool_search_tool_regex_20251119",
        "bash",
        "bash_20250124x",
        "",
        7,
    ],
)
@pytest.mark.parametrize("searching", [True, False])
def test_a_tool_that_the_api_runs_is_not_passed_on(kind: object, *, searching: bool) -> None:
    tool = {"type": kind, "name": "x", "max_uses": 1}
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}}
    for changes in ({"tools": [tool]}, {"messages": [{"role": "system", "content": [added]}]}):
        assert refused(changes, searching=searching).startswith("the tool ")


def test_a_tool_of_the_session_is_passed_on() -> None:
    own = {"name": "Bash", "input_schema": {"type": "object", "properties": {"type": {"type": "web_fetch_20250910"}}}}
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": own}}
    named = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Bash"}}
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Bash"}}
    assert (
        beside({"tools": [own, {**own, "type": "custom", "defer_loading": True}], **said(added, named, removed)}) == 0
    )
    assert refused(said({"type": "tool_addition", "tool": {"type": "mcp_toolset_reference"}})).startswith("the added")


def test_a_search_is_for_tiers_that_have_the_tool_and_paid_for_beforehand() -> None:
    assert "the tier has no tool WebSearch" in refused({"tools": [SEARCH]})
    assert taken({"tools": [SEARCH]}, searching=True).searches == 8
    assert taken({"tools": [SEARCH, SEARCH]}, searching=True).searches == 16
    for uses in (None, 0, -1, True, 2.0, MOST_SEARCHES + 1):
        assert "max_uses" in refused({"tools": [{**SEARCH, "max_uses": uses}]}, searching=True)


def test_what_a_search_has_found_may_fill_the_window() -> None:
    found = {"type": "web_search_tool_result", "tool_use_id": "x", "content": [{"encrypted_content": "x"}]}
    assert beside(said(found), searching=True) >= ANY_NUMBER / 2
    assert refused(said(found))


# --- features ---------------------------------------------------------------------------------------------


def test_features_are_known_by_their_names_whatever_their_dates() -> None:
    assert unknown_betas("effort-2025-11-24, effort-2027-01-01,oauth-2025-04-20,,") == []
    assert unknown_betas("") == []
    of_cli = "claude-code-20250219,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"
    assert unknown_betas(of_cli) == []


@pytest.mark.parametrize(
    "feature",
    [
        "fast-mode-2026-02-01",
        "files-api-2025-04-14",
        "code-execution-2025-08-25",
        "mcp-client-2025-11-20",
        "message-threads-2026-08-12",
        "server-side-fallback-2026-06-01",
        "output-128k-2025-02-19",
        "effort",
        "effort-2025-11-24-and-more",
    ],
)
def test_a_feature_that_nobody_knows_is_named(feature: str) -> None:
    expected = [] if feature == "effort" else [feature]
    assert unknown_betas(f"oauth-2025-04-20,{feature}") == expected


# --- whatever comes ---------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(("url", "base64", "text")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(("type", "source", "content", "role", "tool", "cache_control")), inner)
    ),
    max_leaves=20,
)


@given(field=st.sampled_from(("messages", "system", "tools", "thinking", "context_management", "speed")), value=VALUES)
def test_whatever_is_asked_is_answered(field: str, value: object) -> None:
    asked = read({field: value}, searching=True)
    if isinstance(asked, ModelRequest):
        assert msgspec.json.decode(asked.body) == {**ASKED, field: value}
        assert asked.prompt_tokens >= len(asked.body)
        assert 1 <= asked.output_tokens <= 64_000
    else:
        assert asked.message
