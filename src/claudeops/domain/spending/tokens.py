"""What a model call used, as the Messages API counts it.

Imports nothing of ours, because `claudeops.domain.sessions` needs it.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one call used, as the API counts it."""

    input_tokens: int = 0  # of the prompt, neither read from a cache nor written to one
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0  # all that were written to a cache
    cache_write_1h_tokens: int = 0  # those of them that are kept for an hour, at a higher price
    web_searches: int = 0  # by the API's own tool
    fast: bool = False  # served in fast mode, which has prices of its own
    us_only: bool = False  # served in the United States only, on request, at a higher price

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one message used, according to the stream."""

    model: str
    usage: TokenUsage


class CallState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a model call at some moment: while it is open, or when it is over."""

    id: int  # of its row
    http_status: int | None = None  # None: no answer came
    usage: TokenUsage | None = None  # None: not reported
    cost_usd: float | None = None  # None: not known
    charged_usd: float  # what budgets count for it: never unknown
    error: str | None = None  # the API's name for its error, or what cut the call off
    ended_at: datetime | None = None
