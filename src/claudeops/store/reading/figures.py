"""How it went over a time: sessions by tier and outcome, decisions, tool calls, actions and whether they held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, case, func, select

from claudeops.domain.sessions import Outcome, Status
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions, tool_calls

_ENDED = sessions.c.status == Status.ENDED.value


class TierFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The ended sessions of a tier."""

    tier: int
    sessions: int
    succeeded: int
    mean_duration_ms: float | None
    mean_turns: float | None
    mean_cost_usd: float | None
    cost_usd: float | None


class CountedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is counted."""

    since: datetime
    chains: int
    sessions: int  # that ended
    tiers: tuple[TierFigures, ...]
    outcomes: Mapping[str, int]
    decisions: Mapping[str, int]
    triggers: Mapping[str, int]
    verdicts: Mapping[str, int]  # of tool calls
    actions: int
    actions_failed: int
    actions_held: Mapping[str, int]  # of those that were looked at again
    events: Mapping[str, int]  # by level, those seen since then
    checks: Mapping[str, int]  # by status


def figures(connection: Connection, since: datetime) -> CountedFigures:
    """Count what ended, was asked or was done since a moment."""
    ended = [_ENDED, sessions.c.ended_at >= since]
    chains = select(func.count(sessions.c.root_session_id.distinct())).where(*ended)
    calls = select(tool_calls.c.verdict, func.count()).join(sessions, sessions.c.id == tool_calls.c.session_id)
    done = cooldown_actions.c
    acted = select(func.count(), func.coalesce(func.sum(case((done.success.is_(False), 1), else_=0)), 0)).where(
        done.timestamp >= since
    )
    actions, failed = connection.execute(acted).one()
    held = select(done.held, func.count()).where(done.held_checked_at >= since, done.held.is_not(None))
    tiers = _tiers(connection, since)
    return CountedFigures(
        since=since,
        chains=connection.execute(chains).scalar_one(),
        sessions=sum(tier.sessions for tier in tiers),
        tiers=tuple(tiers),
        outcomes=_counts(connection, select(sessions.c.outcome, func.count()).where(*ended)),
        decisions=_counts(connection, select(sessions.c.decision_reason, func.count()).where(*ended)),
        triggers=_counts(connection, select(sessions.c.trigger, func.count()).where(*ended)),
        verdicts=_counts(connection, calls.where(*ended)),
        actions=actions,
        actions_failed=int(failed),
        actions_held=_counts(connection, held),
        events=_counts(connection, select(events.c.level, func.count()).where(events.c.last_seen >= since)),
        checks=_counts(
            connection, select(service_checks.c.status, func.count()).where(service_checks.c.checked_at >= since)
        ),
    )


def _counts(connection: Connection, query: Select[Any]) -> Mapping[str, int]:
    """Return counts by the query's first column, the greatest first."""
    name = query.selected_columns[0]
    rows = connection.execute(query.group_by(name).order_by(func.count().desc(), name))
    return {row[0]: row[1] for row in rows if row[0] is not None}


def _tiers(connection: Connection, since: datetime) -> Sequence[TierFigures]:
    query = (
        select(
            sessions.c.tier,
            func.count(),
            func.sum(case((sessions.c.outcome == Outcome.SUCCESS.value, 1), else_=0)),
            func.avg(sessions.c.duration_ms),
            func.avg(sessions.c.num_turns),
            func.avg(sessions.c.cost_usd),
            func.sum(sessions.c.cost_usd),
        )
        .where(_ENDED, sessions.c.ended_at >= since)
        .group_by(sessions.c.tier)
        .order_by(sessions.c.tier)
    )
    return [
        TierFigures(
            tier=row[0],
            sessions=row[1],
            succeeded=int(row[2]),
            mean_duration_ms=_number(row[3]),
            mean_turns=_number(row[4]),
            mean_cost_usd=_number(row[5]),
            cost_usd=_number(row[6]),
        )
        for row in connection.execute(query)
    ]


def _number(value: Any) -> float | None:
    # A mean of decimals is a decimal in PostgreSQL.
    return None if value is None else float(value)
