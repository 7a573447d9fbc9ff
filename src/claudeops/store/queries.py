"""Queries that transactions of several subjects share; each function takes an open connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import Connection, Integer, Select, and_, bindparam, exists, false, func, not_, select

from claudeops.domain.actions import TOO_LATE
from claudeops.domain.chains import escalation
from claudeops.domain.chains.consequences import NO_WITNESSES, LastSeen
from claudeops.domain.estate.service_names import counted_by
from claudeops.domain.probes.probe import ProbeSight, ProbeState
from claudeops.domain.report import evidence
from claudeops.domain.report.evidence import Background, ChainCause, KnownServices, Statement
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import Session, Trigger
from claudeops.policy import grants
from claudeops.store.rows import TableRow, to_handover, to_names, to_past_check, to_session
from claudeops.store.tables.alerting import alerts, incidents, is_unresolved
from claudeops.store.tables.base import each_value
from claudeops.store.tables.daemon import instances
from claudeops.store.tables.probes import probes
from claudeops.store.tables.sessions import cooldown_actions, other_sessions, service_checks, sessions, tool_calls
from claudeops.text import casefold_key, clip


def latest_checks() -> Select[tuple[int]]:
    """Return the query for the ids of the latest checks, one a service."""
    name = each_value(service_checks.c.service).subquery()
    latest = select(func.max(service_checks.c.id)).where(service_checks.c.service == name.c.name)
    return select(latest.scalar_subquery()).select_from(name)


# Every claim and every end of a session runs these, so they are built once: building and compiling a statement takes
# three times as long as running it.
_SESSION: Final = select(sessions).where(sessions.c.id == bindparam("session"))
_STARTED_AT: Final = select(sessions.c.started_at).where(sessions.c.id == bindparam("session"))
_HELD_SERVICES: Final = (
    select(tool_calls.c.held_service)
    .join(sessions, sessions.c.id == tool_calls.c.session_id)
    .where(sessions.c.root_session_id == bindparam("root"), tool_calls.c.held_service.is_not(None))
    .distinct()
    .order_by(tool_calls.c.held_service)
)
_BEFORE: Final = and_(sessions.c.root_session_id == bindparam("root"), sessions.c.id < bindparam("session"))
_EARLIER: Final = (
    select(
        *(sessions.c.context, sessions.c.prompt_text, sessions.c.services),
        *(sessions.c.trigger, sessions.c.parent_session_id),
    )
    .where(_BEFORE)
    .order_by(sessions.c.id)
)
_OWN_INCIDENT: Final = (
    select(incidents.c.number, incidents.c.services, incidents.c.service, incidents.c.fired_at)
    .join(sessions, sessions.c.incident_id == incidents.c.number)
    # Without an alert it is what a report of the chain itself has found, and has started nothing.
    .where(sessions.c.id == bindparam("session"), exists().where(alerts.c.incident_id == incidents.c.number))
)
_OPEN_INCIDENTS: Final = (
    select(incidents.c.number)
    .where(is_unresolved)
    .order_by(incidents.c.number.desc())
    .limit(bindparam("most", type_=Integer))
)
_DOCUMENTS: Final = ("panel", "docs", "documentation", "wiki")  # begin the keys of an alert's links to pages about it
_LINKS: Final = ("url", "uri", "href", "_link", "_links")  # end them
_PAGES: Final = ("runbook", "playbook", "dashboard", "generator", "silence")  # stand anywhere in them
_TOLD_BY_ALERTS: Final = (
    select(alerts.c.service, alerts.c.labels, alerts.c.annotations)
    .where(alerts.c.incident_id.in_(bindparam("incidents", expanding=True)))
    .order_by(alerts.c.id.desc())
    .limit(bindparam("most", type_=Integer))
)
_MOST_ALERTS: Final = 300  # whose words say where a service answers
_MOST_INCIDENTS: Final = 100  # likewise, beside the chain's own
_EARLIER_CHECKS: Final = (
    select(service_checks)
    .join(sessions, sessions.c.id == service_checks.c.session_id)
    .where(_BEFORE)
    .order_by(service_checks.c.session_id, service_checks.c.id)
)
_EARLIER_ACTIONS: Final = (
    select(cooldown_actions)
    .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
    .where(_BEFORE)
    .order_by(cooldown_actions.c.session_id, cooldown_actions.c.id)
)
_LAST_CHECK: Final = (
    select(
        service_checks.c.status, service_checks.c.checked_at, service_checks.c.session_id, other_sessions.c.started_at
    )
    .outerjoin(sessions, sessions.c.id == service_checks.c.session_id)
    .outerjoin(other_sessions, other_sessions.c.id == sessions.c.root_session_id)
    .where(
        service_checks.c.service.in_(bindparam("names", expanding=True)),
        service_checks.c.session_id.is_distinct_from(bindparam("besides")),
        not_(  # such a session vouches for nothing
            and_(
                service_checks.c.status == ServiceStatus.HEALTHY.value,
                func.coalesce(sessions.c.outcome.in_([outcome.value for outcome in NO_WITNESSES]), false()),
            )
        ),
    )
    .order_by(service_checks.c.id.desc())
    .limit(1)
)
_LAST_ACTION: Final = select(func.max(cooldown_actions.c.timestamp)).where(
    cooldown_actions.c.service.in_(bindparam("names", expanding=True)), cooldown_actions.c.cleared_at.is_(None)
)
_LATEST_CHECKS: Final = (
    select(service_checks.c.service, service_checks.c.status)
    .where(service_checks.c.id.in_(latest_checks()))
    .order_by(service_checks.c.id)
)
_SAYS_NOTHING_IS_WRONG: Final = (Trigger.SCHEDULED.value, Trigger.FOLLOW_UP.value)
"""Why chains start whose request names services only to have them looked at."""

_SIGHTS: Final = select(
    probes.c.name,
    probes.c.service,
    probes.c.state,
    probes.c.last_checked_at,
    probes.c.latency_ms,
    probes.c.successes,
    probes.c.healthy_since,
).order_by(probes.c.name)
_COUNTED_SERVICES: Final = each_value(cooldown_actions.c.service, cooldown_actions.c.cleared_at.is_(None))
_CHECKED_SERVICES: Final = each_value(service_checks.c.service)


# --- sessions ---------------------------------------------------------------------------------------------


def session(connection: Connection, session_id: int) -> Session | None:
    """Return one session, if it exists."""
    row = connection.execute(_SESSION, {"session": session_id}).one_or_none()
    return None if row is None else to_session(row)


# --- actions and the state of services ---------------------------------------------------------------------


def findings(connection: Connection, session: Session) -> grants.Findings:
    """Return the services that others than the running session itself have found to be unwell."""
    checks = service_checks.c
    reported = connection.execute(
        select(checks.service, checks.status)
        .join(sessions, sessions.c.id == checks.session_id)
        .where(sessions.c.root_session_id == session.root_session_id, sessions.c.id != session.id)
    )
    request = select(sessions.c.prompt_text).where(
        sessions.c.id == session.root_session_id, sessions.c.trigger.not_in(_SAYS_NOTHING_IS_WRONG)
    )
    return grants.findings(
        reported=[(row.service, row.status) for row in reported],
        probed=[(sight.service, ServiceStatus.DOWN.value) for sight in sights(connection) if sight.is_down],
        session=session,
        request=connection.execute(request).scalar_one_or_none(),
    )


def sights(connection: Connection) -> tuple[ProbeSight, ...]:
    """Return what every probe says of its service now."""
    return tuple(map(to_sight, connection.execute(_SIGHTS)))


def to_sight(row: TableRow) -> ProbeSight:
    """Return a ``probes`` row as what it says now."""
    took = timedelta(milliseconds=row.latency_ms or 0.0)
    return ProbeSight(
        probe=row.name,
        service=row.service,
        state=ProbeState(row.state),
        began_at=None if row.last_checked_at is None else row.last_checked_at - took,
        failed=row.successes == 0,
        healthy_since=row.healthy_since,
    )


def held_services(connection: Connection, root_session_id: int) -> tuple[str, ...]:
    """Return the services whose cooldown refused an action to a session of the chain."""
    return tuple(connection.execute(_HELD_SERVICES, {"root": root_session_id}).scalars())


def chain_started_at(connection: Connection, root_session_id: int) -> datetime | None:
    """Return when the first session of a chain started."""
    return connection.execute(_STARTED_AT, {"session": root_session_id}).scalar_one_or_none()


def background(
    connection: Connection, session: Session, other_names: Mapping[str, str], *, there: TableRow | None = None
) -> Background:
    """Return what the earlier sessions of the chain left on record.

    ``there``, where the caller has it, says whether the session has an incident and whether any is open.
    """
    of_chain = {"root": session.root_session_id, "session": session.id}
    follows = session.id != session.root_session_id  # most sessions are the first of their chain: nothing to ask
    incident = None
    if there is None or there.incident_id is not None:
        incident = connection.execute(_OWN_INCIDENT, {"session": session.id}).one_or_none()
    in_question = [] if incident is None else [incident.number]
    if there is None or there.open_incidents:
        in_question += connection.execute(_OPEN_INCIDENTS, {"most": _MOST_INCIDENTS}).scalars()
    alerted = {"incidents": in_question, "most": _MOST_ALERTS}
    return to_background(
        session,
        earlier=connection.execute(_EARLIER, of_chain).all() if follows else (),
        checks=connection.execute(_EARLIER_CHECKS, of_chain) if follows else (),
        actions=connection.execute(_EARLIER_ACTIONS, of_chain) if follows else (),
        incident=incident,
        alerted=connection.execute(_TOLD_BY_ALERTS, alerted) if in_question else (),
        other_names=other_names,
    )


def unhealthy_services(connection: Connection, other_names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the services whose latest check, by whichever name, was not a healthy one; sorted."""
    counted = counted_by(other_names)
    latest = {casefold_key(counted(row.service)): row for row in connection.execute(_LATEST_CHECKS)}
    unwell = (row for row in latest.values() if row.status != ServiceStatus.HEALTHY.value)
    return tuple(sorted(counted(row.service) for row in unwell))


