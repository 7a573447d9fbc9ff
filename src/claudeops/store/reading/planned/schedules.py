"""Schedules: what each is, when it fires next, and what came of its last fire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.schedules import Cadence, Cron
from claudeops.domain.schedules.plan import Overlap, SchedulePlan, SkipReason
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.store.rows import TableRow
from claudeops.store.tables.daemon import schedule_fires
from claudeops.store.tables.sessions import sessions
from claudeops.wording.readable import length_of


class FireEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A fire of a schedule, and what came of it."""

    due_at: datetime
    fired_at: datetime
    skipped: SkipReason | None  # why it started nothing
    saved_usd: float | None  # what that saved, by estimate
    chain: int | None  # that it started; None: none, or its rows are gone
    status: Status | None  # of the chain's last session, as all that follows
    outcome: Outcome | None
    decision: DecisionReason | None  # why the chain went on or ended


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. ``name`` and ``next_fire`` are as the command `status` prints them."""

    name: str
    next_fire: datetime | None  # None: it is switched off
    cadence: str | None  # in words; this and all that follows but ``last`` is None where only the name is known
    tier: int | None
    prompt: str | None  # what the sessions are asked besides the usual round
    services: tuple[str, ...]  # that they look at; empty: all
    quiet_hours: tuple[str, ...]
    overlap: Overlap | None
    budget_usd: float | None  # of a chain's first session; None: its tier's
    origin: str | None  # the file and line that declares it
    last: FireEntry | None


def listed(
    connection: Connection, next_fires: Mapping[str, datetime | None], plans: Sequence[SchedulePlan]
) -> Sequence[ScheduleEntry]:
    """Return the schedules that the daemon keeps, in their order."""
    by_name = {plan.name: plan for plan in plans}
    return tuple(_entry(connection, name, at, by_name.get(name)) for name, at in next_fires.items())


def _entry(connection: Connection, name: str, next_fire: datetime | None, plan: SchedulePlan | None) -> ScheduleEntry:
    return ScheduleEntry(
        name=name,
        next_fire=next_fire,
        cadence=None if plan is None else _cadence(plan.schedule.cadence),
        tier=None if plan is None else plan.tier,
        prompt=None if plan is None else plan.prompt or None,
        services=() if plan is None else plan.services,
        quiet_hours=() if plan is None else tuple(window.text for window in plan.quiet_hours),
        overlap=None if plan is None else plan.overlap,
        budget_usd=None if plan is None else plan.budget_usd,
        origin=None if plan is None else plan.origin or None,
        last=_last(connection, name),
    )


def _cadence(cadence: Cadence) -> str:
    if isinstance(cadence, Cron):
        return f"{cadence.expr} ({cadence.timezone})"
    return f"every {length_of(timedelta(seconds=cadence.seconds))}"


def _last(connection: Connection, name: str) -> FireEntry | None:
    fires = schedule_fires.c
    query = select(schedule_fires).where(fires.schedule == name).order_by(fires.due_at.desc()).limit(1)
    fire = connection.execute(query).one_or_none()
    return None if fire is None else _fire(connection, fire)


def _fire(connection: Connection, fire: TableRow) -> FireEntry:
    chain = select(sessions).where(sessions.c.root_session_id == fire.session_id).order_by(sessions.c.id.desc())
    last = None if fire.session_id is None else connection.execute(chain.limit(1)).one_or_none()
    return FireEntry(
        due_at=fire.due_at,
        fired_at=fire.fired_at,
        skipped=None if fire.skipped_reason is None else SkipReason(fire.skipped_reason),
        saved_usd=fire.saved_usd,
        chain=None if last is None else fire.session_id,
        status=None if last is None else Status(last.status),
        outcome=None if last is None or last.outcome is None else Outcome(last.outcome),
        decision=None if last is None or last.decision_reason is None else DecisionReason(last.decision_reason),
    )
