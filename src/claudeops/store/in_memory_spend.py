"""How `InMemoryStore` keeps money: allowances reserved and settled, model calls begun and booked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain import budget
from claudeops.domain.budget import Balance, BookedCalls, BudgetScope, CallBegun, CallRefused, CallWaits, Spending
from claudeops.domain.model import Status
from claudeops.store import in_memory_holds
from claudeops.store.rows import call_values, to_booked_call
from claudeops.store.types import known_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from types import SimpleNamespace

    from claudeops.domain.budget import Allowance, Budgets, CallState, Short
    from claudeops.domain.model import EscalationRules, Session
    from claudeops.store.in_memory_tables import PlainTables


def allow(tables: PlainTables, found: Session, *, rules: EscalationRules, now: datetime) -> Allowance | Short | None:
    """Return what a session may spend, or why it may not start; ``None`` where nothing is limited."""
    tier_usd = rules.budget_of(found.tier)
    if rules.budgets is None or tier_usd is None:
        return None
    spending = Spending(
        chain_usd=chain_spent(tables, found.root_session_id),
        chain_reserved_usd=_reserved(tables, lambda row: row.root_session_id == found.root_session_id),
        day_usd=_day_spent(tables, rules.budgets, now),
        day_reserved_usd=_reserved(tables, lambda _: True),
    )
    return budget.allowance(tier_usd, rules.budgets, spending)


def is_day_spent(tables: PlainTables, short: Short, *, rules: EscalationRules, now: datetime) -> bool:
    """Tell whether nobody can be started before midnight; if so, hold the queue until then."""
    if short.scope is not BudgetScope.DAY or short.for_now or rules.budgets is None:
        return False
    in_memory_holds.set_hold(tables, budget.day_hold(rules.budgets, short.spent_usd, now=now), now=now)
    return True


def reserve(tables: PlainTables, session_id: int, usd: float, *, at: datetime) -> None:
    """Promise a session its allowance."""
    _enter(tables, session_id, "reserved", usd, at)


def settle(tables: PlainTables, session_id: int, spent_usd: float | None, *, at: datetime) -> None:
    """Give back what was promised to a session and book what it spent, where that is known."""
    reserved = _entries(tables, "reserved", lambda entry: entry.session_id == session_id)
    if reserved:
        _enter(tables, session_id, "released", sum(reserved), at)
    if (amount := known_usd(spent_usd)) is not None:
        _enter(tables, session_id, "settled", amount, at)


def chain_spent(tables: PlainTables, root_session_id: int) -> float:
    """Return what the ended sessions of a chain spent."""
    chain = _ids(tables, lambda row: row.root_session_id == root_session_id)
    return sum(_entries(tables, "settled", lambda entry: entry.session_id in chain))


def begin_call(
    tables: PlainTables, session: Session, *, model: str, worst_usd: float, rules: EscalationRules, now: datetime
) -> CallBegun | CallWaits | CallRefused:
    """Put a model call on record before it starts, unless a budget forbids it; the session is running."""
    against = budget.objection(_balances(tables, session, rules, now), worst_usd)
    if against is not None:
        return against
    begun = {"session_id": session.id, "model": model, "charged_usd": worst_usd, "started_at": now}
    return CallBegun(id=tables.insert("model_calls", begun).id)


def book_call(tables: PlainTables, state: CallState) -> None:
    """Write what is known of a call; one that is over is not changed any more."""
    for row in tables.rows("model_calls", lambda row: row.id == state.id and row.ended_at is None):
        tables.update("model_calls", row, call_values(state))


def close_calls(tables: PlainTables, session_id: int, *, at: datetime, error: str) -> None:
    """End the calls of a session that nobody serves any more."""
    for row in tables.rows("model_calls", lambda row: row.session_id == session_id and row.ended_at is None):
        tables.update("model_calls", row, {"ended_at": at, "error": error})


def booked_calls(tables: PlainTables, session_id: int) -> BookedCalls:
    """Return the sum of a session's model calls."""
    calls = tables.rows("model_calls", lambda row: row.session_id == session_id)
    return budget.sum_of(tuple(map(to_booked_call, calls)))


def _balances(tables: PlainTables, session: Session, rules: EscalationRules, now: datetime) -> Iterable[Balance]:
    budgets = rules.budgets
    if budgets is None:
        return
    allowed = _entries(tables, "reserved", lambda entry: entry.session_id == session.id)
    if allowed:
        yield _balance(tables, BudgetScope.SESSION, sum(allowed), 0.0, lambda row: row.id == session.id)
    spent, root = chain_spent(tables, session.root_session_id), session.root_session_id
    yield _balance(tables, BudgetScope.CHAIN, budgets.chain_usd, spent, lambda row: row.root_session_id == root)
    yield _balance(tables, BudgetScope.DAY, budgets.day_usd, _day_spent(tables, budgets, now), lambda _: True)


def _balance(
    tables: PlainTables, scope: BudgetScope, limit: float, settled: float, of: Callable[[SimpleNamespace], bool]
) -> Balance:
    """Add up the calls of running sessions; those of ended ones are settled."""
    running = _ids(tables, lambda row: row.status == Status.RUNNING and of(row))
    calls = tables.rows("model_calls", lambda row: row.session_id in running)
    spent = sum(row.charged_usd or 0 for row in calls if row.ended_at is not None)
    still_open = sum(row.charged_usd or 0 for row in calls if row.ended_at is None)
    return Balance(scope=scope, limit_usd=limit, spent_usd=settled + spent, open_usd=still_open)


def _day_spent(tables: PlainTables, budgets: Budgets, now: datetime) -> float:
    since = budget.last_midnight(now, budgets.timezone)
    return sum(_entries(tables, "settled", lambda entry: entry.created_at >= since))


def _reserved(tables: PlainTables, of: Callable[[SimpleNamespace], bool]) -> float:
    """Return what is promised to running sessions; a session's end takes its promise back."""
    running = _ids(tables, lambda row: row.status == Status.RUNNING and of(row))
    return sum(_entries(tables, "reserved", lambda entry: entry.session_id in running))


def _ids(tables: PlainTables, where: Callable[[SimpleNamespace], bool]) -> set[int]:
    return {row.id for row in tables.rows("sessions", where)}


def _entries(tables: PlainTables, kind: str, where: Callable[[SimpleNamespace], bool]) -> list[float]:
    entries = tables.rows("budget_entries", lambda entry: entry.kind == kind and where(entry))
    return [entry.amount_usd for entry in entries]


def _enter(tables: PlainTables, session_id: int, kind: str, usd: float, at: datetime) -> None:
    entry = {"session_id": session_id, "kind": kind, "amount_usd": usd, "created_at": at}
    tables.insert("budget_entries", entry)
