"""How it went over a time: sessions by tier and outcome, decisions, tool calls, actions and whether they held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Integer, Select, String, and_, case, func, literal_column, or_, select

from claudeops.domain.sessions import Outcome
from claudeops.store.reading import earlier, first_id
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions, tool_calls

_ONE: Final = literal_column("1", Integer)  # SQLite knows by the text alone that it may use an index of some rows
_NOTHING: Final = literal_column("''", String)  # in the text, so that PostgreSQL sees the same expression twice


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
    ended = [sessions.c.ended_at >= since]  # without their status, by which SQLite would read all that ever ended
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
        events=_seen_events(connection, since),
        checks=_counts(
            connection, select(service_checks.c.status, func.count()).where(service_checks.c.checked_at >= since)
        ),
    )


def _counts(connection: Connection, query: Select[Any]) -> Mapping[str, int]:
    """Return counts by the query's first column, the greatest first."""
    # As an expression: by the column SQLite would read all rows in its order, not those of the time.
    name: ColumnElement[Any] = query.selected_columns[0].concat(_NOTHING)
    rows = connection.execute(
        query.with_only_columns(name, func.count()).group_by(name).order_by(func.count().desc(), name)
    )
    return {row[0]: row[1] for row in rows if row[0] is not None}


def _seen_events(connection: Connection, since: datetime) -> Mapping[str, int]:
    """Count the events that were last seen since a moment, by level: those raised since, and older ones seen again."""
    first = first_id(events.c.created_at, events.c.created_at >= earlier(since))
    raised = events.c.id >= first
    again = and_(events.c.count > _ONE, or_(first.is_(None), events.c.id < first))
    counts: Counter[str] = Counter()
    for part in (raised, again):
        query = select(events.c.level, func.count()).where(events.c.last_seen >= since, part)
        counts.update(_counts(connection, query))
    return dict(sorted(counts.items(), key=lambda level: (-level[1], level[0])))


def _tiers(connection: Connection, since: datetime) -> Sequence[TierFigures]:
    tier = sessions.c.tier + literal_column("0", Integer)  # as above
    query = (
        select(
            tier,
            func.count(),
            func.sum(case((sessions.c.outcome == Outcome.SUCCESS.value, 1), else_=0)),
            func.avg(sessions.c.duration_ms),
            func.avg(sessions.c.num_turns),
            func.avg(sessions.c.cost_usd),
            func.sum(sessions.c.cost_usd),
        )
        .where(sessions.c.ended_at >= since)
        .group_by(tier)
        .order_by(tier)
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
