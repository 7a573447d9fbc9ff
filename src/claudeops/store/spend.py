"""Money in the database: allowances are reserved and settled, model calls are begun and booked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    not_,
    select,
    update,
)

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.sessions import Session, Status
from claudeops.domain.spending import budget
from claudeops.domain.spending.budget import (
    AdmittedCall,
    Allowance,
    Balance,
    BookedCalls,
    BudgetDenied,
    BudgetScope,
    CallWaits,
    Shortfall,
    Spending,
)
from claudeops.domain.spending.prices import known_usd
from claudeops.domain.spending.tokens import CallState
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.store.database import Database
from claudeops.store.holds import set_hold
from claudeops.store.rows import TableRow
from claudeops.store.session_columns import call_values, to_booked_call
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.sessions import budget_entries, model_calls, sessions, settled_sums

_NEVER_MADE: Final = "never made"
"""The error of a call that was put on record too late for its caller."""

NOT_SEEN_TO_END: Final = "not seen to end"
"""The error of a call that is still open when its session ends."""

_AMOUNT = func.coalesce(func.sum(budget_entries.c.amount_usd), 0.0)
_RUNNING = sessions.c.status == Status.RUNNING.value
_IS_OPEN = model_calls.c.ended_at.is_(None)

# Built once: every claim and every end of a session runs these.
_SETTLED = budget_entries.c.kind == "settled"
_ENTRIES_OF_SESSIONS = budget_entries.join(sessions, sessions.c.id == budget_entries.c.session_id)
_SPENT: Final = select(_AMOUNT).select_from(_ENTRIES_OF_SESSIONS).where(_SETTLED)
_SPENT_BY_CHAIN: Final = _SPENT.where(sessions.c.root_session_id == bindparam("chain"))
_SINCE: Final = bindparam("since", type_=UtcDateTime)  # a quarter of an hour begins
_SPENT_SINCE: Final = select(func.coalesce(func.sum(settled_sums.c.amount_usd), 0.0)).where(
    settled_sums.c.bucket >= _SINCE
)
# For running sessions only: the end of a session releases its allowance.
_RESERVED: Final = (
    select(_AMOUNT).select_from(_ENTRIES_OF_SESSIONS).where(budget_entries.c.kind == "reserved", _RUNNING)
)
_RESERVED_BY_CHAIN: Final = _RESERVED.where(sessions.c.root_session_id == bindparam("chain"))
_LIMITED: Final = select(  # one statement: a free slot waits for it
    _SPENT_BY_CHAIN.scalar_subquery().label("chain_usd"),
    _RESERVED_BY_CHAIN.scalar_subquery().label("chain_reserved_usd"),
    _SPENT_SINCE.scalar_subquery().label("day_usd"),
    _RESERVED.scalar_subquery().label("day_reserved_usd"),
)
_RESERVED_BY_SESSION: Final = select(func.sum(budget_entries.c.amount_usd)).where(
    budget_entries.c.session_id == bindparam("session"), budget_entries.c.kind == "reserved"
)
_ADD_ENTRY: Final = insert(budget_entries)
_UNRESERVE: Final = delete(budget_entries).where(
    budget_entries.c.session_id == bindparam("session"), budget_entries.c.kind == "reserved"
)
_CLOSE: Final = update(model_calls).where(model_calls.c.session_id == bindparam("session"), _IS_OPEN)
_CALLS: Final = select(model_calls).where(model_calls.c.session_id == bindparam("session"))

# One statement, built once: a model call waits for it before its first byte.
_CHARGED = func.coalesce(model_calls.c.charged_usd, 0.0)
_CALLER: Final = bindparam("caller", type_=Integer)
_ATTEMPT: Final = bindparam("attempt", type_=Integer)
_ROOT: Final = bindparam("root", type_=Integer)
_OF_CALLER = sessions.c.id == _CALLER
_OF_CHAIN = sessions.c.root_session_id == _ROOT


def _charged(*conditions: ColumnElement[bool]) -> ColumnElement[float]:
    """Add up what calls of running sessions are charged; those of ended sessions are settled."""
    return func.coalesce(func.sum(case((and_(*conditions), _CHARGED), else_=0.0)), 0.0)


_TOTALS = (
    select(
        select(func.count())
        .where(sessions.c.id == _CALLER, sessions.c.attempt == _ATTEMPT, _RUNNING)
        .correlate(None)
        .scalar_subquery()
        .label("current"),
        select(func.sum(budget_entries.c.amount_usd))
        .where(budget_entries.c.session_id == _CALLER, budget_entries.c.kind == "reserved")
        .scalar_subquery()
        .label("allowed"),
        select(_AMOUNT)
        .join(sessions, sessions.c.id == budget_entries.c.session_id)
        .where(budget_entries.c.kind == "settled", _OF_CHAIN)
        .correlate(None)
        .scalar_subquery()
        .label("chain_settled"),
        _SPENT_SINCE.scalar_subquery().label("day_settled"),
        _charged(not_(_IS_OPEN), _OF_CALLER).label("spent"),
        _charged(_IS_OPEN, _OF_CALLER).label("open"),
        _charged(not_(_IS_OPEN), _OF_CHAIN).label("chain_spent"),
        _charged(_IS_OPEN, _OF_CHAIN).label("chain_open"),
        _charged(not_(_IS_OPEN)).label("day_spent"),
        _charged(_IS_OPEN).label("day_open"),
    )
    .select_from(model_calls.join(sessions, sessions.c.id == model_calls.c.session_id))
    .where(_RUNNING)
)
_CHARGED_BY_RUNNING: Final = (
    select(func.coalesce(func.sum(_CHARGED), 0.0))
    .select_from(model_calls.join(sessions, sessions.c.id == model_calls.c.session_id))
    .where(_RUNNING)
)
_BEGIN = insert(model_calls)
_BOOK = update(model_calls).where(model_calls.c.id == bindparam("call"), _IS_OPEN)


class ModelCalls:
    """What model calls cost, and whether that may be spent. Its writes are urgent, as calls wait for them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin_model_call(
        self,
        session: Session,
        *,
        model: str,
        worst_usd: float,
        rules: EscalationRules,
        now: datetime,
        owed: Sequence[CallState] = (),
    ) -> AdmittedCall | CallWaits | BudgetDenied:
        """Record a model call before it starts, unless a budget forbids it.

        ``worst_usd`` is the most that it can cost; budgets count it while the call is open. Calls that begin at the
        same time are checked one after the other, so they cannot spend the same money. ``owed`` are ends of calls,
        which are written before budgets are checked. A call that was recorded after its caller had stopped waiting is
        ended again, and costs nothing.
        """
        timezone = rules.budgets.timezone if rules.budgets else "UTC"
        caller = {"caller": session.id, "attempt": session.attempt, "root": session.root_session_id}

        def begin(connection: Connection) -> AdmittedCall | CallWaits | BudgetDenied:
            for state in owed:
                book_call(connection, state)
            totals = connection.execute(_TOTALS, {**caller, "since": _midnight(now, timezone)}).one()
            if not totals.current:
                raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")
            objection = budget.objection(_balances(totals, rules), worst_usd)
            if objection is not None:
                return objection
            begun = {"session_id": session.id, "model": model, "charged_usd": worst_usd, "started_at": now}
            key = connection.execute(_BEGIN, begun).inserted_primary_key
            if key is None:
                raise StoreError("the database gave a new model call no id.")
            return AdmittedCall(id=key.id)

        def withdraw(connection: Connection, answer: AdmittedCall | CallWaits | BudgetDenied) -> None:
            if isinstance(answer, AdmittedCall):  # too late for the caller, who never made the call
                ended = {"ended_at": self._database.now(), "error": _NEVER_MADE, "charged_usd": 0.0}
                connection.execute(_BOOK, {"call": answer.id, **ended})

        return await self._database.write(begin, urgent=True, undo=withdraw)

    async def book_model_call(self, state: CallState) -> None:
        """Write what is known of a call that was begun; a call that is over is not changed any more."""
        await self._database.write(partial(book_call, state=state), urgent=True)


