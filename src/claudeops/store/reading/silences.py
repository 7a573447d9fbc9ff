"""Silences: which alerts are held back, by whom and how long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.alerts.alert import Silence, matchable
from claudeops.domain.alerts.matchers import all_hold
from claudeops.domain.listing import Listing, Page
from claudeops.store.alerts.rows import to_silence, to_state
from claudeops.store.reading import page
from claudeops.store.reading.alerts import AlertEntry, alert_entry, silenced_alerts
from claudeops.store.tables.alerting import alerts, silences


class SilenceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A silence, as a list shows it."""

    id: int  # 0: a preview, which is not kept
    matchers: tuple[str, ...]  # as they are written; all must hold
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str
    suppressed_count: int  # alerts that it has held back
    ended_by: str | None  # who has ended it before its time


class SilenceStory(SilenceEntry, frozen=True, kw_only=True):
    """A silence, and what it holds back now."""

    holds: tuple[AlertEntry, ...]  # alerts that fire, at most `MOST_HELD`, the latest first


MOST_HELD: Final = 200
"""Alerts with which a silence is shown, of so many that are silenced at all."""


def listed(connection: Connection, now: datetime, *, everything: bool) -> Sequence[SilenceEntry]:
    """Return the silences that are not over, or all of them, the one that ends first at the top."""
    query = select(silences).order_by(silences.c.ends_at, silences.c.id)
    if not everything:
        query = query.where(silences.c.ends_at > now)
    return tuple(to_entry(to_silence(row)) for row in connection.execute(query))


def newest(connection: Connection, wanted: Listing, *, now: datetime, everything: bool) -> Page[SilenceEntry]:
    """Return a page of the silences that are not over, or of all, the one that was made last at the top."""
    query = select(silences)
    if not everything:
        query = query.where(silences.c.ends_at > now)
    return page(connection, query, silences.c.id, wanted, lambda row: to_entry(to_silence(row)))


def story(connection: Connection, silence_id: int, *, now: datetime) -> SilenceStory | None:
    """Return a silence with what it holds back; None: there is none of this number."""
    row = connection.execute(select(silences).where(silences.c.id == silence_id)).one_or_none()
    if row is None:
        return None
    found = to_silence(row)
    silenced = (
        silenced_alerts().order_by(alerts.c.id.desc()).limit(MOST_HELD)
        if found.starts_at <= now < found.ends_at
        else None
    )
    rows = () if silenced is None else connection.execute(silenced)
    holds = tuple(
        alert_entry(one) for one in rows if all_hold(found.matchers, matchable(to_state(one), str(one.source)))
    )
    entry = to_entry(found)
    return SilenceStory(**{name: getattr(entry, name) for name in entry.__struct_fields__}, holds=holds)


def to_entry(silence: Silence) -> SilenceEntry:
    """Return a silence as an entry."""
    return SilenceEntry(
        id=silence.id,
        matchers=tuple(map(str, silence.matchers)),
        starts_at=silence.starts_at,
        ends_at=silence.ends_at,
        created_by=silence.created_by,
        comment=silence.comment,
        suppressed_count=silence.suppressed_count,
        ended_by=silence.ended_by or None,
    )
