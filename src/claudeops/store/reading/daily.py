"""What the daily sum counts: one snapshot, and every question within the time asked for or about what is open now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from claudeops.domain.alerts.alert import AlertDecision, IncidentStatus
from claudeops.domain.events import on_node
from claudeops.domain.notices.notice import DEAD
from claudeops.domain.sessions import Outcome
from claudeops.store.holds import standing
from claudeops.store.reading.events import open_by_level
from claudeops.store.reading.figures import figures
from claudeops.store.tables.alerting import alert_decisions, alerts, incidents, is_unresolved
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.events import events
from claudeops.store.tables.memories import memories
from claudeops.store.tables.outbox import outbox
from claudeops.store.tables.sessions import budget_entries, sessions
from claudeops.wording.notices.digest import DigestFigures, NoisiestAlert

_NO_FAULT: Final = frozenset({Outcome.SUCCESS, Outcome.CANCELLED, Outcome.BLOCKED})
"""Outcomes of sessions that have not failed: somebody or some rule has stopped them."""

_MOST: Final = 20  # targets that are named
_AT_ONCE: Final = 500  # chains in one query


def sums(connection: Connection, since: datetime, now: datetime) -> DigestFigures:
    """Return what the daily sum counts."""
    found = figures(connection, since)
    results = select(outbox.c.result, func.count()).where(outbox.c.delivered_at >= since).group_by(outbox.c.result)
    dead = select(events.c.fingerprint).where(events.c.resolved_at.is_(None), events.c.fingerprint.startswith(DEAD))
    return DigestFigures(
        since=since,
        now=now,
        chains=found.chains,
        sessions=found.sessions,
        decisions=found.decisions,
        verdicts=found.verdicts,
        actions=found.actions,
        actions_failed=found.actions_failed,
        actions_held=found.actions_held,
        booked_usd=_booked(connection, since),
        memories_gained=_count(connection, memories.c.created_at >= since),
        memories_lost=_count(connection, memories.c.forgotten_at >= since),
        open_events={level.value: count for level, count in open_by_level(connection).items()},
        notices={str(result): count for result, count in connection.execute(results) if result is not None},
        incidents_opened=_count(connection, incidents.c.opened_at >= since),
        incidents_resolved=_count(
            connection,
            and_(incidents.c.status == IncidentStatus.RESOLVED.value, incidents.c.resolved_at >= since),
        ),
        incidents_open=_count(connection, is_unresolved),
        noisiest=_noisiest(connection, since),
        failed_sessions=sum(count for outcome, count in found.outcomes.items() if outcome not in _NO_FAULT),
        holds=tuple(on_node(hold.kind.value, hold.node) for hold in standing(connection, now)),
        dead_targets=tuple(name.removeprefix(DEAD) for name in connection.execute(dead.limit(_MOST)).scalars()),
        unsent_since=oldest_untold(connection, now),
    )


def oldest_untold(connection: Connection, now: datetime) -> datetime | None:
    """Return since when the notice waits that should have been told first; ``None``: none waits."""
    created = outbox.c.created_at
    since = case((outbox.c.attempts > 0, created), else_=func.coalesce(outbox.c.not_before, created))
    late = or_(outbox.c.attempts > 0, outbox.c.not_before.is_(None), outbox.c.not_before <= now)
    query = select(func.min(since, type_=UtcDateTime())).where(outbox.c.delivered_at.is_(None), late)
    return connection.execute(query).scalar()


def _booked(connection: Connection, since: datetime) -> float:
    booked = select(func.coalesce(func.sum(budget_entries.c.amount_usd), 0.0)).where(
        budget_entries.c.kind == "settled", budget_entries.c.created_at >= since
    )
    return float(connection.execute(booked).scalar_one())


def _count(connection: Connection, condition: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).where(condition)).scalar_one())


def _noisiest(connection: Connection, since: datetime) -> NoisiestAlert | None:
    """Return the alert whose decisions have started the chains that cost most."""
    decided = alert_decisions.c
    started = select(decided.alert_id, decided.session_id).where(
        decided.decision == AlertDecision.STARTED.value, decided.at >= since, decided.alert_id.is_not(None)
    )
    chains = connection.execute(started).all()
    cost = _settled(connection, sorted({chain.session_id for chain in chains if chain.session_id is not None}))
    usd: defaultdict[int, float] = defaultdict(float)
    for chain in chains:
        if chain.session_id in cost:
            usd[chain.alert_id] += cost[chain.session_id]
    if not usd:
        return None
    dearest = min(usd, key=lambda alert_id: (-usd[alert_id], alert_id))
    row = connection.execute(select(alerts.c.id, alerts.c.name, alerts.c.service).where(alerts.c.id == dearest)).one()
    about = (alert_decisions.c.alert_id == row.id, alert_decisions.c.at >= since)
    decisions = connection.execute(select(func.count()).where(*about)).scalar_one()
    return NoisiestAlert(name=row.name, service=row.service, usd=usd[dearest], decisions=decisions)


def _settled(connection: Connection, roots: Sequence[int]) -> Mapping[int, float]:
    """Return what chains have cost, by their first sessions; those for which nothing was settled are left out."""
    of_chain = (
        select(sessions.c.root_session_id, func.sum(budget_entries.c.amount_usd))
        .join(budget_entries, budget_entries.c.session_id == sessions.c.id)
        .where(budget_entries.c.kind == "settled")
        .group_by(sessions.c.root_session_id)
    )
    found: dict[int, float] = {}
    for first in range(0, len(roots), _AT_ONCE):
        some = of_chain.where(sessions.c.root_session_id.in_(roots[first : first + _AT_ONCE]))
        found |= {root: float(usd) for root, usd in connection.execute(some) if usd is not None}
    return found
