"""What the address of a list says: filters, and the place at which a page of it goes on.

A cursor is the key of the last entry, not a number of entries: what is added meanwhile moves nothing, and the last page
costs what the first one costs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final
from urllib.parse import urlencode

import msgspec

from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Listing, moment
from claudeops.domain.sessions import Outcome
from claudeops.web.problems import RefusedError

MOST: Final = 200
"""Entries of a page."""

_LARGEST: Final = 2**63 - 1

Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Text = Annotated[str, msgspec.Meta(max_length=300)]
Tier = Annotated[int, msgspec.Meta(ge=1, le=99)]
Moment = Annotated[str, msgspec.Meta(max_length=300, extra_json_schema={"format": "moment"})]
"""An age (2h, 7d) or a time of ISO 8601."""

Length = Annotated[str, msgspec.Meta(max_length=300, extra_json_schema={"format": "length-of-time"})]
"""A length of time (30m, 2h, 7d)."""

Cursor = Annotated[str, msgspec.Meta(max_length=300, extra_json_schema={"format": "cursor"})]


class Paged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list without filters."""

    limit: Limit = 50  # entries
    before: Cursor = ""  # the cursor at which the page before this one has ended; empty: the newest entries
    after: Cursor = ""  # the cursor of the newest entry that is known; empty: from the first one on


class Timed(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of what has happened."""

    since: Moment = ""
    until: Moment = ""


class OfService(Timed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of what concerns services."""

    service: Text = ""
    tier: Tier | None = None


class OfEvents(OfService, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of events."""

    level: EventLevel | None = None  # this one and worse
    open: bool = False  # only those that are not resolved


class OfSessions(OfService, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of sessions."""

    outcome: Outcome | None = None


class OfIncidents(Timed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of incidents."""

    service: Text = ""
    level: EventLevel | None = None  # this severity and worse
    all: bool = False  # those that are over too


class OfApprovals(Timed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of approvals."""

    all: bool = False  # those that were answered too


class OfAlerts(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of alerts."""

    service: Text = ""
    level: EventLevel | None = None  # this severity and worse
    all: bool = False  # those that fire no more too


class OfMemories(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of memories."""

    service: Text = ""
    all: bool = False  # those that are out of use too


class OfSilences(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages of silences."""

    all: bool = False  # those that are over too


class OfNotices(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list of notices."""

    target: Text = ""
    waiting: bool = False  # only those that are still to be sent


class OfAudit(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The links of the audit chains."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 20
    session: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


def listing(query: Paged, now: datetime) -> Listing:
    """Return what a list shows. Raises `RefusedError` for a moment or a cursor that is none."""
    given = msgspec.structs.asdict(query)
    return Listing(
        limit=query.limit,
        before=_key("before", query.before),
        after=_key("after", query.after),
        since=_moment("since", given.get("since", ""), now),
        until=_moment("until", given.get("until", ""), now),
        service=given.get("service") or None,
        level=given.get("level"),
        tier=given.get("tier"),
        outcome=given.get("outcome"),
    )


def cursor(key: int | None) -> str | None:
    """Return the cursor of an entry's key; None for the end of a list."""
    if key is None:
        return None
    return base64.urlsafe_b64encode(str(key).encode()).rstrip(b"=").decode()


def older(path: str, query: Mapping[str, str], key: int | None) -> str | None:
    """Return the address of the page after this one; None: it is the last."""
    found, given = cursor(key), {name: value for name, value in query.items() if value}
    return None if found is None else f"{path}?{urlencode({**given, 'before': found})}"


def _key(name: str, text: str) -> int | None:
    if not text:
        return None
    try:
        decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        decoded = ""
    if not decoded.isdigit() or not 0 < int(decoded[:20]) <= _LARGEST or cursor(int(decoded)) != text:
        raise RefusedError(422, f"{name} is no cursor: take it from `next` or `newest` of a page of this list.")
    return int(decoded)


def _moment(name: str, text: str, now: datetime) -> datetime | None:
    if not text:
        return None
    try:
        return moment(text, now)
    except ValueError as error:
        raise RefusedError(422, f"{name}: {error}") from None
