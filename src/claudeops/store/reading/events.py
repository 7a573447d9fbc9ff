"""Events on record, those that no session has raised included."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import product
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Integer, and_, func, literal_column, or_, select, true, union

from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Listing, Page, levels_from
from claudeops.store.reading import QueryPart, earlier, first_id, last_id, later, named, page
from claudeops.store.rows import TableRow
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import sessions

_FEW: Final = 1000  # sessions
_ONE: Final = literal_column("1", Integer)  # SQLite knows by the text alone that it may ask an index of some rows


class EventEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event, as a list shows it."""

    event_id: int
    level: EventLevel
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
    query = select(events, events.c.count.label("times"))  # a row has a method `count`
    if wanted.tier is not None or wanted.outcome is not None:
        asked = [] if wanted.tier is None else [sessions.c.tier == wanted.tier]
        asked += [] if wanted.outcome is None else [sessions.c.outcome == wanted.outcome.value]
        query = query.where(_raised_by(connection, and_(*asked)))
    names = None if wanted.service is None else named(connection, events.c.service, wanted.service)
    either = _either(wanted, names)
    if only_open:  # of a condition, one event is open: there are few
        of_it: list[ColumnElement[bool]] = [] if names is None else [events.c.service.in_(names)]
        of_it += [] if wanted.level is None else [events.c.level.in_(levels_from(wanted.level))]
        of_it += [] if wanted.since is None else [events.c.last_seen >= wanted.since]
        of_it += [] if wanted.until is None else [events.c.last_seen < wanted.until]
        either = [QueryPart(and_(events.c.resolved_at.is_(None), *of_it), few=True)]
    return page(connection, query, events.c.id, wanted, _entry, either=either)


def _either(wanted: Listing, names: Sequence[str] | None) -> Sequence[QueryPart] | None:
    """Return the parts of what is asked for: a spelling of the service, a level, what was raised in the time.

    Events that are older than the time asked for and were seen again in it are a part of their own, with an index of
    their own: hardly any event is seen again, and their ids say nothing of when they were.
    """
    levels = None if names is None and wanted.level is None else levels_from(wanted.level or EventLevel.INFO)
    if names is None and levels is None and wanted.since is None and wanted.until is None:
        return None
    in_time, again = _times(wanted)
    kinds = product(
        [true()] if names is None else [events.c.service == name for name in names],
        [true()] if levels is None else [events.c.level == level.value for level in levels],
    )
    found = [QueryPart(and_(*kind, in_time)) for kind in kinds]
    if again is None or not found:
        return found
    # As expressions: an index of the column itself would lead to every event of the service or level.
    kinds_again = [] if names is None else [events.c.service.concat("").in_(names)]
    kinds_again += [] if levels is None else [events.c.level.concat("").in_([level.value for level in levels])]
    return [*found, QueryPart(and_(again, *kinds_again), few=True)]


def _times(wanted: Listing) -> tuple[ColumnElement[bool], ColumnElement[bool] | None]:
    """Return whether an event was raised in the time, and whether an older one was seen again in it."""
    seen, raised = events.c.last_seen, events.c.created_at
    until: Sequence[ColumnElement[bool]] = ()
    if wanted.until is not None:
        until = [seen < wanted.until, events.c.id <= last_id(raised, raised < later(wanted.until))]
    if wanted.since is None:
        return and_(true(), *until), None
    first = first_id(raised, raised >= earlier(wanted.since))
    since = and_(seen >= wanted.since, *until)
    return and_(since, events.c.id >= first), and_(
        since, events.c.count > _ONE, or_(first.is_(None), events.c.id < first)
    )


def _raised_by(connection: Connection, asked: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether a session of some kind has raised an event; few of them lead to it, of many each event to one."""
    some = select(sessions.c.id).where(asked)
    few = connection.execute(some.limit(_FEW + 1)).scalars().all()
    if len(few) <= _FEW:
        raised = [
            select(events.c.id).where(column.in_(few)) for column in (events.c.session_id, events.c.last_session_id)
        ]
        return events.c.id.in_(union(*raised))
    of_it = or_(sessions.c.id == events.c.session_id, sessions.c.id == events.c.last_session_id)
    return some.where(of_it).exists()


def open_by_level(connection: Connection) -> dict[EventLevel, int]:
    """Return how many events are open, by their level."""
    query = select(events.c.level, func.count()).where(events.c.resolved_at.is_(None)).group_by(events.c.level)
    found = {EventLevel(level): count for level, count in connection.execute(query)}
    return {level: found.get(level, 0) for level in EventLevel}


def _entry(row: TableRow) -> EventEntry:
    return EventEntry(
        event_id=row.id,
        level=EventLevel(row.level),
        service=row.service,
        message=row.message,
        first_seen=row.first_seen,
        last_seen=row.last_seen,
        count=row.times,
        resolved_at=row.resolved_at,
        session_id=row.session_id,
        last_session_id=row.last_session_id,
    )
