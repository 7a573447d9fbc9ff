"""Events on record, those that no session has raised included."""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import Connection, and_, func, or_, select

from claudeops.domain.listing import Listing, Page, levels_from
from claudeops.domain.model import Level
from claudeops.store.reading import named, page, within
from claudeops.store.rows import TableRow
from claudeops.store.tables import events, sessions


class EventEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event, as a list shows it."""

    event_id: int
    level: Level
    service: str | None
    message: str
    first_seen: datetime
    last_seen: datetime
    count: int
    resolved_at: datetime | None  # None: it is open
    session_id: int | None  # that raised it; None: the daemon itself
    last_session_id: int | None  # that raised it last


def listed(connection: Connection, wanted: Listing, *, only_open: bool = False) -> Page[EventEntry]:
    """Return events, newest first; one counts for the time asked for if it was seen last then."""
    # A row has a method `count`, hence the other name.
    query = within(select(events, events.c.count.label("times")), events.c.last_seen, wanted)
    if wanted.service is not None:
        query = query.where(events.c.service.in_(named(connection, events.c.service, wanted.service)))
    if wanted.level is not None:
        query = query.where(events.c.level.in_(levels_from(wanted.level)))
    if only_open:
        query = query.where(events.c.resolved_at.is_(None))
    if wanted.tier is not None or wanted.outcome is not None:
        raised = or_(sessions.c.id == events.c.session_id, sessions.c.id == events.c.last_session_id)
        asked = [] if wanted.tier is None else [sessions.c.tier == wanted.tier]
        asked += [] if wanted.outcome is None else [sessions.c.outcome == wanted.outcome.value]
        query = query.where(select(sessions.c.id).where(and_(raised, *asked)).exists())
    return page(connection, query, events.c.id, wanted, _entry)


def open_by_level(connection: Connection) -> dict[Level, int]:
    """Return how many events are open, by their level."""
    query = select(events.c.level, func.count()).where(events.c.resolved_at.is_(None)).group_by(events.c.level)
    found = {Level(level): count for level, count in connection.execute(query)}
    return {level: found.get(level, 0) for level in Level}


def _entry(row: TableRow) -> EventEntry:
    return EventEntry(
        event_id=row.id,
        level=Level(row.level),
        service=row.service,
        message=row.message,
        first_seen=row.first_seen,
        last_seen=row.last_seen,
        count=row.times,
        resolved_at=row.resolved_at,
        session_id=row.session_id,
        last_session_id=row.last_session_id,
    )
