"""Reading untrusted JSON values: each function takes anything and returns a value of its type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT64: Final = 2**63  # what a database column holds


def as_text(value: object) -> str | None:
    """Return ``value`` if it is a string that is not empty."""
    return value if isinstance(value, str) and value else None


def as_object(value: object) -> Mapping[str, object]:
    """Return ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return ``value`` if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_texts(value: object) -> tuple[str, ...]:
    """Return the strings of a JSON array, in order."""
    return tuple(item for item in as_list(value) if isinstance(item, str))


def as_int(value: object) -> int | None:
    """Return a whole number that a database column holds; a boolean is none, a fraction is cut."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_INT64 <= value < _INT64 else None


def as_money(value: object) -> float | None:
    """Return an amount: a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None


def as_count(value: object) -> int:
    """Return a token count the way clauditor reads it: ``int(x or 0)``, and 0 for what has no integer.

    ``"12"`` is 12, ``1.9`` is 1, ``null``, words, containers and infinities are 0, and so is what no database
    column holds.
    """
    if not value or not isinstance(value, str | int | float):
        return 0
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return 0
    return number if -_INT64 <= number < _INT64 else 0
