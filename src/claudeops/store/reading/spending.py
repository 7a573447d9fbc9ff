"""What was spent: booked by day, tier, model, service, verdict and chain, and what is reserved for sessions that run.

A session's cost is booked when it ends, to the day of its end; until then its model calls count, and what is reserved
for it. Model calls have a cost of their own where their model has a price. A session looks at several services: its
cost is theirs in equal parts. Its verdict is the decision at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
from sqlalchemy import Connection, Integer, case, func, literal_column, select

from claudeops.domain.schedules.plan import SkipReason
from claudeops.domain.sessions import DecisionReason, Status
from claudeops.domain.spending.budget import last_midnight, next_midnight
from claudeops.store.tables.daemon import schedule_fires
from claudeops.store.tables.sessions import budget_entries, cooldown_actions, model_calls, service_checks, sessions

_AMOUNT = func.coalesce(func.sum(budget_entries.c.amount_usd), 0.0)
_SETTLED = budget_entries.c.kind == "settled"
_ENTRIES = budget_entries.join(sessions, sessions.c.id == budget_entries.c.session_id)
_RUNNING = sessions.c.status == Status.RUNNING.value


class DaySpend(msgspec.Struct, frozen=True, kw_only=True):
    """What was booked on a day."""

    day: str  # ISO date in the budgets' time zone
    booked_usd: float
    sessions: int


class TierSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What was booked for the sessions of a tier."""

    tier: int
    booked_usd: float
    sessions: int


class ModelSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of a model cost and used."""

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None  # None: of none of them the cost is known
    without_price: int  # calls whose cost is unknown, although they used tokens


class ServiceSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What was booked for a service: its part of every session that has looked at it."""

    service: str | None  # None: of sessions that looked at none
    booked_usd: float
    sessions: int


class VerdictSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What was booked for the sessions that ended with a decision."""

    verdict: DecisionReason | None  # None: there was none yet, as in old databases
    booked_usd: float
    sessions: int


class ChainSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What was booked for a chain."""

    chain: int
    booked_usd: float
    sessions: int
    last_at: datetime  # when the last of it was booked


class OpenSpend(msgspec.Struct, frozen=True, kw_only=True):
    """What is not booked yet, because its sessions run."""

    session_id: int
    chain: int
    tier: int
    reserved_usd: float  # its allowance
    charged_usd: float  # its calls that are over; what an open one costs is not known


class SpendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent over a time, and how that stands to the budgets: the answer of ``spend``."""

    since: datetime
    timezone: str  # of the budgets' days
    today_usd: float  # counts against the day's budget now: what is booked, and what running sessions have used
    day_budget_usd: float
    chain_budget_usd: float
    reserved_usd: float  # kept for running sessions
    booked_usd: float  # in the whole time
    days: tuple[DaySpend, ...]  # the newest first, days without anything too
    tiers: tuple[TierSpend, ...]
    models: tuple[ModelSpend, ...]  # the dearest first
    services: tuple[ServiceSpend, ...]  # the dearest first
    verdicts: tuple[VerdictSpend, ...]  # the dearest first
    nothing_found_usd: float  # of what is booked: for chains whose first session found all well, and did nothing
    saved_usd: float  # by fires that started no chain because the probes saw no change: what the chains would have cost
    saved_fires: int
    chains: tuple[ChainSpend, ...]  # the dearest first
    under_way: tuple[OpenSpend, ...]


def spending_of(
    connection: Connection,
    *,
    since: datetime,
    now: datetime,
    timezone: str,
    day_budget_usd: float,
    chain_budget_usd: float,
    limit: int,  # services and chains that are shown
) -> SpendingAnswer:
    """Return what was spent since a moment."""
    days = by_day(connection, since=since, now=now, timezone=timezone)
    running = under_way(connection)
    saved_usd, saved_fires = saved(connection, since=since)
    return SpendingAnswer(
        since=since,
        timezone=timezone,
        today_usd=(days[0].booked_usd if days else 0.0) + sum(one.charged_usd for one in running),
        day_budget_usd=day_budget_usd,
        chain_budget_usd=chain_budget_usd,
        reserved_usd=sum(one.reserved_usd for one in running),
        booked_usd=sum(day.booked_usd for day in days),
        days=tuple(days),
        tiers=tuple(by_tier(connection, since=since)),
        models=tuple(by_model(connection, since=since)),
        services=tuple(by_service(connection, since=since, limit=limit)),
        verdicts=tuple(by_verdict(connection, since=since)),
        nothing_found_usd=nothing_found(connection, since=since),
        saved_usd=saved_usd,
        saved_fires=saved_fires,
        chains=tuple(by_chain(connection, since=since, limit=limit)),
        under_way=tuple(running),
    )


def by_day(connection: Connection, *, since: datetime, now: datetime, timezone: str) -> Sequence[DaySpend]:
    """Return what was booked on each day in a time zone, the newest first, days without anything too."""
    found = []
    for start, end in reversed(tuple(_days(since, now, timezone))):
        query = select(_AMOUNT, func.count(budget_entries.c.session_id.distinct())).where(
            _SETTLED, budget_entries.c.created_at >= start, budget_entries.c.created_at < end
        )
        usd, sessions_counted = connection.execute(query).one()
        # The middle of the day: its first moment may be of the day before where clocks are set back.
        day = f"{(start + (end - start) / 2).astimezone(ZoneInfo(timezone)):%Y-%m-%d}"
        found.append(DaySpend(day=day, booked_usd=float(usd), sessions=sessions_counted))
    return found


def by_tier(connection: Connection, *, since: datetime) -> Sequence[TierSpend]:
    """Return what was booked for each tier."""
    query = (
        select(sessions.c.tier, _AMOUNT, func.count(budget_entries.c.session_id.distinct()))
        .select_from(_ENTRIES)
        .where(_SETTLED, budget_entries.c.created_at >= since)
        .group_by(sessions.c.tier)
        .order_by(sessions.c.tier)
    )
    rows = connection.execute(query)
    return [TierSpend(tier=tier, booked_usd=float(usd), sessions=count) for tier, usd, count in rows]


def by_model(connection: Connection, *, since: datetime) -> Sequence[ModelSpend]:
    """Return what the calls of each model used, the dearest first."""
    calls = model_calls.c
    tokens = [calls.input_tokens, calls.output_tokens, calls.cache_read_tokens, calls.cache_write_tokens]
    used = sum((func.coalesce(column, 0) for column in tokens[1:]), func.coalesce(tokens[0], 0))
    query = (
        select(
            calls.model,
            func.count(),
            *(func.coalesce(func.sum(column), 0) for column in tokens),
            func.sum(calls.cost_usd),
            func.sum(case(((calls.cost_usd.is_(None)) & (used > 0), 1), else_=0)),
        )
        .where(calls.started_at >= since)
        .group_by(calls.model)
    )
    found = [
        ModelSpend(
            model=row[0],
            calls=row[1],
            input_tokens=int(row[2]),
            output_tokens=int(row[3]),
            cache_read_tokens=int(row[4]),
            cache_write_tokens=int(row[5]),
            cost_usd=None if row[6] is None else float(row[6]),
            without_price=int(row[7]),
        )
        for row in connection.execute(query)
    ]
    return sorted(found, key=lambda spend: (-(spend.cost_usd or 0.0), spend.model))


def by_service(connection: Connection, *, since: datetime, limit: int) -> Sequence[ServiceSpend]:
    """Return the dearest services; a session's cost is theirs in equal parts."""
    # As an expression: by the column SQLite would read all entries in its order, not those of the time.
    of_session = (budget_entries.c.session_id + literal_column("0", Integer)).label("session_id")
    booked = (
        select(of_session, func.sum(budget_entries.c.amount_usd).label("usd"))
        .where(_SETTLED, budget_entries.c.created_at >= since)
        .group_by(of_session)
        .cte("booked")
    )
    name = func.lower(service_checks.c.service).label("name")
    looked = (
        select(service_checks.c.session_id, name)
        .where(service_checks.c.session_id.in_(select(booked.c.session_id)))
        .distinct()
        .cte("looked")
    )
    parts = select(looked.c.session_id, func.count().label("n")).group_by(looked.c.session_id).cte("parts")
    total = func.sum(booked.c.usd / func.coalesce(parts.c.n, 1)).label("total")
    query = (
        select(looked.c.name, total, func.count())
        .select_from(
            booked.outerjoin(looked, looked.c.session_id == booked.c.session_id).outerjoin(
                parts, parts.c.session_id == booked.c.session_id
            )
        )
        .group_by(looked.c.name)
        .order_by(total.desc(), looked.c.name)
        .limit(limit)
    )
    return [
        ServiceSpend(service=row[0], booked_usd=float(row[1]), sessions=row[2]) for row in connection.execute(query)
    ]


