"""Incidents on record with what belongs to them, and silences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.alerts.incidents import lasted, wants_look
from claudeops.domain.alerts.model import IncidentStatus, Silence
from claudeops.domain.listing import Listing, Page, levels_from
from claudeops.domain.model import Level
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


class WitnessEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who says that an incident is over."""

    kind: str
    name: str
    at: datetime


class IncidentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An incident, as a list shows it."""

    incident: int
    status: IncidentStatus
    severity: Level
    services: tuple[str, ...]
    opened_at: datetime
    resolved_at: datetime | None
    lasted_s: int  # until now, while it is not over
    reopened: int  # times
    acked_by: str | None
    acked_at: datetime | None
    chain: int | None
    spend_usd: float | None
    last_action_at: datetime | None
    witnesses: tuple[WitnessEntry, ...]


class AlertEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of an incident."""

    source: str
    name: str
    service: str
    severity: str
    status: str
    last_seen: datetime
    times: int
    decision: str | None


class DecisionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about an alert of an incident."""

    at: datetime
    alert: str | None
    service: str | None
    decision: str
    because: str
    chain: int | None  # that was started for it, or that it joins


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
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


class ActionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a session of an incident has changed."""

    at: datetime
    action_type: str
    service: str
    success: bool | None
    session: int


class EventEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an incident, or what a person has done to it."""

    at: datetime
    level: str
    message: str
    resolved_at: datetime | None


class NoticeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one target was told of an incident."""

    at: datetime  # when it was over, or decided, while it waits
    target: str  # empty: nobody yet, or nobody wanted it
    text: str
    result: str | None  # None: it waits


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    at: datetime
    kind: str  # alert, event, session, action, notice
    text: str
    session_id: int | None = None


class Story(IncidentEntry, frozen=True, kw_only=True):
    """An incident and all that belongs to it; of the decisions, the latest."""

    alerts: tuple[AlertEntry, ...]
    decisions: tuple[DecisionEntry, ...]  # oldest first
    sessions: tuple[SessionEntry, ...]
    actions: tuple[ActionEntry, ...]
    events: tuple[EventEntry, ...]  # people's deeds among them
    notices: tuple[NoticeEntry, ...]
    wants_look: bool  # it is over once a session has looked
    timeline: tuple[TimelineEntry, ...]  # all of it in order


class SilenceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A silence, as a list shows it."""

    id: int
    matchers: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str
    suppressed_count: int  # alerts
    ended_by: str | None  # None: it ends, or has ended, by itself


def listed(connection: Connection, wanted: Listing, *, everything: bool, now: datetime) -> Page[IncidentEntry]:
    """Return incidents, newest first; those that are over too, if ``everything`` is asked for."""
    query = within(select(incidents), incidents.c.opened_at, wanted)
    if not everything:
        query = query.where(incidents.c.status != IncidentStatus.RESOLVED.value)
    if wanted.service is not None:
        query = query.where(incidents.c.service.in_(named(connection, incidents.c.service, wanted.service)))
    if wanted.level is not None:
        query = query.where(incidents.c.severity.in_(levels_from(wanted.level)))
    return page(connection, query, incidents.c.number, wanted, lambda row: _entry(row, now))


def story(connection: Connection, number: int, *, now: datetime) -> Story | None:
    """Return one incident with all that belongs to it."""
    row = connection.execute(select(incidents).where(incidents.c.number == number)).one_or_none()
    if row is None:
        return None
    decisions, found = _decisions(connection, number), _sessions(connection, number)
    actions, raised = _actions(connection, number), _events(connection, number)
    notices = _notices(connection, number)
    return Story(
        **msgspec.structs.asdict(_entry(row, now)),
        alerts=_alerts(connection, number),
        decisions=decisions,
        sessions=found,
        actions=actions,
        events=raised,
        notices=notices,
        wants_look=wants_look(to_incident(row)),
        timeline=timeline(decisions, raised, found, actions, notices),
    )


def active_silences(connection: Connection, now: datetime, *, everything: bool) -> Sequence[SilenceEntry]:
    """Return the silences that are not over, or all of them, the one that ends first at the top."""
    query = select(silences).order_by(silences.c.ends_at, silences.c.id)
    if not everything:
        query = query.where(silences.c.ends_at > now)
    return tuple(silence_entry(to_silence(row)) for row in connection.execute(query))


def silence_entry(silence: Silence) -> SilenceEntry:
    """Return a silence as a list shows it."""
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


def timeline(
    decisions: Sequence[DecisionEntry],
    raised: Sequence[EventEntry],
    found: Sequence[SessionEntry],
    actions: Sequence[ActionEntry],
    notices: Sequence[NoticeEntry],
) -> tuple[TimelineEntry, ...]:
    """Return what happened, in order: alerts, events, sessions, what they did, people, and who was told what.

    What comes of one moment stands in that order as well.
    """
    entries = [
        *(_happened(one.at, "alert", f"{one.alert or 'a body'}: {one.decision} ({one.because})") for one in decisions),
        *(_happened(one.at, "event", one.message) for one in raised),
        *(
            _happened(one.started_at, "session", f"session {one.id} (tier {one.tier}) starts", one.id)
            for one in found
            if one.started_at is not None
        ),
        *(
            _happened(
                one.ended_at,
                "session",
                f"session {one.id} (tier {one.tier}): {one.decision_reason or one.outcome}",
                one.id,
            )
            for one in found
            if one.ended_at is not None
        ),
        *(
            _happened(one.at, "action", f"session {one.session}: {one.action_type} of {one.service}", one.session)
            for one in actions
        ),
        *(_happened(one.at, "notice", f"{_result(one)}: {one.text}") for one in notices),
    ]
    return tuple(sorted(entries, key=lambda each: each.at))


def _happened(at: datetime, kind: str, text: str, session_id: int | None = None) -> TimelineEntry:
    return TimelineEntry(at=at, kind=kind, text=text, session_id=session_id)


def _result(notice: NoticeEntry) -> str:
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


def _entry(row: TableRow, now: datetime) -> IncidentEntry:
    incident = to_incident(row)
    return IncidentEntry(
        incident=incident.number,
        status=incident.status,
        severity=incident.severity,
        services=tuple(incident.services),
        opened_at=incident.opened_at,
        resolved_at=incident.resolved_at,
        lasted_s=round(lasted(incident, now).total_seconds()),
        reopened=incident.reopened,
        acked_by=incident.acked_by or None,
        acked_at=incident.acked_at,
        chain=incident.root_session_id,
        spend_usd=row.spend_usd,
        last_action_at=incident.last_action_at,
        witnesses=tuple(WitnessEntry(kind=one.kind.value, name=one.name, at=one.at) for one in incident.witnesses),
    )
