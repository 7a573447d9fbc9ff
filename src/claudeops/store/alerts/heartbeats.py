"""Incidents of heartbeats for which no session is started: their silence opens one, and their next ping ends it.

Nobody needs to look: what was missing is the ping, and the ping is its own proof. An incident that alerts have joined,
or for which a chain was started all the same, ends as every other does; the ping is one witness of two then.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, select

from claudeops.domain.alerts.alert import Incident, Witness, WitnessKind
from claudeops.domain.alerts.incidents import beating_again, opened, witnessed
from claudeops.domain.events import EventLevel
from claudeops.domain.probes.probe import Probe
from claudeops.domain.probes.record import Telling
from claudeops.store.alerts import announcements
from claudeops.store.alerts import incidents as of_incidents
from claudeops.store.alerts.rows import to_incident
from claudeops.store.tables.alerting import alerts, incidents, is_unresolved

_PREFIX: Final = "heartbeat:"
_UNDECLARED: Final = "a file that no longer declares it"
_OPEN: Final = select(incidents).where(incidents.c.group_key == bindparam("of_group"), is_unresolved)
_HAS_ALERTS: Final = select(alerts.c.id).where(alerts.c.incident_id == bindparam("incident")).limit(1)


def heard(connection: Connection, probe: Probe, told: Telling) -> None:
    """Open the incident of a heartbeat that has fallen silent, or hear of its return; call it after its events."""
    known = _open(connection, probe)
    if told.events and known is None:
        _begin(connection, probe, told)
    elif known is not None and not told.events:
        has_alerts = connection.execute(_HAS_ALERTS, {"incident": known.number}).first() is not None
        after = beating_again(known, name=probe.name, at=told.at, has_alerts=has_alerts)
        of_incidents.write(connection, after, before=known, at=told.at)


def gone(connection: Connection, name: str, *, at: datetime) -> None:
    """End the incident of a heartbeat that is no longer declared: nobody waits for it any more."""
    row = connection.execute(_OPEN, {"of_group": f"{_PREFIX}{name}"}).first()
    if row is not None:
        known = to_incident(row)
        after = witnessed(known, Witness(kind=WitnessKind.OPERATOR, at=max(at, known.fired_at), name=_UNDECLARED))
        of_incidents.write(connection, after, before=known, at=at)


def _begin(connection: Connection, probe: Probe, told: Telling) -> None:
    event = told.events[0]
    incident = opened(
        of_incidents.next_number(connection),
        group_key=f"{_PREFIX}{probe.name}",
        services=(probe.service,),
        severity=max(event.level, EventLevel.WARNING, key=list(EventLevel).index),
        at=told.at,
    )
    of_incidents.write(connection, incident, before=None, at=told.at, stand_ins=(event.fingerprint,))
    announcements.opened(connection, incident, event.message, at=told.at)


def _open(connection: Connection, probe: Probe) -> Incident | None:
    row = connection.execute(_OPEN, {"of_group": f"{_PREFIX}{probe.name}"}).first()
    return None if row is None else to_incident(row)
