"""One incident with what belongs to it, and what happened in it, in order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.alerts.incidents import wants_look
from claudeops.domain.notices.notice import decoded
from claudeops.store.alerts.rows import to_incident
from claudeops.store.reading.incidents.entries import IncidentEntry, head_of, numbered
from claudeops.store.tables.alerting import alert_decisions, alerts
from claudeops.store.tables.events import events
from claudeops.store.tables.outbox import outbox
from claudeops.store.tables.sessions import cooldown_actions, sessions

_MOST = 200  # entries of each kind that belong to one incident


TimelineKind: TypeAlias = Literal["alert", "event", "session", "action", "notice"]


class StoryAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of an incident."""

    source: str
    name: str
    service: str
    severity: str
    status: str
    last_seen: datetime
    times: int
    decision: str | None


class StoryDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about an alert of an incident."""

    at: datetime
    alert: str | None
    service: str | None
    decision: str
    because: str
    chain: int | None  # that was started for it, or that it joins


class StorySession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an incident."""

    id: int
    chain: int
    tier: int
    status: str
    outcome: str | None
    decision_reason: str | None
    started_at: datetime | None
    ended_at: datetime | None
    cost_usd: float | None
    summary: str | None


class StoryAction(msgspec.Struct, frozen=True, kw_only=True):
    """What a session of an incident has changed."""

    at: datetime
    action_type: str
    service: str
    success: bool | None
    session: int


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an incident, or what a person has done to it."""

    at: datetime
    level: str
    message: str
    resolved_at: datetime | None


class StoryNotice(msgspec.Struct, frozen=True, kw_only=True):
    """What one target was told of an incident."""

    at: datetime  # when it was over, or decided, while it waits
    target: str  # empty: nobody yet, or nobody wanted it
    text: str
    result: str | None  # None: it waits


class IncidentStory(IncidentEntry, frozen=True, kw_only=True):
    """An incident and all that belongs to it; of the decisions, the latest: the answer of ``incident``."""

    alerts: tuple[StoryAlert, ...]
    decisions: tuple[StoryDecision, ...]  # oldest first
    sessions: tuple[StorySession, ...]
    actions: tuple[StoryAction, ...]
    events: tuple[StoryEvent, ...]  # people's deeds among them
    notices: tuple[StoryNotice, ...]


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened in an incident."""

    at: datetime
    kind: TimelineKind
    text: str  # one sentence; as others wrote it


def story(connection: Connection, number: int, *, now: datetime) -> IncidentStory | None:
    """Return one incident with all that belongs to it."""
    row = connection.execute(numbered(number)).one_or_none()
    if row is None:
        return None
    return IncidentStory(
        **head_of(row, now),
        alerts=_alerts(connection, number),
        decisions=_decisions(connection, number),
        sessions=_sessions(connection, number),
        actions=_actions(connection, number),
        events=_events(connection, number),
        notices=_notices(connection, number),
    )


def awaits_look(connection: Connection, number: int) -> bool:
    """Return whether all that is missing for an incident's end is a session that looks."""
    row = connection.execute(numbered(number)).one_or_none()
    return row is not None and wants_look(to_incident(row))


def _alerts(connection: Connection, number: int) -> tuple[StoryAlert, ...]:
    query = (
        select(alerts, alerts.c.count.label("times"))  # a row has a method `count`
        .where(alerts.c.incident_id == number)
        .order_by(alerts.c.status, alerts.c.id)
        .limit(_MOST)
    )
    return tuple(
        StoryAlert(
            source=row.source,
            name=row.name,
            service=row.service,
            severity=row.severity,
            status=row.status,
            last_seen=row.last_seen,
            times=row.times,
            decision=row.decision,
        )
        for row in connection.execute(query)
    )


