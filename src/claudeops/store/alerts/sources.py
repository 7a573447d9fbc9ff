"""Who sends: what each source has brought, since when it is silent, and whether its latest body can be read.

A source that sends what cannot be read is one event, which its next readable body ends. A source may go from one to the
other with every body, as a monitoring system does of which one template is broken: the event that ended lately is
opened again then, so that people are told once and the list of events does not fill.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, bindparam, select, text, update

from claudeops.domain.alerts.alert import Unparsed
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.chains.escalation import fingerprint
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.store.events import raise_event, reopen_event, resolve_event
from claudeops.store.tables.alerting import alert_sources
from claudeops.store.tables.columns import Name, UtcDateTime

SAME_TROUBLE: Final = timedelta(days=1)
"""After the end of its event, in which a source that is unreadable again is nothing new."""

_KNOWN: Final = select(alert_sources.c.readable).where(alert_sources.c.source == bindparam("of_source"))
_ADD: Final = text(
    "INSERT INTO alert_sources (source, since, heard_at, bodies, alerts, unreadable, readable)"
    " VALUES (:source, :since, :since, 0, 0, 0, :readable) ON CONFLICT (source) DO NOTHING"
).bindparams(bindparam("source", type_=Name()), bindparam("since", type_=UtcDateTime()))
"""Another daemon may hear of it for the first time too."""

_COUNT_UP: Final = (
    update(alert_sources)
    .where(alert_sources.c.source == bindparam("of_source"))
    .values(
        bodies=alert_sources.c.bodies + bindparam("more_bodies"),
        alerts=alert_sources.c.alerts + bindparam("more_alerts"),
        unreadable=alert_sources.c.unreadable + bindparam("more_unreadable"),
    )
)
_UNREADABLE: Final = select(alert_sources.c.source).where(alert_sources.c.readable.is_(False))
_FORGIVE: Final = update(alert_sources).where(alert_sources.c.source == bindparam("of_source")).values(readable=True)


def note(connection: Connection, received: Sequence[tuple[ReceivedBody, int]], *, now: datetime) -> None:
    """Count what came, bodies with the ids of their rows, and raise or end the events of their sources."""
    by_source: dict[str, list[tuple[ReceivedBody, int]]] = {}
    for post, delivery in received:
        by_source.setdefault(post.content.source, []).append((post, delivery))
    for source in sorted(by_source):  # in one order: another daemon may wait for the same rows
        _note(connection, source, by_source[source], now=now)


def _note(connection: Connection, source: str, posts: Sequence[tuple[ReceivedBody, int]], *, now: datetime) -> None:
    known = connection.execute(_KNOWN, {"of_source": source}).scalar()
    readable = known is not False  # of one that was never heard of nothing is wrong
    for post, _ in posts:
        readable = _judge(connection, post, readable=readable, now=now)
    unread = [(post, delivery) for post, delivery in posts if isinstance(post.content, Unparsed)]
    alerts = sum(0 if isinstance(post.content, Unparsed) else len(post.content.alerts) for post, _ in posts)
    values: dict[str, object] = {"heard_at": max(post.received_at for post, _ in posts), "readable": readable}
    for post, delivery in unread[-1:]:
        why = post.content.why if isinstance(post.content, Unparsed) else ""
        values |= {"unreadable_at": post.received_at, "reason": why, "delivery_id": delivery}
    if known is None:
        connection.execute(_ADD, {"source": source, "since": values["heard_at"], "readable": readable})
    more = {"more_bodies": len(posts), "more_alerts": alerts, "more_unreadable": len(unread)}
    connection.execute(_COUNT_UP, {"of_source": source, **more, **values})


def _judge(connection: Connection, post: ReceivedBody, *, readable: bool, now: datetime) -> bool:
    """Raise the event of a body that cannot be read, or end it; return whether the body can be read."""
    said = post.content
    name = _event_name(said.source)
    if not isinstance(said, Unparsed):
        if not readable:
            resolve_event(connection, name, at=now)
        return True
    if readable:
        reopen_event(connection, name, since=now - SAME_TROUBLE)
    message = f"{said.source} sends what cannot be read: {said.why}"
    event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint=name)
    raise_event(connection, event, session_id=None, at=now)
    return False


def unread(connection: Connection) -> Sequence[str]:
    """Return the sources whose latest body cannot be read."""
    return connection.execute(_UNREADABLE).scalars().all()


def forgive(connection: Connection, sources: Collection[str], *, now: datetime) -> None:
    """End the events of sources from which nothing is to come any more."""
    for source in sources:
        resolve_event(connection, _event_name(source), at=now)
        connection.execute(_FORGIVE, {"of_source": source})


def _event_name(source: str) -> str:
    return fingerprint("unreadable", source)
