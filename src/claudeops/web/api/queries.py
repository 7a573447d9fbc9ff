"""What the addresses of the API may say, besides those of the lists that are pages too."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from claudeops.domain.listing import moment
from claudeops.web.listings import Limit, Moment, Text
from claudeops.web.problems import RefusedError

LONGEST = timedelta(days=400)
"""The longest time that is added up."""

WEEK = timedelta(days=7)
"""How far sums look back unless the address says it, as the commands do."""


class OfCooldowns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of limits."""

    service: Text = ""


class OfFigures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sums over a time."""

    since: Moment = ""


class OfSums(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was spent over a time."""

    since: Moment = ""
    by: Literal["day", "tier", "model", "service", "verdict", "chain"] | None = (
        None  # this sum alone; the others are empty
    )
    limit: Limit = 20  # services and chains


def since_of(text: str, now: datetime) -> datetime:
    """Return the moment from which sums count. Raises `RefusedError` for what is none, or too long ago."""
    try:
        since = moment(text, now) if text else now - WEEK
    except ValueError as error:
        raise RefusedError(422, f"since: {error}") from None
    if now - since > LONGEST:
        raise RefusedError(422, f"since: at most {LONGEST.days} days are added up.")
    return since