def by_verdict(connection: Connection, *, since: datetime) -> Sequence[VerdictSpend]:
    """Return what was booked for the sessions of each decision, the dearest first."""
    reason = sessions.c.decision_reason
    query = (
        select(reason, _AMOUNT, func.count(budget_entries.c.session_id.distinct()))
        .select_from(_ENTRIES)
        .where(_SETTLED, budget_entries.c.created_at >= since)
        .group_by(reason)
        .order_by(_AMOUNT.desc(), reason)
    )
    return [
        VerdictSpend(verdict=None if name is None else DecisionReason(name), booked_usd=float(usd), sessions=count)
        for name, usd, count in connection.execute(query)
    ]


def nothing_found(connection: Connection, *, since: datetime) -> float:
    """Return what was booked for sessions that began a chain, found all well and did nothing.

    A later tier that ends well has found something, and often mended it.
    """
    acted = select(cooldown_actions.c.id).where(cooldown_actions.c.session_id == sessions.c.id).exists()
    query = (
        select(_AMOUNT)
        .select_from(_ENTRIES)
        .where(
            _SETTLED,
            budget_entries.c.created_at >= since,
            sessions.c.decision_reason == DecisionReason.HEALTHY.value,
            sessions.c.parent_session_id.is_(None),
            ~acted,
        )
    )
    return float(connection.execute(query).scalar_one())


def saved(connection: Connection, *, since: datetime) -> tuple[float, int]:
    """Return what fires that started no chain have saved, because the probes saw no change, and how many they were."""
    fires = schedule_fires.c
    query = select(func.coalesce(func.sum(fires.saved_usd), 0.0), func.count()).where(
        fires.fired_at >= since, fires.skipped_reason == SkipReason.UNCHANGED.value
    )
    usd, count = connection.execute(query).one()
    return float(usd), count


def by_chain(connection: Connection, *, since: datetime, limit: int) -> Sequence[ChainSpend]:
    """Return the dearest chains."""
    total = _AMOUNT.label("total")
    query = (
        select(
            sessions.c.root_session_id,
            total,
            func.count(budget_entries.c.session_id.distinct()),
            func.max(budget_entries.c.created_at),
        )
        .select_from(_ENTRIES)
        .where(_SETTLED, budget_entries.c.created_at >= since)
        .group_by(sessions.c.root_session_id)
        .order_by(total.desc(), sessions.c.root_session_id.desc())
        .limit(limit)
    )
    rows = connection.execute(query)
    return [ChainSpend(chain=root, booked_usd=float(usd), sessions=n, last_at=last) for root, usd, n, last in rows]


def under_way(connection: Connection) -> Sequence[OpenSpend]:
    """Return what running sessions have reserved and used so far."""
    reserved = (
        select(_AMOUNT)
        .where(budget_entries.c.session_id == sessions.c.id, budget_entries.c.kind == "reserved")
        .scalar_subquery()
    )
    charged = (
        select(func.coalesce(func.sum(model_calls.c.charged_usd), 0.0))
        .where(model_calls.c.session_id == sessions.c.id, model_calls.c.ended_at.is_not(None))
        .scalar_subquery()
    )
    query = (
        select(sessions.c.id, sessions.c.root_session_id, sessions.c.tier, reserved, charged)
        .where(_RUNNING)
        .order_by(sessions.c.id)
    )
    return [
        OpenSpend(session_id=number, chain=root, tier=tier, reserved_usd=float(kept), charged_usd=float(used))
        for number, root, tier, kept, used in connection.execute(query)
    ]


def _days(since: datetime, now: datetime, timezone: str) -> Iterator[tuple[datetime, datetime]]:
    start = last_midnight(since, timezone)
    while start <= now:
        end = next_midnight(start, timezone)
        yield start, end
        start = end