def spellings(connection: Connection, names: KnownServices) -> Mapping[str, Sequence[str]]:
    """Return the names under which services were checked or acted upon, by their canonical names."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    stored = (*connection.execute(_CHECKED_SERVICES).scalars(), *connection.execute(_COUNTED_SERVICES).scalars())
    for name in dict.fromkeys(stored):
        found[names.of(name)].append(name)
    return found


def last_seen(
    connection: Connection, names: Sequence[str], *, probes: Sequence[ProbeSight], besides: int
) -> LastSeen | None:
    """Return how sessions other than ``besides``, and probes, last saw a service; ``None``: nobody ever did.

    ``names`` are all names of the service in rows, ``probes`` those that are about it.
    """
    row = connection.execute(_LAST_CHECK, {"names": names, "besides": besides}).one_or_none()
    probed = evidence.seen_by_probes(probes)
    if row is not None:
        checked = row.checked_at if row.session_id is None else row.started_at
        if probed is None or (checked is not None and checked >= probed[1]):
            probed = ServiceStatus(row.status), checked
    if probed is None:
        return None
    status, looked_at = probed
    last_action_at = connection.execute(_LAST_ACTION, {"names": names}).scalar_one_or_none()
    return LastSeen(status=status, looked_at=looked_at, last_action_at=last_action_at)


def to_background(
    session: Session,
    *,
    earlier: Sequence[TableRow],
    checks: Iterable[TableRow],
    actions: Iterable[TableRow],
    other_names: Mapping[str, str],
    incident: TableRow | None = None,
    alerted: Iterable[TableRow] = (),
) -> Background:
    """Return what the ``earlier`` sessions of a chain left, from their rows in each table, oldest first.

    ``incident`` is the chain's own, if alerts belong to it; ``alerted`` are the alerts of it and of every open one.
    """
    own = () if session.context is None else (session.context,)
    handovers = [context for row in earlier if (context := to_handover(row.context)) is not None]
    return evidence.background(
        checks=[to_past_check(row) for row in checks],
        actions=[(row.session_id, row.service) for row in actions if row.error != TOO_LATE],
        handovers=(*handovers, *own),
        request=earlier[0].prompt_text if earlier else session.prompt_text,
        names=KnownServices(other_names, clip),
        causes=_causes(session, earlier, incident),
        said=[statement for row in alerted for statement in _said(row)],
    )


def _causes(session: Session, earlier: Sequence[TableRow], incident: TableRow | None) -> Iterator[ChainCause]:
    """Yield the services for which a chain was started: of its request, its first handover, and its incident."""
    if incident is not None:
        services = to_names(incident.services) or (incident.service,)
        yield from (ChainCause(service=service, since=incident.fired_at) for service in services)
    first = to_handover(earlier[0].context) if earlier else session.context
    if first is not None:
        yield from (ChainCause(service=service) for service in escalation.handover_services(first))
    asked = [(row.parent_session_id, row.trigger, to_names(row.services)) for row in earlier]
    asked.append((session.parent_session_id, session.trigger.value, session.services))
    # A person may go on with a chain, and ask for something else.
    starts = [services for parent, trigger, services in asked if parent is None or trigger == Trigger.MANUAL.value]
    yield from (ChainCause(service=service) for service in (starts[-1] if starts else ()))


def _said(row: TableRow) -> Iterator[Statement]:
    """Yield what an alert says of its service: each label and annotation by itself, as each may name an address.

    Addresses of documents and of the monitoring itself answer for another service.
    """
    for text in (row.labels, row.annotations):
        with suppress(msgspec.MsgspecError):
            for key, value in msgspec.json.decode(text, type=dict[str, str]).items():
                if not _names_document(key):
                    yield Statement(text=value, service=row.service)


def _names_document(key: str) -> bool:
    """Tell whether a label or annotation is a link to a page about an alert, and not where its service answers."""
    plain = key.casefold().strip("_")
    is_link = plain.startswith(_DOCUMENTS) or plain.endswith(_LINKS) or any(page in plain for page in _PAGES)
    return is_link and plain not in {"url", "uri"}


def places(connection: Connection) -> Sequence[TableRow]:
    """Return ``node``, ``site`` and ``is_alone`` of each daemon that is registered."""
    return connection.execute(select(instances.c.node, instances.c.site, instances.c.is_alone)).all()
