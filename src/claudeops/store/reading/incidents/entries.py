"""Incidents on record, as lists show them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, false, or_, select

from claudeops.domain.alerts.alert import IncidentStatus, WitnessKind
from claudeops.domain.alerts.incidents import lasted
from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Listing, Page, levels_from
from claudeops.store.alerts.rows import to_incident
from claudeops.store.reading import named, page, within
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import incidents

_NOT_OVER = tuple(status for status in IncidentStatus if status is not IncidentStatus.RESOLVED)


class WitnessEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One who says that the trouble is over."""

    kind: WitnessKind
    name: str  # of the source, the probe, the session or the person
    at: datetime


class IncidentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An incident, as a list shows it."""

    incident: int  # its number
    status: IncidentStatus
    severity: EventLevel  # the highest that was reached
    services: tuple[str, ...]
    opened_at: datetime
    resolved_at: datetime | None
    lasted_s: int  # until its end, or until now
    reopened: int  # times
    acked_by: str | None  # who is on it
    acked_at: datetime | None
    chain: int | None  # the latest that was started for it
    spend_usd: float | None
    last_action_at: datetime | None  # when a session last changed something
    witnesses: tuple[WitnessEntry, ...]  # one of a kind


def listed(connection: Connection, wanted: Listing, *, everything: bool, now: datetime) -> Page[IncidentEntry]:
    """Return incidents, newest first; those that are over too, if ``everything`` is asked for."""
    query = within(select(incidents), incidents.c.opened_at, wanted)
    either = None
    if wanted.service is not None:
        either = [incidents.c.service == name for name in named(connection, incidents.c.service, wanted.service)]
    if not everything:  # few are not over, whatever else is asked for
        query = query.where(or_(false(), *either)) if either is not None else query
        either = [incidents.c.status == status.value for status in _NOT_OVER]
    if wanted.level is not None and either is None:
        either = [incidents.c.severity == level.value for level in levels_from(wanted.level)]
    elif wanted.level is not None:
        query = query.where(incidents.c.severity.in_(levels_from(wanted.level)))
    read = partial(_entry, now=now)
    return page(connection, query, incidents.c.number, wanted, read, either=either)


def numbered(number: int) -> Select[Any]:
    """Return the query for one incident."""
    return select(incidents).where(incidents.c.number == number)


def _entry(row: TableRow, now: datetime) -> IncidentEntry:
    return IncidentEntry(**head_of(row, now))


def head_of(row: TableRow, now: datetime) -> dict[str, Any]:
    """Return the fields of an `IncidentEntry`."""
    incident = to_incident(row)
    return {
        "incident": incident.number,
        "status": incident.status,
        "severity": incident.severity,
        "services": incident.services,
        "opened_at": incident.opened_at,
        "resolved_at": incident.resolved_at,
        "lasted_s": round(lasted(incident, now).total_seconds()),
        "reopened": incident.reopened,
        "acked_by": incident.acked_by or None,
        "acked_at": incident.acked_at,
        "chain": incident.root_session_id,
        "spend_usd": row.spend_usd,
        "last_action_at": incident.last_action_at,
        "witnesses": tuple(WitnessEntry(kind=each.kind, name=each.name, at=each.at) for each in incident.witnesses),
    }


# --- the timeline -----------------------------------------------------------------------------------------
