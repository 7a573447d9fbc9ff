"""Incidents: taken by a person, and declared over."""

from __future__ import annotations

from datetime import datetime

import msgspec

from claudeops.domain.alerts.alert import Incident, IncidentStatus
from claudeops.store.acts import Refusal, missing, refused
from claudeops.store.alerts.incidents import Incidents


class IncidentAct(msgspec.Struct, frozen=True, kw_only=True):
    """An incident after an act."""

    incident: int
    handled: bool = True
    status: IncidentStatus
    acked_by: str | None
    resolved_at: datetime | None


async def acknowledge(incidents: Incidents, number: int, *, by: str, now: datetime) -> IncidentAct | Refusal:
    """Note that a person is on an incident; what else comes about it starts no session."""
    found = await incidents.acknowledge(number, by=by, now=now)
    if found is not None and found.status is IncidentStatus.RESOLVED:
        return refused("incident", number, f"Incident {number} is over already.")
    return _after(number, found)


async def resolve(incidents: Incidents, number: int, *, by: str, now: datetime) -> IncidentAct | Refusal:
    """Note that a person says that an incident is over."""
    return _after(number, await incidents.resolve(number, by=by, now=now))


def _after(number: int, found: Incident | None) -> IncidentAct | Refusal:
    if found is None:
        sentence = f"there is no incident {number}; `claudeops list-incidents --all` shows them"
        return missing("incident", number, sentence)
    return IncidentAct(
        incident=found.number,
        status=found.status,
        acked_by=found.acked_by or None,
        resolved_at=found.resolved_at,
    )
