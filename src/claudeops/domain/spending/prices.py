"""What models cost and how much they take: a dated table, and the arithmetic over it. US dollars; list prices.

The numbers are those that CLI 2.1.329 carries itself, which are the list prices of
https://docs.anthropic.com/en/docs/about-claude/pricing on `AS_OF`; that page adds the long prompts of Sonnet 4 and
4.5. Discounts are not included. A model that is not in the table has no price: its cost is unknown, never 0. Fast mode
is not in the table either, so a call that was served in it has an unknown cost too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.spending.tokens import TokenUsage
from claudeops.structs import replace
from claudeops.text import regex

_LARGEST_USD: Final = 1e9  # fits NUMERIC(20, 10), and is more than anybody pays

AS_OF: Final = date(2026, 11, 21)
"""The day on which the table was right."""

WEB_SEARCH_USD: Final = 0.01
"""The price of one search by the API's own tool, for every model."""

US_ONLY_FACTOR: Final = 1.1
"""How many times as much a call costs that is served in the United States only, on request."""

_MILLION: Final = 1_000_000
_SHORT_WINDOW: Final = 200_000
_LONG_WINDOW: Final = 1_000_000

_FAMILIES: Final = ("haiku", "sonnet", "opus", "fable", "mythos")
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{family: (family,) for family in _FAMILIES},
        "opusplan": ("opus", "sonnet"),
        "best": _FAMILIES,
        "default": _FAMILIES,  # which one depends on the account
    }
)
_VARIANT: Final = regex.Pattern(r"\[\w+\]$")  # ``[1m]``: a longer context window of the same model
_DATE: Final = regex.Pattern(r"[-@](?:\d{8}|latest)$")
_OLD_ZERO: Final = regex.Pattern(r"^(claude-(?:opus|sonnet)-4)-0$")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per million tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write: float  # kept for five minutes
    cache_write_1h: float

    def of(self, usage: TokenUsage) -> float:
        """Return what the tokens cost."""
        short = max(0, usage.cache_write_tokens - usage.cache_write_1h_tokens)
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + short * self.cache_write
            + min(usage.cache_write_1h_tokens, usage.cache_write_tokens) * self.cache_write_1h
        ) / _MILLION


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a model and its limits; some models charge more for a whole call when its prompt is long."""

    rates: Rates
    window: int  # tokens that a prompt can have; the API refuses a longer one
    most_output: int  # tokens that may be requested
    long: Rates | None = None
    long_above: int = 0  # tokens of the prompt

    def cost(self, usage: TokenUsage) -> float | None:
        """Return what a call cost; ``None`` where the table does not say."""
        return None if usage.fast else self.charge(usage)

    def charge(self, usage: TokenUsage) -> float:
        """Return what a call costs at these rates, searches included, however it was served."""
        tokens = self._rates_for(usage.prompt_tokens).of(usage) * (US_ONLY_FACTOR if usage.us_only else 1)
        return tokens + usage.web_searches * WEB_SEARCH_USD

    def worst(self, *, prompt_tokens: int, output_tokens: int, searches: int = 0) -> float:
        """Return the most that a call can cost: the dearest prompt token is one that is cached for an hour.

        The model reads the results of a search together with everything before them, so each search adds one more
        prompt, of which only one thing is known: it fits into the window.
        """
        prompt = min(prompt_tokens, self.window) if not searches else self.window
        rates = self._rates_for(prompt)
        tokens = prompt * (searches + 1) * rates.cache_write_1h + output_tokens * rates.output
        return tokens * US_ONLY_FACTOR / _MILLION + searches * WEB_SEARCH_USD

    def _rates_for(self, prompt_tokens: int) -> Rates:
        return self.long if self.long is not None and prompt_tokens > self.long_above else self.rates


def _rates(base: float, out: float, cache_read: float) -> Rates:
    # Writing to a cache costs 1.25 times the input for five minutes and twice as much for an hour, whatever the model.
    return Rates(input=base, output=out, cache_read=cache_read, cache_write=base * 1.25, cache_write_1h=base * 2)


def _price(
    base: float,
    out: float,
    cache_read: float,
    *,
    window: int = _LONG_WINDOW,
    most: int = 128_000,
    long: Rates | None = None,
    above: int = 0,
) -> Price:
    rates = _rates(base, out, cache_read)
    return Price(rates=rates, window=window, most_output=most, long=long, long_above=above)


_SONNET_4: Final = _price(3, 15, 0.3, most=64_000, long=_rates(6, 22.5, 0.6), above=200_000)

PRICES: Final[Mapping[str, Price]] = MappingProxyType(
    {
        "claude-3-5-haiku": _price(0.8, 4, 0.08, window=_SHORT_WINDOW, most=8_192),
        "claude-haiku-4-5": _price(1, 5, 0.1, window=_SHORT_WINDOW, most=64_000),
        "claude-haiku-5-5": _price(0.1, 0.5, 0.01, long=_rates(0.5, 2.5, 0.05), above=100_000),
        "claude-3-5-sonnet": _price(3, 15, 0.3, window=_SHORT_WINDOW, most=8_192),
        "claude-3-7-sonnet": _price(3, 15, 0.3, window=_SHORT_WINDOW, most=64_000),
        "claude-sonnet-4": _SONNET_4,
        "claude-sonnet-4-5": _SONNET_4,
        "claude-sonnet-4-6": _price(3, 15, 0.3),
        "claude-sonnet-5": _price(2, 10, 0.2),
        "claude-sonnet-5-5": _price(2, 10, 0.1),
        "claude-opus-4": _price(15, 75, 1.5, window=_SHORT_WINDOW, most=32_000),
        "claude-opus-4-1": _price(15, 75, 1.5, window=_SHORT_WINDOW, most=32_000),
        "claude-opus-4-5": _price(5, 25, 0.5, window=_SHORT_WINDOW, most=64_000),
        "claude-opus-4-6": _price(5, 25, 0.5),
        "claude-opus-4-7": _price(5, 25, 0.5),
        "claude-opus-4-8": _price(5, 25, 0.5),
        "claude-opus-5": _price(5, 25, 0.5),
        "claude-opus-5-5": _price(4, 20, 0.2),
        "claude-fable-5": _price(10, 50, 1),
        "claude-fable-5-1": _price(10, 50, 0.25),
        "claude-fable-5-2": _price(8, 40, 0.2),
        "claude-mythos-5": _price(10, 50, 1),
        "claude-mythos-5-1": _price(10, 50, 0.25),
        "claude-mythos-5-2": _price(8, 40, 0.2),
    }
)
"""Prices by model name without a date, oldest first within a family."""

DEAREST: Final = replace(
    max(PRICES.values(), key=lambda price: price.rates.output), window=_LONG_WINDOW, most_output=128_000
)
"""What a model without a price counts as in budgets; its cost stays unknown. Its limits are unknown as well."""


def canonical(model: str) -> str:
    """Return a model's name as in the table: without date and variant, in one spelling."""
    name = _DATE.sub("", _VARIANT.sub("", model.strip().lower()))
    return _OLD_ZERO.sub(lambda old: old[1], name)


def price_of(model: str) -> Price | None:
    """Return the price of a model; ``None`` when the table does not know it."""
    return PRICES.get(canonical(model))


def is_model_of(requested: str, configured: str) -> bool:
    """Tell whether a requested model is the configured one; an alias stands for its whole family."""
    families = _ALIASES.get(canonical(configured))
    if families is None:
        return canonical(requested) == canonical(configured)
    return any(family in canonical(requested).split("-") for family in families)


def is_alias(configured: str) -> bool:
    """Tell whether a configured name leaves the choice of the model to the CLI."""
    return canonical(configured) in _ALIASES


def concrete(configured: str) -> str | None:
    """Return a model's full name, the newest one of an alias; ``None`` for an alias of several families."""
    families = _ALIASES.get(canonical(configured))
    if families is None:
        return configured
    if len(families) > 1:
        return None
    return [name for name in PRICES if families[0] in name.split("-")][-1]


def known_usd(amount: float | None) -> float | None:
    """Return a usable amount; ``None`` for one that is not finite or does not fit a column."""
    return amount if amount is not None and math.isfinite(amount) and abs(amount) < _LARGEST_USD else None
