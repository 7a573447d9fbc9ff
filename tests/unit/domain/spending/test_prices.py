"""What models cost, and which names stand for which model."""

from __future__ import annotations

import re

import pytest

from claudeops.domain.spending import prices
from claudeops.domain.spending.prices import PRICES, Rates, canonical, concrete, is_model_of, price_of
from claudeops.domain.spending.tokens import TokenUsage
from claudeops.structs import replace
from support.checkout import ROOT

REFERENCE = ROOT / "docs" / "reference" / "prices.md"
MILLION = 1_000_000


def cost(model: str, **used: int | bool) -> float | None:
    price = price_of(model)
    assert price is not None
    return price.cost(TokenUsage(**used))  # type: ignore[arg-type]


def test_every_kind_of_token_has_its_rate() -> None:
    assert cost("claude-opus-4-5", input_tokens=MILLION) == 5
    assert cost("claude-opus-4-5", output_tokens=MILLION) == 25
    assert cost("claude-opus-4-5", cache_read_tokens=MILLION) == 0.5
    assert cost("claude-opus-4-5", cache_write_tokens=MILLION) == 6.25
    assert cost("claude-opus-4-5", cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION) == 10
    assert cost("claude-opus-4-5", cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION // 2) == 8.125
    assert cost("claude-opus-4-5", web_searches=3) == pytest.approx(0.03)
    assert cost("claude-opus-4-5", input_tokens=MILLION, us_only=True) == pytest.approx(5.5)


def test_long_prompt_costs_more_as_a_whole() -> None:
    assert cost("claude-haiku-5-5", input_tokens=100_000) == pytest.approx(0.01)
    assert cost("claude-haiku-5-5", input_tokens=1, cache_read_tokens=100_000) == pytest.approx(0.0050005)


def test_unknown_is_none_and_never_nothing() -> None:
    assert price_of("claude-opus-9") is None
    assert price_of("") is None
    assert cost("claude-opus-5", output_tokens=1, fast=True) is None


@pytest.mark.parametrize("model", PRICES)
def test_no_call_costs_more_than_its_worst(model: str) -> None:
    # The API gives no more output than was asked for, and reads its whole window once more for each search.
    price = PRICES[model]
    for tokens in (50_000, 200_000, price.window):
        dearest = TokenUsage(
            cache_write_tokens=tokens, cache_write_1h_tokens=tokens, output_tokens=price.most_output, us_only=True
        )
        worst = price.worst(prompt_tokens=tokens, output_tokens=price.most_output)
        assert (price.cost(dearest) or 0) <= worst + 1e-9
        searched = replace(dearest, cache_write_tokens=4 * tokens, cache_write_1h_tokens=4 * tokens, web_searches=3)
        worst = price.worst(prompt_tokens=tokens, output_tokens=price.most_output, searches=3)
        assert (price.cost(searched) or 0) <= worst + 1e-9
    assert prices.DEAREST.rates.output >= price.rates.output
    assert prices.DEAREST.window >= price.window


def test_a_prompt_counts_with_no_more_than_the_window_takes() -> None:
    price = PRICES["claude-haiku-4-5"]
    window = price.worst(prompt_tokens=price.window, output_tokens=1)
    assert price.worst(prompt_tokens=30_000_000, output_tokens=1) == window


def test_a_short_prompt_is_not_counted_as_a_long_one() -> None:
    short = PRICES["claude-haiku-5-5"].worst(prompt_tokens=100_000, output_tokens=1_000_000)
    assert short == pytest.approx((0.1 * 2 * 0.1 + 0.5) * 1.1)


def test_long_prompts_of_sonnet_4_cost_twice_as_much() -> None:
    assert cost("claude-sonnet-4-5-20250929", input_tokens=200_000) == pytest.approx(0.6)
    assert cost("claude-sonnet-4-5[1m]", input_tokens=300_000, output_tokens=MILLION) == pytest.approx(1.8 + 22.5)


def test_what_was_searched_is_charged_also_where_the_rest_has_no_price() -> None:
    assert prices.DEAREST.charge(TokenUsage(web_searches=100, fast=True)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-opus-4-0", "claude-opus-4"),
        ("claude-sonnet-5-5[1m]", "claude-sonnet-5-5"),
        ("Claude-Opus-5@20260101", "claude-opus-5"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("somebody-elses-model", "somebody-elses-model"),
    ],
)
def test_dates_and_variants_are_no_part_of_a_name(name: str, known_as: str) -> None:
    assert canonical(name) == known_as


@pytest.mark.parametrize(
    ("requested", "configured", "served"),
    [
        ("claude-haiku-5-5", "haiku", True),
        ("claude-haiku-4-5-20251001", "haiku", True),
        ("claude-3-5-haiku-20241022", "haiku", True),
        ("claude-opus-5-5", "haiku", False),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5", True),
        ("claude-haiku-5-5", "claude-haiku-4-5", False),
        ("claude-opus-5-5", "opus[1m]", True),
        ("claude-sonnet-5-5", "opusplan", True),
        ("claude-haiku-5-5", "opusplan", False),
        ("gateway/model", "gateway/model", True),
        ("gateway/other", "gateway/model", False),
        ("not-a-haikuish-thing", "haiku", False),
        ("", "haiku", False),
    ],
)
def test_session_is_served_its_own_model_only(requested: str, configured: str, *, served: bool) -> None:
    assert is_model_of(requested, configured) is served


def test_alias_stands_for_its_newest_model() -> None:
    assert concrete("sonnet") == "claude-sonnet-5-5"
    assert concrete("claude-opus-4-1") == "claude-opus-4-1"
    assert concrete("best") is None


def test_reference_has_the_same_table_and_the_same_day() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(claude[^`]*)`([^|]*)\|(.*)\|$", text, flags=re.MULTILINE)
    told = [(name, above.strip(), [float(cell) for cell in cells.split("|")]) for name, above, cells in rows]
    expected: list[tuple[str, str, list[float]]] = []
    for name, price in PRICES.items():
        expected.append((name, "", _cells(price.rates)))
        if price.long is not None:
            expected.append((name, f"above {price.long_above} tokens of prompt", _cells(price.long)))
    assert told == expected
    assert f"as of {prices.AS_OF.isoformat()}" in text


def _cells(rates: Rates) -> list[float]:
    cells = (rates.input, rates.output, rates.cache_read, rates.cache_write, rates.cache_write_1h)
    return [pytest.approx(cell) for cell in cells]  # type: ignore[misc]


def test_what_the_reference_computes_of_a_day_follows_from_the_table() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| `([\w-]+)` \| (\d+) \| (\d+) \| (\d+) \| \$([\d.]+) \|$",
        REFERENCE.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )

    assert len(rows) == 2
    for model, written, read, output, said in rows:
        part = 100  # no call has all of it: a long prompt is dearer
        each = cost(
            model,
            cache_write_tokens=int(written) // part,
            cache_read_tokens=int(read) // part,
            output_tokens=int(output) // part,
        )
        assert each is not None
        assert part * each == pytest.approx(float(said), abs=0.006)
