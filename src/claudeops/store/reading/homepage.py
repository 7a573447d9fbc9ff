"""The figures that Claude Ops gave to Homepage, by the names that its users' widgets ask for.

Counted over everything that is on record, as there; `figures` counts over a time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import Connection, case, func, select

from claudeops.domain.events import EventLevel
from claudeops.domain.memories.confidence import is_believed
from claudeops.domain.sessions import Outcome, Status
from claudeops.store.knowledge.memories import to_known_memory
from claudeops.store.rows import TableRow
from claudeops.store.tables.events import events
from claudeops.store.tables.memories import memories
from claudeops.store.tables.sessions import cooldown_actions, sessions

_RECENT: Final = timedelta(hours=24)
_STATUSES: Final = {Outcome.SUCCESS: "completed", Outcome.TIMEOUT: "timed_out", Outcome.CANCELLED: "cancelled"}


class HomepageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures."""

    total_runs: int  # sessions that have begun
    escalations: int  # sessions that another one has called for
    remediations: int  # actions that were done to services
    success_rate: float  # of sessions that have ended, 0 to 1
    total_cost_usd: float
    active_memories: int  # that are believed
    critical_events: int  # that were seen within 24 hours
    avg_duration_ms: int


class HomepageSession(msgspec.Struct, frozen=True, kw_only=True):
    """The session that began last."""

    id: int
    tier: int
    status: str  # running, completed, failed, timed_out, cancelled
    started_at: datetime
    ended_at: datetime | None
    cost_usd: float | None
    duration_ms: int | None
    trigger: str
    summary: str | None


class Homepage(msgspec.Struct, frozen=True, kw_only=True):
    """What `/api/v1/stats` answers."""

    stats: HomepageFigures
    last_session: HomepageSession | None
    next_run: datetime | None  # None: no schedule is on
    interval_seconds: int


def counted(connection: Connection, now: datetime) -> tuple[HomepageFigures, HomepageSession | None]:
    """Return what the database has of it."""
    ended = sessions.c.status == Status.ENDED.value
    began = sessions.c.started_at.is_not(None)
    row = connection.execute(
        select(
            func.count(),
            func.count(sessions.c.parent_session_id),
            func.sum(case((ended, 1), else_=0)),
            func.sum(case((sessions.c.outcome == Outcome.SUCCESS.value, 1), else_=0)),
            func.coalesce(func.sum(sessions.c.cost_usd), 0),
            func.coalesce(func.avg(sessions.c.duration_ms), 0),
        ).where(began)
    ).one()
    acted = select(func.count()).where(cooldown_actions.c.success)
    critical = select(func.count()).where(
        events.c.level == EventLevel.CRITICAL.value, events.c.last_seen >= now - _RECENT
    )
    known = map(to_known_memory, connection.execute(select(memories).where(memories.c.active)))
    last = connection.execute(select(sessions).where(began).order_by(sessions.c.id.desc()).limit(1)).one_or_none()
    found = HomepageFigures(
        total_runs=row[0],
        escalations=row[1],
        remediations=connection.execute(acted).scalar_one(),
        success_rate=int(row[3] or 0) / int(row[2]) if row[2] else 0.0,
        total_cost_usd=float(row[4]),
        active_memories=sum(is_believed(each, now) for each in known),
        critical_events=connection.execute(critical).scalar_one(),
        avg_duration_ms=round(row[5]),
    )
    return found, None if last is None else _last(last)


def _last(row: TableRow) -> HomepageSession:
    outcome = None if row.outcome is None else Outcome(row.outcome)
    return HomepageSession(
        id=row.id,
        tier=row.tier,
        status="running" if outcome is None else _STATUSES.get(outcome, "failed"),
        started_at=row.started_at,
        ended_at=row.ended_at,
        cost_usd=row.cost_usd,
        duration_ms=row.duration_ms,
        trigger=row.trigger,
        summary=row.summary,
    )
