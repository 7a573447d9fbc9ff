"""Events are conditions: raised once, counted while they last, resolved when they are over.

What people are told is written here too, in the transaction that decides it: an event that is opened, and notices of
other decisions. Which targets want it is not known here.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, and_, bindparam, func, insert, or_, select, update

from claudeops.domain.chains.consequences import fingerprinted, raised
from claudeops.domain.chains.escalation import fingerprint
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.notice import PLAIN, UNROUTED, Announcement, Notice, encoded
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import DecisionReason, Session
from claudeops.errors import StoreError
from claudeops.store.database import note_raised
from claudeops.store.tables.events import events
from claudeops.store.tables.outbox import outbox
from claudeops.store.tables.sessions import service_checks, sessions
from claudeops.wording.notices.texts import of_event

EACH_BY_ITS_OWN: Final = KnownServices({})
"""No service has another name; case does not count."""

UNTOLD: Final = timedelta(seconds=30)
"""For which a probe's failure waits for its incident: longer than changes of probes are collected."""

# Built once: every end of a session runs these.
_ADD: Final = insert(events)
_TELL: Final = insert(outbox)
_UNROUTED: Final = select(outbox.c.id).where(
    outbox.c.target == UNROUTED, outbox.c.dedupe_key == bindparam("key"), outbox.c.delivered_at.is_(None)
)
_INCIDENT: Final = select(sessions.c.incident_id).where(sessions.c.id == bindparam("session"))
_COUNT_UP: Final = (
    update(events)
    .where(events.c.fingerprint == bindparam("condition"), events.c.resolved_at.is_(None))
    .values(count=events.c.count + 1)
)
_OF_HEALTHY = events.c.service.in_(bindparam("healthy", expanding=True))
_SEEN_BEFORE = (
    events.c.resolved_at.is_(None),
    events.c.last_session_id.is_distinct_from(bindparam("session")),
    events.c.last_seen <= bindparam("since"),
)
_OPEN_SERVICES: Final = (
    select(events.c.service).where(events.c.service.is_not(None), events.c.resolved_at.is_(None)).distinct()
)
_RESOLVE: Final = {
    False: update(events).where(_OF_HEALTHY, *_SEEN_BEFORE),
    True: update(events).where(
        or_(_OF_HEALTHY, and_(events.c.service.is_(None), events.c.session_id.is_not(None))), *_SEEN_BEFORE
    ),
}
"""By whether all services are healthy. What the daemon has found wrong with itself is not for a session to resolve."""


def raise_event(
    connection: Connection, event: NewEvent, *, session_id: int | None, at: datetime, about: Announcement = PLAIN
) -> None:
    """Count up the open event with the same fingerprint and give it the newest wording; or open one, and tell of it."""
    event = fingerprinted(event)
    note_raised(connection, raised(event, session_id=session_id, at=at))
    sight = {"last_seen": at, "last_session_id": session_id, "message": event.message}
    counted = connection.execute(_COUNT_UP, {"condition": event.fingerprint, **sight})
    if not counted.rowcount:
        _open_event(connection, event, session_id=session_id, at=at, about=about)


def tell(
    connection: Connection,
    notice: Notice,
    *,
    at: datetime,
    event_id: int | None = None,
    not_before: datetime | None = None,
) -> None:
    """Write a notice for whoever wants it; one that is written already, and not yet on its way, is not repeated."""
    if connection.execute(_UNROUTED, {"key": notice.key}).first() is None:
        row = {
            "event_id": event_id,
            "target": UNROUTED,
            "payload": encoded(notice),
            "created_at": at,
            "not_before": not_before,
            "attempts": 0,
            "topic": notice.topic.value,
            "dedupe_key": notice.key,
            "incident_id": notice.incident,
        }
        connection.execute(_TELL, row)


def note_deed(connection: Connection, what: str, *, at: datetime, incident: int | None = None) -> None:
    """Put on record what a person has done, as an event that is over at once; what he does to an incident tells itself.

    ``what`` says who has done it.
    """
    event = NewEvent(level=EventLevel.INFO, message=what, fingerprint=fingerprint("deed", what, at.isoformat()))
    raise_event(connection, event, session_id=None, at=at, about=Announcement(quiet=incident is not None))
    named = (events.c.fingerprint == event.fingerprint, events.c.resolved_at.is_(None))
    connection.execute(update(events).where(*named).values(resolved_at=at, incident_id=incident))


