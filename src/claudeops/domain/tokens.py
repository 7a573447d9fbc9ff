"""Tokens as the Messages API counts them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenUsage:
    """What one call used, as the API counts it."""

    input_tokens: int = 0  # of the prompt, those that no cache had or took
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0  # all that were written to a cache
    cache_write_1h_tokens: int = 0  # those of them that are kept for an hour, at a higher price
    web_searches: int = 0  # by the API's own tool
    fast: bool = False  # served in fast mode, which has prices of its own
    us_only: bool = False  # served in the United States only, on request, at a higher price

    @property
    def prompt_tokens(self) -> int:
        """Everything that was read, from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens
