"""Who sends alerts: what each source has brought, and what it last sent that could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from claudeops.store.tables import alert_deliveries, alert_sources

_SHOWN = 300  # characters of what could not be read


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceEntry:
    """A source that was heard of; counts are since then."""

    source: str
    since: datetime
    heard_at: datetime
    bodies: int
    alerts: int
    unreadable: int  # bodies
    readable: bool  # the latest one
    unreadable_at: datetime | None
    reason: str | None  # why the last one could not be read that could not
    sent: str | None  # its beginning, without secrets; None: it is not kept any more


def heard(connection: Connection) -> Sequence[SourceEntry]:
    """Return the sources that were ever heard of, by name."""
    body = func.substr(alert_deliveries.c.raw, 1, _SHOWN).label("sent")
    query = select(alert_sources, body).outerjoin(
        alert_deliveries, alert_deliveries.c.id == alert_sources.c.delivery_id
    )
    return [
        SourceEntry(
            source=row.source,
            since=row.since,
            heard_at=row.heard_at,
            bodies=row.bodies,
            alerts=row.alerts,
            unreadable=row.unreadable,
            readable=row.readable,
            unreadable_at=row.unreadable_at,
            reason=row.reason,
            sent=row.sent,
        )
        for row in connection.execute(query.order_by(alert_sources.c.source))
    ]
