"""What people are told of incidents, in the transaction that decides it: one message for one fact.

- An incident tells of itself when it opens, returns, gets worse, is taken, is left unresolved, and is over: each once
  for each time that it is open. What a session's end opens and hands on, or leaves, is one message.
- Its own event is on record and quiet. So are a session's events about a service of an open incident that are no worse
  than that, and a chain's end where the incident tells of it.
- A failure of a probe waits for the incident that it becomes (`claudeops.store.events.UNTOLD`), and is told by itself
  only where none has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, func, or_, select, update

from claudeops.domain.alerts.alert import PROBES, AlertState, Incident
from claudeops.domain.alerts.incidents import IncidentNews
from claudeops.domain.alerts.rules import rank
from claudeops.domain.chains.escalation import handover_services
from claudeops.domain.events import NewEvent
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.notices.notice import PLAIN, Announcement, Topic
from claudeops.domain.probes.record import fingerprint_of
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.sessions import NewSession, Session
from claudeops.store.alerts.rows import services_of, to_incident
from claudeops.store.events import raise_event, tell
from claudeops.store.tables.alerting import incidents, is_unresolved
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import budget_entries, cooldown_actions, other_sessions, sessions
from claudeops.structs import replace
from claudeops.text import join_names, one_line, unique
from claudeops.wording.notices.texts import (
    escalated,
    incident_acknowledged,
    incident_opened,
    incident_resolved,
    incident_unresolved,
    incident_worse,
)

# Built once: every end of a session asks these.
_OF_SESSION: Final = (
    select(incidents)
    .join(sessions, sessions.c.incident_id == incidents.c.number)
    .where(sessions.c.id == bindparam("session"), is_unresolved)
)
_SPENT: Final = (
    select(func.sum(budget_entries.c.amount_usd))
    .join(sessions, sessions.c.id == budget_entries.c.session_id)
    .where(budget_entries.c.kind == "settled", sessions.c.incident_id.in_(bindparam("incidents", expanding=True)))
)
_SPENT_BY_CHAIN: Final = (
    select(func.sum(budget_entries.c.amount_usd))
    .join(other_sessions, other_sessions.c.id == budget_entries.c.session_id)
    .join(sessions, sessions.c.root_session_id == other_sessions.c.root_session_id)
    .where(budget_entries.c.kind == "settled", sessions.c.id == bindparam("session"))
)
_DONE: Final = (
    select(cooldown_actions.c.action_type, cooldown_actions.c.service)
    .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
    .where(sessions.c.incident_id == bindparam("incident"), cooldown_actions.c.success.is_(True))
    .order_by(cooldown_actions.c.id)
)
_LEAVES_ALONE: Final = frozenset({HoldKind.BREAKER, HoldKind.BUDGET, HoldKind.DISK})
"""Holds under which nobody looks after what is open."""


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """What the end of a session means for incidents."""

    own: Incident | None  # that it belongs to, and that is open
    is_new: bool  # what it has found opened that
    known: tuple[Incident, ...]  # all that are open

    def tells(self, event: NewEvent, names: KnownServices) -> bool:
        """Tell whether an open incident has told what an event says."""
        if event.service is None:
            return False
        name = names.of(event.service)
        return any(
            rank(event.level) <= rank(incident.severity) and name in map(names.of, incident.services)
            for incident in self.known
        )


# --- what has become of an incident -----------------------------------------------------------------------


def opened(
    connection: Connection, incident: Incident, sentence: str, *, at: datetime, end: Announcement = PLAIN
) -> None:
    """Tell of an incident that is open, for the first time or again."""
    tell(connection, incident_opened(incident, sentence, end), at=at)


def begun(connection: Connection, incident: Incident, turn: IncidentNews, sentence: str, *, at: datetime) -> None:
    """Tell of an incident that is open, is open again, or is more severe than it was."""
    if turn is IncidentNews.WORSE:
        tell(connection, incident_worse(incident, sentence), at=at)
    else:
        opened(connection, incident, sentence, at=at)


def acknowledged(connection: Connection, incident: Incident, *, at: datetime) -> None:
    """Tell who has taken an incident."""
    tell(connection, incident_acknowledged(incident), at=at)


def resolved(connection: Connection, incident: Incident, *, at: datetime) -> None:
    """Tell that an incident is over: how long it took, what it has cost, and what was done."""
    done = [f"{row.action_type} {row.service}" for row in connection.execute(_DONE, {"incident": incident.number})]
    cost = spent(connection, incident.number)
    tell(connection, incident_resolved(incident, now=at, cost_usd=cost, done=unique(done)), at=at)


def spent(connection: Connection, *numbers: int) -> float | None:
    """Return what the sessions of some incidents have cost; ``None``: nothing is known."""
    found = connection.execute(_SPENT, {"incidents": numbers}).scalar()
    return None if found is None else float(found)


# --- a chain that goes on, or that nobody follows ---------------------------------------------------------


def of_session(connection: Connection, session_id: int) -> Incident | None:
    """Return the open incident that a session belongs to."""
    row = connection.execute(_OF_SESSION, {"session": session_id}).one_or_none()
    return None if row is None else to_incident(row)


def goes_on(
    connection: Connection,
    session: Session,
    following: NewSession,
    noted: Noted,
    end: Announcement,
    *,
    at: datetime,
) -> None:
    """Tell that the next tier takes over; an incident that this has opened tells it with its beginning."""
    own, context = noted.own, following.context
    services = () if context is None else handover_services(context)
    if own is not None and noted.is_new:
        why = one_line(context.reason).rstrip(".") if context is not None else join_names(own.services)
        opened(connection, own, f"{why}; tier {following.tier} looks into it.", at=at, end=end)
        return
    number = None if own is None else own.number
    tell(connection, escalated(session, following, services, end.cost_usd, incident=number), at=at)


def left(
    connection: Connection,
    session: Session,
    event: NewEvent,
    why: str,
    end: Announcement,
    *,
    at: datetime,
    own: Incident | None,
    is_new: bool = False,
) -> None:
    """Raise the event of a chain that nobody follows, and tell of it: by its incident, where it has one."""
    about = replace(end, topic=Topic.INCIDENT, quiet=own is not None)
    raise_event(connection, event, session_id=session.id, at=at, about=about)
    if own is not None and is_new:
        opened(connection, own, event.message, at=at, end=end)
    elif own is not None:
        tell(connection, incident_unresolved(own, why, event.message, event.level, end), at=at)


# --- holds ------------------------------------------------------------------------------------------------


def of_hold(connection: Connection, hold: Hold, session_id: int | None) -> Announcement:
    """Return what a hold leaves alone, which is what is open; ``session_id``: of the session that it comes of."""
    if hold.kind not in _LEAVES_ALONE:
        return PLAIN
    rows = connection.execute(select(incidents).where(is_unresolved)).all()
    numbers = [row.number for row in rows]
    services = unique(name for row in rows for name in services_of(row.services) or (row.service,))
    theirs = or_(sessions.c.incident_id.in_(numbers), sessions.c.id == session_id)
    tier = connection.execute(select(func.max(sessions.c.tier)).where(theirs)).scalar()
    cost = spent(connection, *numbers) or connection.execute(_SPENT_BY_CHAIN, {"session": session_id}).scalar()
    return Announcement(also=Topic.INCIDENT, service=join_names(services), tier=tier, cost_usd=cost)


# --- events that stand for an incident --------------------------------------------------------------------


def stand_ins(firing: Sequence[AlertState]) -> tuple[str, ...]:
    """Return the fingerprints of the events that stand for an incident which only probes see; none for any other."""
    by_probes = bool(firing) and all(state.source == PROBES for state in firing)
    return tuple(fingerprint_of(state.fingerprint) for state in firing) if by_probes else ()


def adopt(connection: Connection, incident: Incident, fingerprints: tuple[str, ...]) -> bool:
    """Let open events of an incident's probes stand for it; ``False``: there is none."""
    if not fingerprints:
        return False
    named = (events.c.fingerprint.in_(fingerprints), events.c.resolved_at.is_(None))
    return connection.execute(update(events).where(*named).values(incident_id=incident.number)).rowcount > 0