def raise_late_event(connection: Connection, event: NewEvent, *, session_id: int, at: datetime) -> None:
    """Raise an event that a session saw at ``at`` and that becomes known only now.

    The first event with the same fingerprint that was still open at that time is counted up; its wording and last sight
    stay if somebody has seen it since. If there is none, the event is opened, or written as resolved when a later
    session has found it to be over.
    """
    event = fingerprinted(event)
    note_raised(connection, raised(event, session_id=session_id, at=at))
    same = select(events.c.id, events.c.first_seen, events.c.last_seen).where(
        events.c.fingerprint == event.fingerprint, or_(events.c.resolved_at.is_(None), events.c.resolved_at >= at)
    )
    known = connection.execute(same.order_by(events.c.id).limit(1)).one_or_none()
    if known is None:
        over_at = _found_over(connection, event.service, besides=session_id, since=at)
        _open_event(connection, event, session_id=session_id, at=at, resolved_at=over_at)
        return
    sight: dict[str, object] = {"count": events.c.count + 1, "first_seen": min(known.first_seen, at)}
    if known.last_seen <= at:
        sight |= {"last_seen": at, "last_session_id": session_id, "message": event.message}
    connection.execute(update(events).where(events.c.id == known.id).values(sight))


def resolve_events(
    connection: Connection,
    session: Session,
    *,
    healthy: Collection[str],
    all_healthy: bool,
    at: datetime,
    names: KnownServices = EACH_BY_ITS_OWN,
) -> None:
    """Resolve what ``session`` found to be over, by whichever of its ``names`` an event calls a service.

    Call it after the session's own events were raised. An event that was seen again after the session had started, or
    by the session itself, stays open: the session looked before that.
    """
    if healthy or all_healthy:
        well = set(map(names.of, healthy))
        over = [name for name in connection.execute(_OPEN_SERVICES).scalars() if names.of(name) in well]
        seen = {"healthy": over, "session": session.id, "since": session.started_at}
        connection.execute(_RESOLVE[all_healthy], {**seen, "resolved_at": at})


def resolve_event(connection: Connection, name: str, *, at: datetime) -> bool:
    """Resolve an event that the daemon itself knows to be over; return whether it was open."""
    named = (events.c.fingerprint == name, events.c.resolved_at.is_(None))
    return connection.execute(update(events).where(*named).values(resolved_at=at)).rowcount > 0


def reopen_event(connection: Connection, name: str, *, since: datetime) -> None:
    """Open an event again that has ended since a moment, unless it is open; nobody is told of it anew."""
    latest = select(func.max(events.c.id)).where(events.c.fingerprint == name)
    is_open = select(events.c.id).where(events.c.fingerprint == name, events.c.resolved_at.is_(None))
    if connection.execute(is_open).first() is None:
        ended = latest.where(events.c.resolved_at > since).scalar_subquery()
        connection.execute(update(events).where(events.c.id == ended).values(resolved_at=None))


def _open_event(
    connection: Connection,
    event: NewEvent,
    *,
    session_id: int | None,
    at: datetime,
    resolved_at: datetime | None = None,
    about: Announcement = PLAIN,
) -> None:
    row: dict[str, object] = {
        "session_id": session_id,
        "last_session_id": session_id,
        "level": event.level.value,
        "service": event.service,
        "message": event.message,
        "fingerprint": event.fingerprint,
        "created_at": at,
        "first_seen": at,
        "last_seen": at,
        "count": 1,
        "resolved_at": resolved_at,
        "incident_id": None,
    }
    if session_id is not None:
        row["incident_id"] = connection.execute(_INCIDENT, {"session": session_id}).scalar()
    key = connection.execute(_ADD, row).inserted_primary_key
    if key is None:
        raise StoreError("the database gave a new event no id.")
    if resolved_at is None and not about.quiet:
        notice = of_event(event, event_id=key.id, session_id=session_id, about=about)
        tell(connection, notice, at=at, event_id=key.id, not_before=at + UNTOLD if about.probe else None)


def _found_over(connection: Connection, service: str | None, *, besides: int, since: datetime) -> datetime | None:
    """Return when a later session first found a service healthy; for no service: when one concluded `healthy`."""
    later = (sessions.c.started_at > since, sessions.c.id != besides)
    if service is None:
        query = select(func.min(sessions.c.ended_at)).where(
            *later, sessions.c.decision_reason == DecisionReason.HEALTHY.value
        )
    else:
        checks = service_checks.c
        query = (
            select(func.min(checks.checked_at))
            .join(sessions, sessions.c.id == checks.session_id)
            .where(*later, checks.service == service, checks.status == ServiceStatus.HEALTHY.value)
        )
    return connection.execute(query).scalar_one_or_none()
