"""What the scripted API served beside what was booked: the two must be the same, whatever happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from claudeops.scripted_api.requests import Traffic


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Tokens of any number of calls, by kind."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @classmethod
    def served(cls, traffic: Traffic) -> Self:
        """Return what the scripted API says that it has served, side requests included."""
        usage = traffic.tokens()
        return cls(
            input=usage.input_tokens,
            output=usage.output_tokens,
            cache_read=usage.cache_read_input_tokens,
            cache_write=usage.cache_creation_input_tokens,
        )

    @classmethod
    def booked(cls, model_calls: Iterable[Mapping[str, object]]) -> Self:
        """Return the sum of rows of ``model_calls``."""
        rows = list(model_calls)

        def total(column: str) -> int:
            return sum(int(str(row[column] or 0)) for row in rows)

        return cls(
            input=total("input_tokens"),
            output=total("output_tokens"),
            cache_read=total("cache_read_tokens"),
            cache_write=total("cache_write_tokens"),
        )
