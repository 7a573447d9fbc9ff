"""Rows of alerts, incidents and silences as values, and back; JSON that cannot be read counts as empty."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from claudeops.domain.alerts.alert import (
    AlertDecision,
    AlertState,
    AlertStatus,
    Incident,
    IncidentStatus,
    Silence,
    Witness,
)
from claudeops.domain.alerts.matchers import Matcher, read_matchers
from claudeops.domain.events import EventLevel
from claudeops.store.rows import TableRow
from claudeops.text import json_text, unique

T = TypeVar("T")

_TEXTS: Final = msgspec.json.Decoder(dict[str, str])
_TIMES: Final = msgspec.json.Decoder(tuple[datetime, ...])
_WITNESSES: Final = msgspec.json.Decoder(tuple[Witness, ...])
_NAMES: Final = msgspec.json.Decoder(tuple[str, ...])
_MATCHERS: Final = msgspec.json.Decoder(list[str])


# --- alerts -----------------------------------------------------------------------------------------------


def state_values(state: AlertState) -> dict[str, object]:
    """Return the columns of an alert."""
    return {
        "source": state.source,
        "fingerprint": state.fingerprint,
        "name": state.name,
        "service": state.service,
        "severity": state.severity.value,
        "status": state.status.value,
        "labels": json_text(dict(state.labels)),
        "annotations": json_text(dict(state.annotations)),
        "url": state.url,
        "starts_at": state.starts_at,
        "ends_at": state.ends_at,
        "said_at": state.reported_at,
        "began": state.began,
        "last_seen": state.last_seen,
        "count": state.count,
        "flips": state.flips,
        "changes": json_text([at.isoformat() for at in state.changes]),
        "flapping": state.flapping,
        "why_asked_at": state.why_asked_at,
        "contested_at": state.contested_at,
        "decision": None if state.decision is None else state.decision.value,
        "service_by": state.service_by or None,
        "sender_group": state.sender_group or None,
        "group_key": state.group_key,
        "due_at": state.due_at,
        "incident_id": state.incident,
    }


def to_state(row: TableRow) -> AlertState:
    """Return an ``alerts`` row as a value."""
    return AlertState(
        source=row.source,
        fingerprint=row.fingerprint,
        name=row.name,
        service=row.service,
        severity=EventLevel(row.severity),
        status=AlertStatus(row.status),
        labels=_decoded(row.labels, _TEXTS, {}),
        annotations=_decoded(row.annotations, _TEXTS, {}),
        url=row.url,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        reported_at=row.said_at,
        began=row.began,
        last_seen=row.last_seen,
        count=row._mapping["count"],  # noqa: SLF001 - SQLAlchemy's public name for it: `count` is a method of every row
        flips=row.flips,
        changes=_decoded(row.changes, _TIMES, ()),
        flapping=row.flapping,
        why_asked_at=row.why_asked_at,
        contested_at=row.contested_at,
        decision=None if row.decision is None else AlertDecision(row.decision),
        service_by=row.service_by or "",
        sender_group=row.sender_group or "",
        group_key=row.group_key,
        due_at=row.due_at,
        incident=row.incident_id,
    )


# --- incidents --------------------------------------------------------------------------------------------


def incident_values(incident: Incident) -> dict[str, object]:
    """Return the columns of an incident, but for what its sessions have cost."""
    return {
        "number": incident.number,
        "service": incident.services[0] if incident.services else "",
        "services": json_text(list(incident.services)),
        "group_key": incident.group_key,
        "severity": incident.severity.value,
        "status": incident.status.value,
        "opened_at": incident.opened_at,
        "fired_at": incident.fired_at,
        "started_at": incident.started_at,
        "last_action_at": incident.last_action_at,
        "acked_by": incident.acked_by or None,
        "acked_at": incident.acked_at,
        "resolved_at": incident.resolved_at,
        "reopened": incident.reopened,
        "witnesses": json_text(msgspec.to_builtins(incident.witnesses)),
        "root_session_id": incident.root_session_id,
    }


def to_incident(row: TableRow) -> Incident:
    """Return an ``incidents`` row as a value."""
    return Incident(
        number=row.number,
        group_key=row.group_key,
        services=services_of(row.services) or (row.service,),
        severity=EventLevel(row.severity),
        status=IncidentStatus(row.status),
        opened_at=row.opened_at,
        fired_at=row.fired_at,
        started_at=row.started_at,
        last_action_at=row.last_action_at,
        acked_by=row.acked_by or "",
        acked_at=row.acked_at,
        resolved_at=row.resolved_at,
        reopened=row.reopened,
        witnesses=_decoded(row.witnesses, _WITNESSES, ()),
        root_session_id=row.root_session_id,
    )


def services_of(text: str | None) -> tuple[str, ...]:
    """Return the services of an incident's row."""
    return () if text is None else unique(_decoded(text, _NAMES, ()))


# --- silences ---------------------------------------------------------------------------------------------


def matchers_text(matchers: tuple[Matcher, ...]) -> str:
    """Return matchers as a JSON list of texts."""
    return json_text([str(matcher) for matcher in matchers])


def to_silence(row: TableRow) -> Silence:
    """Return a ``silences`` row as a value."""
    return Silence(
        id=row.id,
        matchers=read_matchers(_decoded(row.matchers, _MATCHERS, [])),
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        created_by=row.created_by,
        comment=row.comment,
        suppressed_count=row.suppressed_count,
        ended_by=row.ended_by or "",
    )


def _decoded(text: str, decoder: msgspec.json.Decoder[Any], otherwise: T) -> T:
    try:
        found: T = decoder.decode(text)
    except msgspec.MsgspecError:
        return otherwise
    return found