def allow(
    connection: Connection, found: Session, *, rules: EscalationRules, now: datetime
) -> Allowance | Shortfall | None:
    """Return what a session may spend, or why it may not start; ``None``: nothing limits it."""
    tier_usd = rules.budget_of(found.tier)
    if tier_usd is not None and found.budget_usd is not None:
        tier_usd = min(tier_usd, found.budget_usd)
    if rules.budgets is None or tier_usd is None:
        return None
    since = _midnight(now, rules.budgets.timezone)
    row = connection.execute(_LIMITED, {"chain": found.root_session_id, "since": since}).one()
    # A sum of decimals is a decimal in PostgreSQL.
    spending = Spending(
        chain_usd=float(row.chain_usd),
        chain_reserved_usd=float(row.chain_reserved_usd),
        day_usd=float(row.day_usd),
        day_reserved_usd=float(row.day_reserved_usd),
    )
    return budget.allowance(tier_usd, rules.budgets, spending)


def is_day_spent(
    connection: Connection, short: Shortfall, session_id: int, *, rules: EscalationRules, now: datetime
) -> bool:
    """Tell whether the day's budget does not let a session start before midnight; if so, hold the queue until then."""
    if short.scope is not BudgetScope.DAY or short.temporary or rules.budgets is None:
        return False
    hold = budget.day_hold(rules.budgets, short.spent_usd, now=now)
    set_hold(connection, hold, now=now, session_id=session_id)
    return True


