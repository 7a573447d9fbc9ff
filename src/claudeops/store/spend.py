"""Money in the database: allowances reserved and settled, model calls begun and booked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, func, insert, select, update

from claudeops.domain import budget
from claudeops.domain.budget import Balance, BookedCalls, BudgetScope, CallBegun, CallRefused, CallWaits, Spending
from claudeops.domain.model import Status
from claudeops.errors import StaleAttemptError
from claudeops.store.holds import set_hold
from claudeops.store.rows import call_values, to_booked_call
from claudeops.store.tables import budget_entries, model_calls, sessions
from claudeops.store.types import known_usd

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection

    from claudeops.domain.budget import Allowance, Budgets, CallState, Short
    from claudeops.domain.model import EscalationRules, Session

_AMOUNT = func.coalesce(func.sum(budget_entries.c.amount_usd), 0.0)
_RUNNING = sessions.c.status == Status.RUNNING.value
_IS_OPEN = model_calls.c.ended_at.is_(None)


# --- allowances -------------------------------------------------------------------------------------------


def allow(connection: Connection, found: Session, *, rules: EscalationRules, now: datetime) -> Allowance | Short | None:
    """Return what a session may spend, or why it may not start; ``None`` where nothing is limited."""
    tier_usd = rules.budget_of(found.tier)
    if rules.budgets is None or tier_usd is None:
        return None
    chain = sessions.c.root_session_id == found.root_session_id
    spending = Spending(
        chain_usd=chain_spent(connection, found.root_session_id),
        chain_reserved_usd=_reserved(connection, chain),
        day_usd=day_spent(connection, rules.budgets, now),
        day_reserved_usd=_reserved(connection),
    )
    return budget.allowance(tier_usd, rules.budgets, spending)


def is_day_spent(connection: Connection, short: Short, *, rules: EscalationRules, now: datetime) -> bool:
    """Tell whether nobody can be started before midnight; if so, hold the queue until then."""
    if short.scope is not BudgetScope.DAY or short.for_now or rules.budgets is None:
        return False
    set_hold(connection, budget.day_hold(rules.budgets, short.spent_usd, now=now), now=now)
    return True


def reserve(connection: Connection, session_id: int, usd: float, *, at: datetime) -> None:
    """Promise a session its allowance."""
    _enter(connection, session_id, "reserved", usd, at)


def settle(connection: Connection, session_id: int, spent_usd: float | None, *, at: datetime) -> None:
    """Give back what was promised to a session and book what it spent, where that is known."""
    reserved = _reserved_of(connection, session_id)
    if reserved is not None:
        _enter(connection, session_id, "released", reserved, at)
    if (amount := known_usd(spent_usd)) is not None:
        _enter(connection, session_id, "settled", amount, at)


def chain_spent(connection: Connection, root_session_id: int) -> float:
    """Return what the ended sessions of a chain spent."""
    query = (
        select(_AMOUNT)
        .join(sessions, sessions.c.id == budget_entries.c.session_id)
        .where(budget_entries.c.kind == "settled", sessions.c.root_session_id == root_session_id)
    )
    return float(connection.execute(query).scalar_one())


def day_spent(connection: Connection, budgets: Budgets, now: datetime) -> float:
    """Return what was settled since midnight."""
    since = budget.last_midnight(now, budgets.timezone)
    query = select(_AMOUNT).where(budget_entries.c.kind == "settled", budget_entries.c.created_at >= since)
    return float(connection.execute(query).scalar_one())


def _reserved(connection: Connection, *conditions: ColumnElement[bool]) -> float:
    """Return what is promised to running sessions; a session's end takes its promise back."""
    query = (
        select(_AMOUNT)
        .join(sessions, sessions.c.id == budget_entries.c.session_id)
        .where(budget_entries.c.kind == "reserved", _RUNNING, *conditions)
    )
    return float(connection.execute(query).scalar_one())


def _reserved_of(connection: Connection, session_id: int) -> float | None:
    entries = budget_entries.c
    query = select(func.sum(entries.amount_usd)).where(entries.session_id == session_id, entries.kind == "reserved")
    amount = connection.execute(query).scalar_one()
    return None if amount is None else float(amount)


def _enter(connection: Connection, session_id: int, kind: str, usd: float, at: datetime) -> None:
    entry = {"session_id": session_id, "kind": kind, "amount_usd": usd, "created_at": at}
    connection.execute(insert(budget_entries).values(entry))


# --- model calls ------------------------------------------------------------------------------------------


def begin_call(
    connection: Connection, session: Session, *, model: str, worst_usd: float, rules: EscalationRules, now: datetime
) -> CallBegun | CallWaits | CallRefused:
    """Put a model call on record before it starts, unless a budget forbids it."""
    current = select(sessions.c.id).where(sessions.c.id == session.id, sessions.c.attempt == session.attempt, _RUNNING)
    if connection.execute(current).first() is None:
        raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")
    against = budget.objection(_balances(connection, session, rules, now), worst_usd)
    if against is not None:
        return against
    begun = {"session_id": session.id, "model": model, "charged_usd": worst_usd, "started_at": now}
    key = connection.execute(insert(model_calls).values(begun)).inserted_primary_key
    return CallBegun(id=key.id if key else 0)


def book_call(connection: Connection, state: CallState) -> None:
    """Write what is known of a call; one that is over is not changed any more."""
    connection.execute(update(model_calls).where(model_calls.c.id == state.id, _IS_OPEN).values(call_values(state)))


def close_calls(connection: Connection, session_id: int, *, at: datetime, error: str) -> None:
    """End the calls of a session that nobody serves any more: what was said of them is what is known.

    One of which nothing was said goes on to count with the most that it can have cost.
    """
    charged = func.coalesce(model_calls.c.cost_usd, model_calls.c.charged_usd)
    left = update(model_calls).where(model_calls.c.session_id == session_id, _IS_OPEN)
    connection.execute(left.values(ended_at=at, error=error, charged_usd=charged))


def booked_calls(connection: Connection, session_id: int) -> BookedCalls:
    """Return the sum of a session's model calls."""
    calls = connection.execute(select(model_calls).where(model_calls.c.session_id == session_id))
    return budget.sum_of(tuple(map(to_booked_call, calls)))


def _balances(connection: Connection, session: Session, rules: EscalationRules, now: datetime) -> Iterable[Balance]:
    budgets = rules.budgets
    if budgets is None:
        return
    allowed = _reserved_of(connection, session.id)
    if allowed is not None:
        yield _balance(connection, BudgetScope.SESSION, allowed, 0.0, sessions.c.id == session.id)
    spent = chain_spent(connection, session.root_session_id)
    same_chain = sessions.c.root_session_id == session.root_session_id
    yield _balance(connection, BudgetScope.CHAIN, budgets.chain_usd, spent, same_chain)
    yield _balance(connection, BudgetScope.DAY, budgets.day_usd, day_spent(connection, budgets, now))


def _balance(
    connection: Connection, scope: BudgetScope, limit: float, settled: float, *conditions: ColumnElement[bool]
) -> Balance:
    """Add up the calls of running sessions; those of ended ones are settled."""
    charged = func.coalesce(model_calls.c.charged_usd, 0.0)
    query = (
        select(func.sum(case((_IS_OPEN, 0.0), else_=charged)), func.sum(case((_IS_OPEN, charged), else_=0.0)))
        .join(sessions, sessions.c.id == model_calls.c.session_id)
        .where(_RUNNING, *conditions)
    )
    spent, still_open = connection.execute(query).one()
    return Balance(scope=scope, limit_usd=limit, spent_usd=settled + float(spent or 0), open_usd=float(still_open or 0))
