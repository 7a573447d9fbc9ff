"""Values in words for people: times, lengths of time, money, counts. Commands and pages share them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400  # seconds
_FAR: Final = 14 * _DAY  # seconds; what is further away is a date
_SMALL_USD: Final = 0.1


def relative(at: datetime, now: datetime) -> str:
    """Return a moment relative to now: ``12s ago``, ``in 3h``; what is weeks away by its date."""
    seconds = (now - at).total_seconds()
    if abs(seconds) > _FAR:
        return f"{at.astimezone(UTC):%Y-%m-%d}"
    length = length_of(timedelta(seconds=abs(seconds)))
    return f"{length} ago" if seconds >= 0 else f"in {length}"


def length_of(time: timedelta | None) -> str:
    """Return a length of time in its two greatest units: ``45s``, ``3m 20s``, ``2h 5m``, ``4d 3h``."""
    if time is None:
        return "-"
    seconds = int(time.total_seconds())
    steps = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", 1, "s"))
    for size, unit, smaller, name in steps:
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}" + (f" {rest}{name}" if rest else "")
    return f"{seconds}s"


def usd(amount: float | None) -> str:
    """Return an amount of US dollars; small ones with four digits."""
    if amount is None:
        return "-"
    return f"${amount:.4f}" if 0 < abs(amount) < _SMALL_USD else f"${amount:,.2f}"


def count_of(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else many or one + 's'}"
