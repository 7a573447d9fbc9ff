"""Column types that accept any value.

A write must not fail over what a model or a CLI wrote. PostgreSQL takes no NUL in a text, neither database takes half a
surrogate pair, indexed texts have a maximum length and integers a maximum value. Values are repaired on their way in,
in the same way for both databases.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import BigInteger, DateTime, Numeric, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from claudeops.domain.spending.prices import known_usd
from claudeops.text import NAME_LENGTH, clean, clip

_LARGEST_COUNT: Final = 2**63 - 1


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC in Python; ``timestamptz`` in PostgreSQL, ISO text without an offset in SQLite (it sorts)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a naive time, which would be somebody's local time."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone; the database takes UTC only")
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Restore the zone that SQLite did not store."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class CleanText(TypeDecorator[str]):
    """Text of any length and origin."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Replace what a database refuses."""
        return None if value is None else clean(value)


class Name(TypeDecorator[str]):
    """A short text that an index may hold; longer ones are cut, in conditions too."""

    impl = String(NAME_LENGTH)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Cut and clean."""
        return None if value is None else clip(value)


class Count(TypeDecorator[int]):
    """An integer from outside, kept within 64 bits."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Keep the value in range."""
        return None if value is None else max(-_LARGEST_COUNT, min(_LARGEST_COUNT, value))


class Usd(TypeDecorator[float]):
    """US dollars: decimal in the database, ``float`` in Python, null for anything that is not an amount."""

    impl = Numeric(20, 10, asdecimal=False)
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Store an infinite or undefined amount as unknown."""
        return known_usd(value)


class UsdSum(TypeDecorator[float]):
    """US dollars added up by the database: as `Usd`, with room for more of the largest amounts than there can be."""

    impl = Numeric(30, 10, asdecimal=False)
    cache_ok = True