def _decisions(connection: Connection, number: int) -> tuple[StoryDecision, ...]:
    query = (
        select(alert_decisions, alerts.c.name, alerts.c.service)
        .outerjoin(alerts, alerts.c.id == alert_decisions.c.alert_id)
        .where(alert_decisions.c.incident_id == number)
        .order_by(alert_decisions.c.id.desc())
        .limit(_MOST)
    )
    found = [
        StoryDecision(
            at=row.at,
            alert=row.name,
            service=row.service,
            decision=row.decision,
            because=row.because,
            chain=row.session_id,
        )
        for row in connection.execute(query)
    ]
    return tuple(reversed(found))


def _sessions(connection: Connection, number: int) -> tuple[StorySession, ...]:
    query = select(sessions).where(sessions.c.incident_id == number).order_by(sessions.c.id).limit(_MOST)
    return tuple(
        StorySession(
            id=row.id,
            chain=row.root_session_id,
            tier=row.tier,
            status=row.status,
            outcome=row.outcome,
            decision_reason=row.decision_reason,
            started_at=row.started_at,
            ended_at=row.ended_at,
            cost_usd=row.cost_usd,
            summary=row.summary,
        )
        for row in connection.execute(query)
    )


def _actions(connection: Connection, number: int) -> tuple[StoryAction, ...]:
    query = (
        select(cooldown_actions)
        .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
        .where(sessions.c.incident_id == number)
        .order_by(cooldown_actions.c.id)
        .limit(_MOST)
    )
    return tuple(
        StoryAction(
            at=row.timestamp,
            action_type=row.action_type,
            service=row.service,
            success=row.success,
            session=row.session_id,
        )
        for row in connection.execute(query)
    )


def _events(connection: Connection, number: int) -> tuple[StoryEvent, ...]:
    query = select(events).where(events.c.incident_id == number).order_by(events.c.id).limit(_MOST)
    return tuple(
        StoryEvent(at=row.first_seen, level=row.level, message=row.message, resolved_at=row.resolved_at)
        for row in connection.execute(query)
    )


def _notices(connection: Connection, number: int) -> tuple[StoryNotice, ...]:
    query = select(outbox).where(outbox.c.incident_id == number).order_by(outbox.c.id).limit(_MOST)
    found = ((row, decoded(row.payload)) for row in connection.execute(query))
    return tuple(
        StoryNotice(
            at=row.delivered_at or row.created_at,
            target=row.target,
            text=notice.text,
            result=row.result if row.delivered_at is not None else None,
        )
        for row, notice in found
        if notice is not None
    )


def timeline(found: IncidentStory) -> tuple[TimelineEntry, ...]:
    """Return what happened, in order: alerts, events, sessions, what they did, people, and what was sent to whom.

    What is of one moment is in that order as well.
    """
    entries = (TimelineEntry(at=at, kind=kind, text=text) for at, kind, text in _happened(found) if at is not None)
    return tuple(sorted(entries, key=lambda each: each.at))


def _happened(found: IncidentStory) -> Iterator[tuple[datetime | None, TimelineKind, str]]:
    """Yield what happened, by kind; without a moment: it has not yet."""
    for decision in found.decisions:
        yield decision.at, "alert", f"{decision.alert or 'a body'}: {decision.decision} ({decision.because})"
    for event in found.events:
        yield event.at, "event", event.message
    for one in found.sessions:
        yield one.started_at, "session", f"session {one.id} (tier {one.tier}) starts"
    for one in found.sessions:
        yield one.ended_at, "session", f"session {one.id} (tier {one.tier}): {one.decision_reason or one.outcome}"
    for action in found.actions:
        yield action.at, "action", f"session {action.session}: {action.action_type} of {action.service}"
    for notice in found.notices:
        yield notice.at, "notice", f"{_delivery(notice)}: {notice.text}"


def _delivery(notice: StoryNotice) -> str:
    if not notice.target:
        return "nobody was told" if notice.result else "to be told"
    match notice.result:
        case None:
            return f"on its way to {notice.target}"
        case "delivered":
            return f"{notice.target} was told"
        case "suppressed":
            return f"{notice.target} was told with others, or not any more"
        case _:
            return f"{notice.target} could not be told"
