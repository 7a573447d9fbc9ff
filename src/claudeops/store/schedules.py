"""Schedules: what became of their due times, and what was saved by starting nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, func, insert, select

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import NewEvent
from claudeops.domain.schedules.plan import Fire, LastFire, LastRound, Overlap, Saved, SkipReason
from claudeops.domain.sessions import DecisionReason, NewSession, Session, Status, Suppressed
from claudeops.store.database import Database, Fence, unfenced
from claudeops.store.events import raise_event, resolve_event
from claudeops.store.queue import queue_chain
from claudeops.store.tables.base import each_value
from claudeops.store.tables.daemon import schedule_fires
from claudeops.store.tables.sessions import service_checks, sessions

_SAMPLED_CHAINS: Final = 20
_FIRES: Final = schedule_fires.c


class Schedules:
    """What became of the due times of schedules."""

    def __init__(self, database: Database, *, fence: Fence = unfenced) -> None:
        self._database = database
        self._fence = fence

    async def fire(
        self, fire: Fire, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | SkipReason | None:
        """Record that a schedule was due and queue its chain, in one transaction.

        Returns the queued session; or the reason why none was queued (``fire.skip``, or for instance a chain of this
        schedule has a session that has not ended), which is recorded; or ``None`` if this same fire (schedule and due
        time) was recorded before, in which case nothing is written. With `Overlap.QUEUE` one chain is queued beside an
        unfinished one, and is claimed only when that has ended.
        """
        seen = select(_FIRES.fired_at).where(_FIRES.schedule == fire.schedule, _FIRES.due_at == fire.due_at)

        def record(connection: Connection) -> Session | SkipReason | None:
            self._fence(connection)
            if connection.execute(seen).first() is not None:
                return None
            place = _place(connection, fire)
            result: Session | SkipReason = place.reason or SkipReason.SUPPRESSED
            if place.reason is None:
                started = queue_chain(connection, new, rules=rules, now=now)
                result = SkipReason.SUPPRESSED if isinstance(started, Suppressed) else started
            became: dict[str, object] = (
                {"session_id": result.id, "after_chain": place.after_chain}
                if isinstance(result, Session)
                else {"skipped_reason": result.value, "saved_usd": fire.saved_usd}
            )
            fired = {"schedule": fire.schedule, "due_at": fire.due_at, "fired_at": now, **became}
            connection.execute(insert(schedule_fires).values(fired))
            return result

        return await self._database.write(record)

    async def last_fires(self) -> Mapping[str, LastFire]:
        """Return the latest recorded fires, by schedule."""
        name = each_value(_FIRES.schedule).subquery()
        last = select(func.max(_FIRES.due_at)).where(_FIRES.schedule == name.c.name).correlate(name)
        started = last.where(_FIRES.skipped_reason.is_(None)).scalar_subquery()
        latest = select(name.c.name.label("schedule"), last.scalar_subquery().label("due_at"))
        chains = select(_FIRES.schedule, _FIRES.due_at, _FIRES.fired_at).join(
            name, (name.c.name == _FIRES.schedule) & (started == _FIRES.due_at)
        )

        def find(connection: Connection) -> Mapping[str, LastFire]:
            of_chains = {row.schedule: row for row in connection.execute(chains)}
            return {
                row.schedule: LastFire(
                    due_at=row.due_at,
                    started_due_at=of_chains[row.schedule].due_at if row.schedule in of_chains else None,
                    started_at=of_chains[row.schedule].fired_at if row.schedule in of_chains else None,
                )
                for row in connection.execute(latest)
            }

        return await self._database.read(find)

    async def last_round(self, schedule: str) -> LastRound | None:
        """Return the last chain that a schedule started; ``None`` if there is none, or it has not ended."""
        newest = (
            select(_FIRES.session_id)
            .where(_FIRES.schedule == schedule, _FIRES.skipped_reason.is_(None))
            .order_by(_FIRES.due_at.desc())
            .limit(1)
        )

        def find(connection: Connection) -> LastRound | None:
            root = connection.execute(newest).scalar_one_or_none()  # null, too, once the chain's rows are gone
            chain = select(sessions).where(sessions.c.root_session_id == root).order_by(sessions.c.id)
            rows = connection.execute(chain).all() if root is not None else ()
            if not rows or rows[0].started_at is None or any(row.decision_reason is None for row in rows):
                return None
            checks = select(service_checks.c.service).where(service_checks.c.session_id.in_([row.id for row in rows]))
            return LastRound(
                reason=DecisionReason(rows[-1].decision_reason),
                looked_from=rows[0].started_at,
                services=tuple(connection.execute(checks.distinct().order_by(service_checks.c.service)).scalars()),
            )

        return await self._database.read(find)

    async def mean_cost(self, schedule: str) -> float | None:
        """Return what a chain of a schedule costs on average, in US dollars, by its last ones; ``None``: unknown."""
        chains = (
            select(_FIRES.session_id)
            .where(_FIRES.schedule == schedule, _FIRES.session_id.is_not(None))
            .order_by(_FIRES.due_at.desc())
            .limit(_SAMPLED_CHAINS)
        )
        costs = (
            select(func.sum(sessions.c.cost_usd).label("cost"))
            .where(sessions.c.root_session_id.in_(chains), sessions.c.cost_usd.is_not(None))
            .group_by(sessions.c.root_session_id)
            .subquery()
        )
        query = select(func.avg(costs.c.cost))
        mean = await self._database.read(lambda connection: connection.execute(query).scalar_one())
        return None if mean is None else float(mean)

    async def saved(self, since: datetime) -> Saved:
        """Return how many fires have started nothing since a moment, by their reasons, and what that saved."""
        reasons = (
            select(_FIRES.skipped_reason, func.count().label("fires"), func.sum(_FIRES.saved_usd).label("usd"))
            .where(_FIRES.fired_at >= since, _FIRES.skipped_reason.is_not(None))
            .group_by(_FIRES.skipped_reason)
        )

        def find(connection: Connection) -> Saved:
            rows = connection.execute(reasons).all()
            return Saved(
                since=since,
                skipped={row.skipped_reason: row.fires for row in rows},
                usd=float(sum(row.usd or 0 for row in rows)),
            )

        return await self._database.read(find)

    async def note(self, event: NewEvent, *, over: bool, now: datetime) -> None:
        """Raise an event about the schedules as a whole, or end the open one with the same fingerprint."""

        def write(connection: Connection) -> None:
            if over:
                resolve_event(connection, event.fingerprint, at=now)
            else:
                raise_event(connection, event, session_id=None, at=now)

        await self._database.write(write)


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a fire may start its chain, and behind which one."""

    reason: SkipReason | None = None
    after_chain: int | None = None


def _place(connection: Connection, fire: Fire) -> _Place:
    if fire.skip is not None or fire.overlap is Overlap.ALLOW:
        return _Place(reason=fire.skip)
    unfinished = _unfinished_chains(connection, fire.schedule)
    if not unfinished:
        return _Place()
    if fire.overlap is Overlap.SKIP or Status.QUEUED in unfinished.values():
        return _Place(reason=SkipReason.CHAIN_UNFINISHED)
    return _Place(after_chain=max(unfinished))


def _unfinished_chains(connection: Connection, schedule: str) -> dict[int, Status]:
    """Return the chains of a schedule with a session that has not ended, with the states of their first sessions."""
    root = sessions.alias("root")
    query = (
        select(root.c.id, root.c.status)
        .join(schedule_fires, _FIRES.session_id == root.c.id)
        .join(sessions, sessions.c.root_session_id == root.c.id)
        .where(_FIRES.schedule == schedule, sessions.c.status != Status.ENDED.value)
        .distinct()
    )
    return {row.id: Status(row.status) for row in connection.execute(query)}
