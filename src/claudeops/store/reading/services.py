"""How services were seen, and what was done about them: checks, the probes that watch them, the ledger of actions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Select, select

from claudeops.domain.actions import Action, PastAction, Recheck
from claudeops.domain.chains import cooldown
from claudeops.domain.chains.cooldown import Left
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.listing import Listing, Page
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.report import CheckSource, ServiceStatus
from claudeops.store import action_ledger
from claudeops.store.reading import named, page, within
from claudeops.store.rows import TableRow
from claudeops.store.tables.probes import probes
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions
from claudeops.text import casefold_key, same


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a session or a probe said of a service."""

    check_id: int
    service: str
    status: ServiceStatus
    detail: str | None
    source: CheckSource
    checked_at: datetime
    session_id: int | None  # None: a probe
    tier: int | None


class ProbeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe stands."""

    name: str
    service: str
    kind: str
    state: ProbeState
    since: datetime | None
    last_checked_at: datetime | None
    latency_ms: float | None
    detail: str


class ActionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action on a service, as the cooldown ledger has it."""

    action_id: int
    service: str
    action_type: str
    timestamp: datetime
    success: bool | None  # None: its result was not seen yet
    error: str | None
    tier: int
    session_id: int
    chain: int
    cleared_at: datetime | None  # since then it counts for no limit
    held: Recheck | None  # whether what it was for still held later; None: nobody has looked yet
    held_checked_at: datetime | None
    follow_up_at: datetime | None  # when somebody looks whether it held
    follow_up_session_id: int | None  # the session that looks


def checks(connection: Connection, wanted: Listing) -> Page[CheckEntry]:
    """Return what was seen of services, newest first."""
    query = select(service_checks, sessions.c.tier).outerjoin(sessions, sessions.c.id == service_checks.c.session_id)
    query = _asked(within(query, service_checks.c.checked_at, wanted), wanted)
    either = _of_service(connection, service_checks.c.service, wanted)
    return page(connection, query, service_checks.c.id, wanted, _check, either=either)


def probes_of(connection: Connection, service: str | None = None) -> Sequence[ProbeEntry]:
    """Return how the probes stand; only those of a service, if one is named."""
    rows = connection.execute(select(probes).order_by(probes.c.service, probes.c.name))
    wanted = None if service is None else casefold_key(service)
    return [_probe(row) for row in rows if wanted in {None, casefold_key(row.service)}]


def actions(connection: Connection, wanted: Listing) -> Page[ActionEntry]:
    """Return the ledger of actions, newest first."""
    query = select(cooldown_actions, sessions.c.root_session_id).join(
        sessions, sessions.c.id == cooldown_actions.c.session_id
    )
    query = within(query, cooldown_actions.c.timestamp, wanted)
    if wanted.tier is not None:
        query = query.where(cooldown_actions.c.tier == wanted.tier)
    if wanted.outcome is not None:
        query = query.where(sessions.c.outcome == wanted.outcome.value)
    either = _of_service(connection, cooldown_actions.c.service, wanted)
    return page(connection, query, cooldown_actions.c.id, wanted, to_action, either=either)


def limits_left(
    connection: Connection, rules: EscalationRules, now: datetime, *, service: str | None = None
) -> Sequence[Left]:
    """Return what is left of the limits that actions have touched; only of a service, if one is named."""
    left = cooldown.left(action_ledger.counted(connection, rules, now), rules.limits, rules.limits, now)
    return tuple(one for one in left if service is None or same(one.service, service))


def limits_after(
    connection: Connection, rules: EscalationRules, now: datetime, *, actions: Sequence[Action]
) -> tuple[Left, ...]:
    """Return what is left of the limits of actions once these have run."""
    ran = [PastAction(kind=action.kind, service=action.service, at=now) for action in actions]
    ledger = (*action_ledger.counted(connection, rules, now), *ran)
    left = cooldown.left(ledger, sorted({action.kind for action in actions}), rules.limits, now)
    return tuple(one for one in left if any(same(one.service, action.service) for action in actions))


def to_action(row: TableRow) -> ActionEntry:
    """Return a row of the ledger, with the ``root_session_id`` of its session, as an entry."""
    return ActionEntry(
        action_id=row.id,
        service=row.service,
        action_type=row.action_type,
        timestamp=row.timestamp,
        success=row.success,
        error=row.error,
        tier=row.tier,
        session_id=row.session_id,
        chain=row.root_session_id,
        cleared_at=row.cleared_at,
        held=None if row.held is None else Recheck(row.held),
        held_checked_at=row.held_checked_at,
        follow_up_at=row.follow_up_at,
        follow_up_session_id=row.follow_up_id,
    )


def _of_service(connection: Connection, column: Column[str], wanted: Listing) -> Sequence[ColumnElement[bool]] | None:
    """Return a condition for each spelling of the service; None: any service is asked for."""
    if wanted.service is None:
        return None
    return [column == name for name in named(connection, column, wanted.service)]


def _asked(query: Select[Any], wanted: Listing) -> Select[Any]:
    if wanted.tier is not None:
        query = query.where(sessions.c.tier == wanted.tier)
    if wanted.outcome is not None:
        query = query.where(sessions.c.outcome == wanted.outcome.value)
    return query


def _check(row: TableRow) -> CheckEntry:
    return CheckEntry(
        check_id=row.id,
        service=row.service,
        status=ServiceStatus(row.status),
        detail=row.detail,
        source=CheckSource(row.source),
        checked_at=row.checked_at,
        session_id=row.session_id,
        tier=row.tier,
    )


def _probe(row: TableRow) -> ProbeEntry:
    return ProbeEntry(
        name=row.name,
        service=row.service,
        kind=row.kind,
        state=ProbeState(row.state),
        since=row.since,
        last_checked_at=row.last_checked_at,
        latency_ms=row.latency_ms,
        detail=row.detail,
    )
