"""The figures that the database alone knows, read in one short look at every scrape.

Every question finds its rows by an index, or in a small table: a test asks the database how it would answer.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, Connection, func, select

from claudeops.domain.alerts.alert import IncidentStatus
from claudeops.domain.events import EventLevel
from claudeops.domain.figures import Figures
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.holds import HoldKind
from claudeops.domain.sessions import DecisionReason, Status
from claudeops.domain.spending.budget import Budgets, last_midnight
from claudeops.store import holds
from claudeops.store.database import Database
from claudeops.store.reading.daily import oldest_untold
from claudeops.store.spend import spent_since
from claudeops.store.tables.alerting import incidents
from claudeops.store.tables.approvals import approvals
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.memories import memories
from claudeops.store.tables.outbox import outbox
from claudeops.store.tables.sessions import sessions
from claudeops.structs import replace

HEALTHY_WITHIN: Final = timedelta(days=7)
"""How far back a healthy round is looked for."""

_OVERLAP: Final = timedelta(hours=1)
"""By which a round may be on record before an earlier look: a result waits while the database is away."""

_ROOTS: Final = sessions.alias("roots")
_QUEUED = sessions.c.status == Status.QUEUED.value
_DUE = func.coalesce(sessions.c.not_before, sessions.c.created_at)
_NOT_OVER: Final = [status.value for status in IncidentStatus if status is not IncidentStatus.RESOLVED]


class FiguresReader:
    """Reads the figures of a daemon whose rounds begin at one tier."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._healthy_at: datetime | None = None  # as it was last seen
        self._looked_at: datetime | None = None

    async def read(self, *, lowest_tier: int, budgets: Budgets | None, now: datetime) -> Figures:
        """Return how things stand. Raises `StoreError`."""
        after = now - HEALTHY_WITHIN if self._looked_at is None else self._looked_at - _OVERLAP

        def figures(connection: Connection) -> Figures:
            standing = {hold.kind: hold for hold in holds.standing(connection, now)}
            parked = standing.get(HoldKind.PARKED)
            since = None if budgets is None else last_midnight(now, budgets.timezone)
            return Figures(
                at=now,
                queued=_count(connection, _QUEUED),
                queued_since=_first_due(connection, now),
                approvals=_count(connection, approvals.c.status == ApprovalStatus.PENDING.value),
                incidents=_incidents(connection),
                outbox=_count(connection, outbox.c.delivered_at.is_(None)),
                outbox_since=oldest_untold(connection, now),
                memories=_count(connection, memories.c.active.is_(True)),
                spent_usd=None if since is None else spent_since(connection, since),
                is_paused=HoldKind.PAUSED in standing,
                parked_until=None if parked is None else parked.until,
                healthy_at=_healthy_at(connection, lowest_tier, after=after),
            )

        found = await self._database.read(figures)
        if found.healthy_at is not None:
            self._healthy_at = max(found.healthy_at, self._healthy_at or found.healthy_at)
        self._looked_at = now
        return replace(found, healthy_at=self._healthy_at)


def _count(connection: Connection, condition: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).where(condition)).scalar_one())


def _first_due(connection: Connection, now: datetime) -> datetime | None:
    query = select(func.min(_DUE, type_=UtcDateTime())).where(_QUEUED, now >= _DUE)
    return connection.execute(query).scalar()


def _incidents(connection: Connection) -> dict[EventLevel, int]:
    query = (
        select(incidents.c.severity, func.count().label("open"))
        .where(incidents.c.status.in_(_NOT_OVER))
        .group_by(incidents.c.severity)
    )
    found = {EventLevel(row.severity): int(row.open) for row in connection.execute(query)}
    return {level: found.get(level, 0) for level in EventLevel}


def _healthy_at(connection: Connection, lowest_tier: int, *, after: datetime) -> datetime | None:
    """Return when the last round ended healthy that began as the usual look."""
    query = (
        select(func.max(sessions.c.ended_at, type_=UtcDateTime()))
        .join(_ROOTS, _ROOTS.c.id == sessions.c.root_session_id)
        .where(
            sessions.c.ended_at >= after,
            sessions.c.decision_reason == DecisionReason.HEALTHY.value,
            _ROOTS.c.tier == lowest_tier,
            _ROOTS.c.prompt_text.is_(None),
        )
    )
    return connection.execute(query).scalar()
