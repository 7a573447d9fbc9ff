"""Incidents: one trouble from its first signal to its proven end.

An incident ends when two say so: one from outside (its alerts are all resolved, or a probe sees the service up) and a
session that has looked. Both must have spoken since the last alert came, and the session since the last action.
Only a person's word needs no second one. What comes back within the hour is the same trouble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import AlertState, Incident, IncidentStatus, Witness, WitnessKind
from claudeops.domain.alerts.rules import rank
from claudeops.domain.events import EventLevel
from claudeops.structs import replace
from claudeops.text import unique

MOST_SERVICES: Final = 200
"""Of one incident; a storm has more, and its timeline names them."""


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What a session that has ended says about incidents; services by the key that they are compared by."""

    session_id: int
    chain: int  # by its first session
    at: datetime
    acted: Mapping[str, datetime]  # service → when it was last changed
    is_healthy: bool  # its report says so, and there is proof
    healthy: frozenset[str]  # with a look at that very service, or a probe's answer
    broken: frozenset[str]


class IncidentNews(StrEnum):
    """What has become of an incident; each is announced once for each time that it is open."""

    OPENED = "opened"
    REOPENED = "reopened"
    WORSE = "worse"  # more severe than it has ever been
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


_OUTSIDE: Final = frozenset({WitnessKind.SOURCE, WitnessKind.PROBE})


def opened(number: int, *, group_key: str, services: Iterable[str], severity: EventLevel, at: datetime) -> Incident:
    """Return a new incident."""
    return Incident(
        number=number,
        group_key=group_key,
        services=unique(services)[:MOST_SERVICES],
        severity=severity,
        opened_at=at,
        fired_at=at,
    )


def with_alert(incident: Incident, state: AlertState, at: datetime) -> Incident:
    """Return an incident that one more alert belongs to; one that was resolved is open again."""
    back = not incident.is_open
    services = incident.services
    is_known = state.service in services or len(services) >= MOST_SERVICES
    is_worse = rank(state.severity) > rank(incident.severity)
    if is_known and not (back or is_worse or incident.witnesses or at > incident.fired_at):
        return incident  # as it is for nearly all of a storm's thousands
    if not is_known:
        services = unique((*services, state.service))[:MOST_SERVICES]
    return replace(
        incident,
        services=services,
        severity=max(incident.severity, state.severity, key=rank),
        fired_at=max(incident.fired_at, at),
        status=IncidentStatus.OPEN if back else incident.status,
        resolved_at=None if back else incident.resolved_at,
        reopened=incident.reopened + back,
        acked_by="" if back else incident.acked_by,
        acked_at=None if back else incident.acked_at,
        witnesses=(),
    )


def news(before: Incident | None, after: Incident) -> IncidentNews | None:
    """Return what has become of an incident; ``None``: nothing that is announced."""
    if before is None:
        return IncidentNews.OPENED if after.is_open else None
    if before.is_open is not after.is_open:
        return IncidentNews.REOPENED if after.is_open else IncidentNews.RESOLVED
    if not after.is_open:
        return None
    if rank(after.severity) > rank(before.severity):
        return IncidentNews.WORSE
    is_taken = after.status is IncidentStatus.ACKNOWLEDGED and before.status is IncidentStatus.OPEN
    return IncidentNews.ACKNOWLEDGED if is_taken else None


def may_reopen(incident: Incident, at: datetime, within: timedelta) -> bool:
    """Return whether what comes now is the trouble that has just ended."""
    return incident.resolved_at is not None and incident.resolved_at <= at < incident.resolved_at + within


def started(incident: Incident, at: datetime) -> Incident:
    """Return an incident for which a chain was started."""
    return replace(incident, started_at=at)


def acted(incident: Incident, at: datetime) -> Incident:
    """Return an incident in which a session has changed something: what was seen before proves nothing any more."""
    return replace(incident, last_action_at=max(incident.last_action_at or at, at))


def after_session(
    incident: Incident, end: SessionEnd, *, key: Callable[[str], str], is_own: bool, has_alerts: bool
) -> Incident:
    """Return an incident after a session's end.

    ``is_own``: the session belongs to it. An incident without alerts was found by a session, and no source will say
    that it is over: another chain stands for it.
    """
    services = frozenset(map(key, incident.services))
    changes = [at for service, at in end.acted.items() if is_own or service in services]
    after = acted(incident, max(changes)) if changes else incident
    is_well = (is_own and end.is_healthy) or (bool(services) and services <= end.healthy)
    if not incident.is_open or not is_well or services & end.broken:
        return after
    name = f"session {end.session_id}"
    after = witnessed(after, Witness(kind=WitnessKind.LOOK, at=end.at, name=name))
    if has_alerts or incident.root_session_id in {None, end.chain}:
        return after
    return witnessed(after, Witness(kind=WitnessKind.SOURCE, at=end.at, name=name))


def acknowledged(incident: Incident, *, by: str, at: datetime) -> Incident:
    """Return an incident that a person is on; one that is over stays so, and the first who took it has it."""
    if incident.status is not IncidentStatus.OPEN:
        return incident
    return replace(incident, status=IncidentStatus.ACKNOWLEDGED, acked_by=by, acked_at=at)


def witnessed(incident: Incident, witness: Witness) -> Incident:
    """Return an incident with one more witness, resolved if that proves its end."""
    if not incident.is_open:
        return incident
    others = tuple(each for each in incident.witnesses if each.kind is not witness.kind)
    after = replace(incident, witnesses=(*others, witness))
    if not is_proven(after):
        return after
    return replace(after, status=IncidentStatus.RESOLVED, resolved_at=witness.at)


def beating_again(incident: Incident, *, name: str, at: datetime, has_alerts: bool) -> Incident:
    """Return the incident of a heartbeat that has come again: its end, unless alerts or a chain have made it more."""
    after = witnessed(incident, Witness(kind=WitnessKind.PROBE, at=max(at, incident.fired_at), name=name))
    if has_alerts or incident.started_at is not None or not after.is_open:
        return after
    return replace(after, status=IncidentStatus.RESOLVED, resolved_at=at)


def is_proven(incident: Incident) -> bool:
    """Return whether the witnesses prove the end."""
    kinds = {witness.kind for witness in incident.witnesses if counts(incident, witness)}
    return WitnessKind.OPERATOR in kinds or (WitnessKind.LOOK in kinds and bool(_OUTSIDE & kinds))


def counts(incident: Incident, witness: Witness) -> bool:
    """Return whether a witness has seen the latest: no alert came after, and no action ran after a look."""
    if witness.at < incident.fired_at:
        return False
    is_before_action = incident.last_action_at is not None and witness.at <= incident.last_action_at
    return not (is_before_action and witness.kind in {WitnessKind.LOOK, WitnessKind.PROBE})


def wants_look(incident: Incident) -> bool:
    """Return whether all that is missing for the end is a session that looks."""
    kinds = {witness.kind for witness in incident.witnesses if counts(incident, witness)}
    return incident.is_open and bool(_OUTSIDE & kinds) and WitnessKind.LOOK not in kinds


def lasted(incident: Incident, now: datetime) -> timedelta:
    """Return how long an incident has lasted."""
    return max(timedelta(0), (incident.resolved_at or now) - incident.opened_at)