def reserve(connection: Connection, session_id: int, usd: float, *, at: datetime) -> None:
    """Reserve a session's allowance."""
    connection.execute(_ADD_ENTRY, _entry(session_id, "reserved", usd, at))


def unreserve(connection: Connection, session_id: int) -> None:
    """Drop the reservation of a session that was not started."""
    connection.execute(_UNRESERVE, {"session": session_id})


def settle(
    connection: Connection, session_id: int, spent_usd: float | None, *, reserved_usd: float | None, at: datetime
) -> None:
    """Release what was reserved for a session, and book what it spent, if that is known."""
    entries = []
    if reserved_usd is not None:
        entries.append(_entry(session_id, "released", float(reserved_usd), at))
    if (amount := known_usd(spent_usd)) is not None:
        entries.append(_entry(session_id, "settled", amount, at))
    if entries:
        connection.execute(_ADD_ENTRY, entries)


def reserved_of(connection: Connection, session_id: int) -> float | None:
    """Return what was reserved for a session; ``None``: nothing limits it."""
    amount = connection.execute(_RESERVED_BY_SESSION, {"session": session_id}).scalar_one()
    return None if amount is None else float(amount)


def chain_spent(connection: Connection, root_session_id: int) -> float:
    """Return what the ended sessions of a chain spent."""
    return float(connection.execute(_SPENT_BY_CHAIN, {"chain": root_session_id}).scalar_one())


def spent_since(connection: Connection, since: datetime) -> float:
    """Return what ended sessions have spent since a quarter of an hour began, and running ones have so far."""
    settled = connection.execute(_SPENT_SINCE, {"since": budget.bucket_of(since)}).scalar_one()
    return float(settled) + float(connection.execute(_CHARGED_BY_RUNNING).scalar_one())


def book_call(connection: Connection, state: CallState) -> None:
    """Write what is known of a call; a call that is over no longer changes."""
    connection.execute(_BOOK, {"call": state.id, **call_values(state)})


def close_calls(connection: Connection, session_id: int, *, at: datetime, error: str) -> None:
    """End the open calls of a session that nobody serves any more, with what is known of them.

    They still count with the most that they can have cost: the API may have served more than anybody noted.
    """
    connection.execute(_CLOSE, {"session": session_id, "ended_at": at, "error": error})


def booked_calls(connection: Connection, session_id: int) -> BookedCalls:
    """Return the sum of a session's model calls."""
    calls = connection.execute(_CALLS, {"session": session_id})
    return budget.sum_calls(tuple(map(to_booked_call, calls)))


def _balances(totals: TableRow, rules: EscalationRules) -> Iterable[Balance]:
    if rules.budgets is None:
        return
    if totals.allowed is not None:
        yield _balance(BudgetScope.SESSION, totals.allowed, totals.spent, totals.open)
    chain = float(totals.chain_settled) + float(totals.chain_spent)
    yield _balance(BudgetScope.CHAIN, rules.budgets.chain_usd, chain, totals.chain_open)
    day = float(totals.day_settled) + float(totals.day_spent)
    yield _balance(BudgetScope.DAY, rules.budgets.day_usd, day, totals.day_open)


def _balance(scope: BudgetScope, limit: float, spent: float, still_open: float) -> Balance:
    # A sum of decimals is a decimal in PostgreSQL.
    return Balance(scope=scope, limit_usd=float(limit), spent_usd=float(spent), open_usd=float(still_open))


def _midnight(now: datetime, timezone: str) -> datetime:
    """Return since when entries count for the day: a zone of which midnight is within a bucket has all of it."""
    return budget.bucket_of(budget.last_midnight(now, timezone))


def _entry(session_id: int, kind: str, usd: float, at: datetime) -> dict[str, object]:
    return {"session_id": session_id, "kind": kind, "amount_usd": usd, "created_at": at}
