"""Who sends alerts: what each source has brought, and what it last sent that could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Connection, func, select

from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import alert_deliveries, alert_sources

_SHOWN = 300  # characters of what could not be read


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A source, declared or heard of; counts are of what it has sent since it was heard of first."""

    source: str
    kind: SenderKind | None  # None: it is not declared
    declared: bool  # in the operator's file
    bodies: int
    alerts: int
    unreadable: int  # bodies
    readable: bool  # the latest one; true where none has come
    since: datetime | None  # when its first body came; None: never
    heard_at: datetime | None  # when its latest came
    unreadable_at: datetime | None
    reason: str | None  # why the last one could not be read that could not
    sent: str | None  # its beginning, without secrets; None: it is not kept any more


def listed(connection: Connection, declared: Sequence[AlertSource] = ()) -> Sequence[SourceEntry]:
    """Return the sources that are declared, in their order, then those that were only heard of, by name."""
    body = func.substr(alert_deliveries.c.raw, 1, _SHOWN).label("sent")
    query = select(alert_sources, body).outerjoin(
        alert_deliveries, alert_deliveries.c.id == alert_sources.c.delivery_id
    )
    rows = {row.source: row for row in connection.execute(query.order_by(alert_sources.c.source))}
    found = [_entry(source.name, source.kind, rows.pop(source.name, None)) for source in declared]
    return [*found, *(_entry(name, None, row) for name, row in rows.items())]


def _entry(name: str, kind: SenderKind | None, row: TableRow | None) -> SourceEntry:
    return SourceEntry(
        source=name,
        kind=kind,
        declared=kind is not None,
        bodies=0 if row is None else row.bodies,
        alerts=0 if row is None else row.alerts,
        unreadable=0 if row is None else row.unreadable,
        readable=row is None or row.readable,
        since=None if row is None else row.since,
        heard_at=None if row is None else row.heard_at,
        unreadable_at=None if row is None else row.unreadable_at,
        reason=None if row is None else row.reason,
        sent=None if row is None else row.sent,
    )
