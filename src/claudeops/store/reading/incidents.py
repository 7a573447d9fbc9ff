"""Incidents on record with what belongs to them, and silences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from claudeops.domain.alerts.model import Incident, IncidentStatus, Silence
from claudeops.domain.listing import Listing, Page, levels_from
from claudeops.domain.notice.model import decoded
from claudeops.store.alerts.rows import to_incident, to_silence
from claudeops.store.reading import named, page, within
from claudeops.store.rows import TableRow
from claudeops.store.tables import (
    alert_decisions,
    alerts,
    cooldown_actions,
    events,
    incidents,
    outbox,
    sessions,
    silences,
)

_MOST = 200  # entries of each kind that belong to one incident


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentEntry:
    """An incident, as a list shows it."""

    incident: Incident
    spend_usd: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertEntry:
    """An alert of an incident."""

    source: str
    name: str
    service: str
    severity: str
    status: str
    last_seen: datetime
    times: int
    decision: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionEntry:
    """A decision about an alert of an incident."""

    at: datetime
    alert: str | None
    service: str | None
    decision: str
    because: str
    chain: int | None  # that was started for it, or that it joins


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionEntry:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionEntry:
    """What a session of an incident has changed."""

    at: datetime
    action_type: str
    service: str
    success: bool | None
    session: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EventEntry:
    """An event of an incident, or what a person has done to it."""

    at: datetime
    level: str
    message: str
    resolved_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticeEntry:
    """What one target was told of an incident."""

    at: datetime  # when it was over, or decided, while it waits
    target: str  # empty: nobody yet, or nobody wanted it
    text: str
    result: str | None  # None: it waits


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """An incident and all that belongs to it; of the decisions, the latest."""

    entry: IncidentEntry
    alerts: tuple[AlertEntry, ...]
    decisions: tuple[DecisionEntry, ...]  # oldest first
    sessions: tuple[SessionEntry, ...]
    actions: tuple[ActionEntry, ...]
    events: tuple[EventEntry, ...]  # people's deeds among them
    notices: tuple[NoticeEntry, ...]


def listed(connection: Connection, wanted: Listing, *, everything: bool) -> Page[IncidentEntry]:
    """Return incidents, newest first; those that are over too, if ``everything`` is asked for."""
    query = within(select(incidents), incidents.c.opened_at, wanted)
    if not everything:
        query = query.where(incidents.c.status != IncidentStatus.RESOLVED.value)
    if wanted.service is not None:
        query = query.where(incidents.c.service.in_(named(connection, incidents.c.service, wanted.service)))
    if wanted.level is not None:
        query = query.where(incidents.c.severity.in_(levels_from(wanted.level)))
    return page(connection, query, incidents.c.number, wanted, _entry)


def story(connection: Connection, number: int) -> Story | None:
    """Return one incident with all that belongs to it."""
    row = connection.execute(select(incidents).where(incidents.c.number == number)).one_or_none()
    if row is None:
        return None
    return Story(
        entry=_entry(row),
        alerts=_alerts(connection, number),
        decisions=_decisions(connection, number),
        sessions=_sessions(connection, number),
        actions=_actions(connection, number),
        events=_events(connection, number),
        notices=_notices(connection, number),
    )


def active_silences(connection: Connection, now: datetime, *, everything: bool) -> Sequence[Silence]:
    """Return the silences that are not over, or all of them, the one that ends first at the top."""
    query = select(silences).order_by(silences.c.ends_at, silences.c.id)
    if not everything:
        query = query.where(silences.c.ends_at > now)
    return tuple(map(to_silence, connection.execute(query)))


def _alerts(connection: Connection, number: int) -> tuple[AlertEntry, ...]:
    query = (
        select(alerts, alerts.c.count.label("times"))  # a row has a method `count`
        .where(alerts.c.incident_id == number)
        .order_by(alerts.c.status, alerts.c.id)
        .limit(_MOST)
    )
    return tuple(
        AlertEntry(
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


def _decisions(connection: Connection, number: int) -> tuple[DecisionEntry, ...]:
    query = (
        select(alert_decisions, alerts.c.name, alerts.c.service)
        .outerjoin(alerts, alerts.c.id == alert_decisions.c.alert_id)
        .where(alert_decisions.c.incident_id == number)
        .order_by(alert_decisions.c.id.desc())
        .limit(_MOST)
    )
    found = [
        DecisionEntry(
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


def _sessions(connection: Connection, number: int) -> tuple[SessionEntry, ...]:
    query = select(sessions).where(sessions.c.incident_id == number).order_by(sessions.c.id).limit(_MOST)
    return tuple(
        SessionEntry(
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


def _actions(connection: Connection, number: int) -> tuple[ActionEntry, ...]:
    query = (
        select(cooldown_actions)
        .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
        .where(sessions.c.incident_id == number)
        .order_by(cooldown_actions.c.id)
        .limit(_MOST)
    )
    return tuple(
        ActionEntry(
            at=row.timestamp,
            action_type=row.action_type,
            service=row.service,
            success=row.success,
            session=row.session_id,
        )
        for row in connection.execute(query)
    )


def _events(connection: Connection, number: int) -> tuple[EventEntry, ...]:
    query = select(events).where(events.c.incident_id == number).order_by(events.c.id).limit(_MOST)
    return tuple(
        EventEntry(at=row.first_seen, level=row.level, message=row.message, resolved_at=row.resolved_at)
        for row in connection.execute(query)
    )


def _notices(connection: Connection, number: int) -> tuple[NoticeEntry, ...]:
    query = select(outbox).where(outbox.c.incident_id == number).order_by(outbox.c.id).limit(_MOST)
    found = ((row, decoded(row.payload)) for row in connection.execute(query))
    return tuple(
        NoticeEntry(
            at=row.delivered_at or row.created_at,
            target=row.target,
            text=notice.text,
            result=row.result if row.delivered_at is not None else None,
        )
        for row, notice in found
        if notice is not None
    )


def _entry(row: TableRow) -> IncidentEntry:
    return IncidentEntry(incident=to_incident(row), spend_usd=row.spend_usd)
