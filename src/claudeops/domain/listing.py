"""What a list shows: its filters, its pages, and how people write a moment.

Lists show the newest first. A page is continued by the id of its last entry, so rows that are added meanwhile move
nothing: no entry is shown twice, and none is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec

from claudeops.domain.events import EventLevel
from claudeops.domain.sessions import Outcome

T = TypeVar("T")

DEFAULT_LIMIT: Final = 50
"""Entries of a page."""

MOST: Final = 1000
"""The most entries that a page may have."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}  # seconds
_LEAST_PREFIX: Final = 4  # characters of a CLI's session id; fewer are a number or a slip
_LARGEST_ID: Final = 2**31 - 1
_UUID_CHARACTERS: Final = frozenset("0123456789abcdef-")


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries a list shows. A filter that a list has no column for is not asked of it; `None` filters nothing."""

    since: datetime | None = None  # UTC; entries of this moment and later
    until: datetime | None = None  # UTC; entries before this moment
    service: str | None = None  # any spelling of its name
    level: EventLevel | None = None  # this one and worse
    tier: int | None = None
    outcome: Outcome | None = None
    limit: int = DEFAULT_LIMIT
    before: int | None = None  # the id that ended the page before this one
    after: int | None = None  # the newest id that is known; without ``before`` a page has the oldest of what came later


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list, newest first."""

    items: tuple[T, ...]
    before: int | None = None  # `Listing.before` of the page that follows; None: this is the last one
    newest: int | None = None  # `Listing.after` for what comes later; None: nothing has come yet


def levels_from(level: EventLevel) -> tuple[EventLevel, ...]:
    """Return a level and those that are worse."""
    levels = tuple(EventLevel)
    return levels[levels.index(level) :]


# --- moments ----------------------------------------------------------------------------------------------


def moment(text: str, now: datetime) -> datetime:
    """Return the moment that ``text`` means: an age (``2h``, ``1h30m``, ``7d``) or a date or time of ISO 8601.

    A time without an offset is UTC. Raises `ValueError` with the sentence that says what may be written.
    """
    wanted = text.strip()
    try:
        age = _age(wanted)
        if age is not None:
            return now - age
        at = datetime.fromisoformat(wanted)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is no moment: write an age (30m, 2h, 7d) or a time (2026-07-01, 2026-07-01T14:30Z)."
        raise ValueError(message) from None


def duration(text: str) -> timedelta:
    """Return the time that ``text`` means (``90s``, ``2h``, ``1h30m``); raises `ValueError`."""
    found = _age(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no length of time: write 90s, 30m, 2h or 7d.")
    return found


def _age(text: str) -> timedelta | None:
    """Return an age; ``None`` for a text that is none."""
    seconds, digits = 0.0, ""
    for character in text.lower():
        if character.isascii() and (character.isdigit() or character == "."):
            digits += character
        elif character in _UNITS and digits:
            seconds += float(digits) * _UNITS[character]
            digits = ""
        else:
            return None
    return None if digits or not text else timedelta(seconds=seconds)


# --- ids that people write --------------------------------------------------------------------------------


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """How a person names a session: by its id, or by the beginning of the id that its CLI gave it."""

    number: int | None
    prefix: str | None  # lower case, at least four characters


def reference(text: str) -> Reference:
    """Return whom ``text`` names: ``12``, ``#12``, ``s12``, or four or more characters of the CLI's session id.

    Raises `ValueError` with the sentence that says what may be written.
    """
    wanted = text.strip().lower()
    digits = wanted.removeprefix("#").removeprefix("s")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(_LARGEST_ID))
    number = int(digits) if is_number and 0 < int(digits) <= _LARGEST_ID else None
    uuid = set(wanted) <= _UUID_CHARACTERS and len(wanted) >= _LEAST_PREFIX
    if number is None and not uuid:
        message = f"{text!r} is no session's id: write its number, or four or more characters of its CLI's id."
        raise ValueError(message)
    return Reference(number=number, prefix=wanted if uuid else None)
