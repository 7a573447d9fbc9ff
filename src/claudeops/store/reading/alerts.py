"""Alerts: what is known of each, whoever sent it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, or_, select

from claudeops.domain.alerts.alert import AlertDecision, AlertStatus
from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Listing, Page, levels_from
from claudeops.store.reading import named, page
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import alerts


class AlertEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: one row for all that its sender has said of it."""

    alert_id: int
    source: str
    fingerprint: str  # by which its sender means it again
    name: str
    service: str
    severity: EventLevel
    status: AlertStatus
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    url: str  # where its sender shows it; empty: it says none
    starts_at: datetime | None  # as its sender says
    ends_at: datetime | None
    began: datetime  # when it began to fire
    last_seen: datetime
    times: int  # that it was received
    flapping: bool
    decision: AlertDecision | None  # the latest
    incident: int | None  # its number


def listed(connection: Connection, wanted: Listing, *, everything: bool = False) -> Page[AlertEntry]:
    """Return alerts that fire, or all of them, newest first."""
    query = select(alerts, alerts.c.count.label("times"))  # a row has a method `count`
    if not everything:
        query = query.where(alerts.c.status == AlertStatus.FIRING.value)
    either = None
    if wanted.level is not None:
        either = [alerts.c.severity == level.value for level in levels_from(wanted.level)]
    if wanted.service is not None:
        query = query.where(or_(*either)) if either else query
        either = [alerts.c.service == name for name in named(connection, alerts.c.service, wanted.service)]
    return page(connection, query, alerts.c.id, wanted, alert_entry, either=either)


def silenced_alerts() -> Select[Any]:
    """Return the question for alerts that fire and that a silence holds back."""
    return select(alerts, alerts.c.count.label("times")).where(
        alerts.c.status == AlertStatus.FIRING.value, alerts.c.decision == AlertDecision.SILENCED.value
    )


def alert_entry(row: TableRow) -> AlertEntry:
    """Return an alert as lists show it."""
    return AlertEntry(
        alert_id=row.id,
        source=row.source,
        fingerprint=row.fingerprint,
        name=row.name,
        service=row.service,
        severity=EventLevel(row.severity),
        status=AlertStatus(row.status),
        labels=_texts(row.labels),
        annotations=_texts(row.annotations),
        url=row.url,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        began=row.began,
        last_seen=row.last_seen,
        times=row.times,
        flapping=row.flapping,
        decision=None if row.decision is None else AlertDecision(row.decision),
        incident=row.incident_id,
    )


def _texts(text: str) -> Mapping[str, str]:
    """Return labels as they are kept; none where they cannot be read."""
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        return {}
