"""Incidents: what the end of a session says of them, what people do with them, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, or_, select, update

from claudeops.domain.alerts.alert import AlertDecision, Incident, Witness, WitnessKind
from claudeops.domain.alerts.incidents import (
    IncidentNews,
    SessionEnd,
    acknowledged,
    after_session,
    news,
    opened,
    started,
    witnessed,
)
from claudeops.domain.alerts.rules import rank
from claudeops.domain.chains.consequences import Consequences
from claudeops.domain.chains.escalation import fingerprint
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.notice import Announcement
from claudeops.domain.report.evidence import BROKEN, KnownServices
from claudeops.domain.sessions import DecisionReason, Ending, NewSession, Session
from claudeops.store.alerts import announcements
from claudeops.store.alerts.announcements import Noted
from claudeops.store.alerts.rows import incident_values, to_incident, to_state
from claudeops.store.database import Database
from claudeops.store.events import note_deed, raise_event, resolve_event
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import alert_decisions, alerts, incidents, is_unresolved
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import cooldown_actions, sessions
from claudeops.structs import replace
from claudeops.text import join_names
from claudeops.wording import alert_brief

# Built once: every end of a session asks these.
_OPEN: Final = select(incidents).where(is_unresolved)
_OF_SESSION: Final = select(sessions.c.incident_id).where(sessions.c.id == bindparam("session"))
_ACTED: Final = (
    select(cooldown_actions.c.service, func.max(cooldown_actions.c.timestamp).label("at"))
    .where(
        cooldown_actions.c.session_id == bindparam("session"),
        or_(cooldown_actions.c.success.is_(None), cooldown_actions.c.success.is_(True)),
    )
    .group_by(cooldown_actions.c.service)
)
_BELONGS: Final = (
    update(sessions)
    .where(sessions.c.root_session_id == bindparam("root"), sessions.c.incident_id.is_(None))
    .values(incident_id=bindparam("incident"))
)
_CHANGE: Final = update(incidents).where(incidents.c.number == bindparam("of_number"))
_ADD: Final = insert(incidents)
_HIGHEST: Final = select(func.coalesce(func.max(incidents.c.number), 0))
_JOINED: Final = (
    select(alerts)
    .join(alert_decisions, alert_decisions.c.alert_id == alerts.c.id)
    .where(
        alert_decisions.c.session_id == bindparam("root"),
        alert_decisions.c.decision == AlertDecision.JOINED.value,
        alert_decisions.c.at >= bindparam("since"),
    )
    .order_by(alert_decisions.c.id)
)

_FINDS: Final = frozenset(
    {
        DecisionReason.ESCALATED,
        DecisionReason.MAX_TIER,
        DecisionReason.DRY_RUN,
        DecisionReason.COOLDOWN,
        DecisionReason.BUDGET,
    }
)
"""Decisions about a finding that opens an incident: somebody was to go on, whether or not somebody may."""


# --- rows -------------------------------------------------------------------------------------------------


class Incidents:
    """Incidents, as people change them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acknowledge(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person is on an incident; return it as it is then, ``None`` if there is none."""
        return await self._database.write(partial(_acknowledge, number=number, by=by, at=now))

    async def resolve(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person says that an incident is over; return it as it is then, ``None`` if there is none."""
        return await self._database.write(partial(_resolve, number=number, by=by, at=now))


def open_incidents(connection: Connection) -> tuple[Incident, ...]:
    """Return the incidents that are not known to be over."""
    return tuple(map(to_incident, connection.execute(_OPEN.order_by(incidents.c.number))))


def find(connection: Connection, number: int) -> Incident | None:
    """Return one incident."""
    row = connection.execute(select(incidents).where(incidents.c.number == number)).one_or_none()
    return None if row is None else to_incident(row)


def next_number(connection: Connection) -> int:
    """Return the number of the next incident; one writer at a time asks."""
    return int(connection.execute(_HIGHEST).scalar_one()) + 1


def write(
    connection: Connection,
    incident: Incident,
    *,
    before: Incident | None,
    at: datetime,
    stand_ins: tuple[str, ...] = (),
) -> IncidentNews | None:
    """Write an incident that is new or has changed, with its event; return what is to be told of it still.

    ``stand_ins`` are the events of probes whose failure it is: it needs none of its own then. Who has taken it, and its
    end, are told here; a beginning is told by whoever knows its sentence.
    """
    values = incident_values(incident)
    if before is None:
        connection.execute(_ADD, values)
    else:
        connection.execute(_CHANGE, {"of_number": incident.number, **values})
    name = event_name(incident.number)
    turn = news(before, incident)
    match turn:
        case IncidentNews.OPENED | IncidentNews.REOPENED:
            if not announcements.adopt(connection, incident, stand_ins):
                _raise(connection, incident, at=at)
        case IncidentNews.WORSE:
            if connection.execute(select(events.c.id).where(*_own_event(incident.number))).first() is not None:
                _raise(connection, incident, at=at)
        case IncidentNews.RESOLVED:
            resolve_event(connection, name, at=at)
            announcements.resolved(connection, incident, at=at)
        case IncidentNews.ACKNOWLEDGED:
            announcements.acknowledged(connection, incident, at=at)
        case None:
            pass
    return turn if turn in {IncidentNews.OPENED, IncidentNews.REOPENED, IncidentNews.WORSE} else None


def _raise(connection: Connection, incident: Incident, *, at: datetime) -> None:
    """Raise an incident's own event, which is quiet: the incident tells of itself."""
    event = _event(incident)
    raise_event(connection, event, session_id=None, at=at, about=Announcement(quiet=True))
    standing = {"incident_id": incident.number, "level": event.level.value}
    connection.execute(update(events).where(*_own_event(incident.number)).values(standing))


def _own_event(number: int) -> tuple[ColumnElement[bool], ...]:
    return (events.c.fingerprint == event_name(number), events.c.resolved_at.is_(None))


def belongs(connection: Connection, root_session_id: int, number: int) -> None:
    """Note to which incident a chain belongs, unless it belongs to one."""
    connection.execute(_BELONGS, {"root": root_session_id, "incident": number})


def event_name(number: int) -> str:
    """Return the fingerprint of an incident's event."""
    return fingerprint("incident", number)


def _event(incident: Incident) -> NewEvent:
    again = f", for the {incident.reopened + 1}. time" if incident.reopened else ""
    message = f"incident {incident.number} is open{again}: {join_names(incident.services)}"
    service = incident.services[0] if len(incident.services) == 1 else None
    level = max(EventLevel.WARNING, incident.severity, key=rank)
    return NewEvent(level=level, message=message, service=service, fingerprint=event_name(incident.number))


# --- the end of a session ---------------------------------------------------------------------------------


def note_end(
    connection: Connection,
    session: Session,
    ending: Ending,
    outcome: Consequences,
    *,
    names: KnownServices,
    there: TableRow,
) -> Noted:
    """Have the end of a session witness the end of incidents, or open one for what it has found.

    Call it before the session's own events are raised: they belong to what it has opened. ``there`` says which incident
    the session has, whether any is open, and whether the session has acted.
    """
    own: int | None = there.incident_id
    known = open_incidents(connection) if there.open_incidents else ()
    acted = connection.execute(_ACTED, {"session": session.id}).all() if there.own_actions else ()
    end = _said(session, ending, outcome, names, acted)
    for incident in known:
        after = after_session(
            incident,
            end,
            key=names.of,
            is_own=incident.number == own,
            has_alerts=_has_alerts(connection, incident.number),
        )
        if after != incident:
            write(connection, after, before=incident, at=ending.ended_at)
    is_new = False
    if own is None and end.broken and outcome.decision.reason in _FINDS:
        own = _found(connection, session, ending, known, names=names)
        is_new = all(incident.number != own for incident in known)
    if own is not None:
        connection.execute(_CHANGE, {"of_number": own, "spend_usd": announcements.spent(connection, own)})
    left = open_incidents(connection) if known or own is not None else ()
    mine = next((each for each in left if each.number == own), None)
    if mine is not None and is_new and not outcome.events:  # else they stand for it
        _raise(connection, mine, at=ending.ended_at)
    return Noted(own=mine, is_new=is_new, known=left)


def with_news(connection: Connection, new: NewSession, parent: Session, *, at: datetime) -> NewSession:
    """Return the next session of a chain with what alerts have said since the one before was queued."""
    own = connection.execute(_OF_SESSION, {"session": parent.id}).scalar()
    if own is None or new.context is None:
        return new
    asked = {"root": parent.root_session_id, "since": parent.created_at}
    joined = [to_state(row) for row in connection.execute(_JOINED, asked)]
    incident = find(connection, own)
    if not joined or incident is None:
        return new
    told = alert_brief.note(
        [state.key for state in joined], {state.key: state for state in joined}, incident=incident, now=at
    )
    return replace(new, context=replace(new.context, findings=f"{told}\n{new.context.findings}"))


def _said(
    session: Session, ending: Ending, outcome: Consequences, names: KnownServices, actions: Iterable[TableRow]
) -> SessionEnd:
    acted: dict[str, datetime] = {}
    for row in actions:
        acted[names.of(row.service)] = max(row.at, acted.get(names.of(row.service), row.at))
    report = ending.extraction.report
    checks = () if report is None else report.services_checked
    return SessionEnd(
        session_id=session.id,
        chain=session.root_session_id,
        at=ending.ended_at,
        acted=acted,
        is_healthy=outcome.decision.reason is DecisionReason.HEALTHY,
        healthy=frozenset(map(names.of, outcome.looked_at)),
        broken=frozenset(names.of(check.service) for check in checks if check.status in BROKEN),
    )


def _has_alerts(connection: Connection, number: int) -> bool:
    return connection.execute(select(alerts.c.id).where(alerts.c.incident_id == number).limit(1)).first() is not None


def _found(
    connection: Connection, session: Session, ending: Ending, known: Iterable[Incident], *, names: KnownServices
) -> int:
    """Return the incident of what a session has found to be broken: the open one of such a service, or a new one."""
    report = ending.extraction.report
    checks = () if report is None else [check for check in report.services_checked if check.status in BROKEN]
    broken = {names.of(check.service): check.service for check in checks}
    for incident in known:
        if any(names.of(service) in broken for service in incident.services):
            belongs(connection, session.root_session_id, incident.number)
            return incident.number
    incident = opened(
        next_number(connection),
        group_key=f"service:{min(broken)}",
        services=broken.values(),
        severity=EventLevel.CRITICAL,
        at=ending.ended_at,
    )
    incident = replace(
        started(incident, session.started_at or ending.ended_at), root_session_id=session.root_session_id
    )
    connection.execute(_ADD, incident_values(incident))
    belongs(connection, session.root_session_id, incident.number)
    return incident.number


# --- probes -----------------------------------------------------------------------------------------------


def seen_up(incident: Incident, up: Mapping[str, datetime], *, key: Callable[[str], str]) -> Incident:
    """Return an incident after all probes of its services have seen them up; ``up``: since when, by service."""
    seen = [up.get(key(service)) for service in incident.services]
    times = [at for at in seen if at is not None]
    if not times or len(times) < len(seen):
        return incident
    witness = Witness(kind=WitnessKind.PROBE, at=min(times), name="probes")
    same = any(
        each.kind is WitnessKind.PROBE and each.at >= max(incident.fired_at, incident.last_action_at or each.at)
        for each in incident.witnesses
    )
    return incident if same or witness.at < incident.fired_at else witnessed(incident, witness)


# --- people -----------------------------------------------------------------------------------------------


def _acknowledge(connection: Connection, number: int, *, by: str, at: datetime) -> Incident | None:
    """Note that a person is on an incident; return it as it is then, ``None`` where there is none."""
    incident = find(connection, number)
    if incident is None:
        return None
    after = acknowledged(incident, by=by, at=at)
    if after != incident:
        write(connection, after, before=incident, at=at)
        note_deed(connection, f"{by} has acknowledged incident {number}", at=at, incident=number)
    return after


def _resolve(connection: Connection, number: int, *, by: str, at: datetime) -> Incident | None:
    """Note that a person says that an incident is over; return it as it is then, ``None`` where there is none."""
    incident = find(connection, number)
    if incident is None:
        return None
    witness = Witness(kind=WitnessKind.OPERATOR, at=max(at, incident.fired_at), name=by)
    after = witnessed(incident, witness)
    if after != incident:
        write(connection, after, before=incident, at=at)
        note_deed(connection, f"{by} has said that incident {number} is over", at=at, incident=number)
    return after
