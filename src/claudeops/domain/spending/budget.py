"""What sessions may spend: reserved before the start, checked before every model call, settled at the end.

Three budgets apply at once: the session's (its tier's), the chain's and the day's. Settled here:

- A session starts with an *allowance*: its tier's budget, or what chain and day have left if that is less. The
  allowance is reserved from the moment of the claim, so sessions that run side by side cannot be promised the same
  money. With less than a quarter of its tier's budget no session is started: it would only be cut off.
- A model call may start while the amount spent is below each budget. Every open call counts with the most that it can
  cost. A call that could exceed a budget starts only when no other call under that budget is open, so at most one
  request exceeds a budget, however many sessions run.
- A model without a price counts as the dearest one; its cost stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.sessions import DecisionReason, Ending, Suppressed
from claudeops.domain.spending.prices import price_of
from claudeops.domain.spending.tokens import MessageUsage
from claudeops.structs import replace

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

LEAST_SHARE: Final = 0.25
"""The share of its tier's budget that a session needs to be started."""

BUCKET: Final = timedelta(minutes=15)
"""What is settled is added up for each quarter of an hour: days begin at one in every time zone."""

COST_TOLERANCE: Final = 0.2
"""The share by which the CLI's own figure may differ from the booked one before there is a warning."""


class BudgetScope(StrEnum):
    """What a budget applies to."""

    SESSION = "session"
    CHAIN = "chain"
    DAY = "day"


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets that sessions share, in US dollars; each tier has one of its own besides."""

    chain_usd: float
    day_usd: float
    timezone: str = "UTC"  # IANA name; the day ends at midnight there


# --- before a session -----------------------------------------------------------------------------------


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What has been spent, in US dollars, and what is reserved for running sessions."""

    chain_usd: float  # by the chain's ended sessions
    chain_reserved_usd: float
    day_usd: float  # settled since midnight
    day_reserved_usd: float


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a session may spend, at most, in US dollars."""

    usd: float


class Shortfall(msgspec.Struct, frozen=True, kw_only=True):
    """There is not enough money left to start a session."""

    scope: BudgetScope
    spent_usd: float
    temporary: bool  # running sessions have reserved money that they may not need

    @property
    def permanent(self) -> bool:
        """Whether waiting does not help: a chain gets no more money, whereas a day ends."""
        return self.scope is BudgetScope.CHAIN and not self.temporary


def allowance(tier_usd: float, budgets: Budgets, spending: Spending) -> Allowance | Shortfall:
    """Return what a session of a tier may spend, or which budget has too little left for it."""
    chain = (BudgetScope.CHAIN, budgets.chain_usd, spending.chain_usd, spending.chain_reserved_usd)
    day = (BudgetScope.DAY, budgets.day_usd, spending.day_usd, spending.day_reserved_usd)
    allowed = tier_usd
    for scope, limit, spent, reserved in (chain, day):
        free = limit - spent - reserved
        if free < tier_usd * LEAST_SHARE:
            return Shortfall(scope=scope, spent_usd=spent, temporary=limit - spent >= tier_usd * LEAST_SHARE)
        allowed = min(allowed, free)
    return Allowance(usd=allowed)


def chain_can_pay(tier_usd: float | None, budgets: Budgets, spent_usd: float) -> bool:
    """Tell whether a chain has enough left for a session of a tier."""
    return tier_usd is None or budgets.chain_usd - spent_usd >= tier_usd * LEAST_SHARE


def chain_clause(budgets: Budgets, spent_usd: float) -> str:
    """Return the clause that says why a chain goes no further."""
    return f"the chain has spent {spent_usd:.2f} of its {budgets.chain_usd:g} USD"


def unpaid(tier: int, allowed: Allowance | Shortfall | None, budgets: Budgets | None) -> Suppressed | None:
    """Return why a session of ``tier`` may never start: its chain has no money left. For the day's it would wait."""
    if budgets is None or not isinstance(allowed, Shortfall) or not allowed.permanent:
        return None
    clause = chain_clause(budgets, allowed.spent_usd)
    return Suppressed(reason=DecisionReason.BUDGET, message=f"a session of tier {tier} was not started: {clause}.")


def day_hold(budgets: Budgets, spent_usd: float, *, now: datetime) -> Hold:
    """Return the hold for a day whose budget is spent; it ends at midnight."""
    until = next_midnight(now, budgets.timezone)
    return Hold(
        kind=HoldKind.BUDGET,
        reason=(
            f"the day's budget is spent ({spent_usd:.2f} of {budgets.day_usd:g} USD): no session is started before "
            f"{until:%Y-%m-%d %H:%M} UTC."
        ),
        since=now,
        until=until,
    )


def last_midnight(now: datetime, timezone: str) -> datetime:
    """Return the beginning of the day in a time zone, in UTC."""
    return _midnight(now, timezone, days=0)


def bucket_of(moment: datetime) -> datetime:
    """Return when the quarter of an hour began that a moment is in, in UTC."""
    return moment - (moment - _EPOCH) % BUCKET


def next_midnight(now: datetime, timezone: str) -> datetime:
    """Return the end of the day in a time zone, in UTC."""
    return _midnight(now, timezone, days=1)


def _midnight(now: datetime, timezone: str, *, days: int) -> datetime:
    zone = ZoneInfo(timezone)
    day = now.astimezone(zone).date() + timedelta(days=days)
    # Where clocks skip midnight, Python takes it as the moment at which the day begins.
    return datetime.combine(day, time.min, zone).astimezone(UTC)


# --- before a model call ----------------------------------------------------------------------------------


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a budget when a call is about to start, in US dollars."""

    scope: BudgetScope
    limit_usd: float
    spent_usd: float  # calls that are over
    open_usd: float  # the most that open calls can cost

    @property
    def refusal(self) -> str:
        """The sentence that refuses a call."""
        return f"the {self.scope.value}'s budget is spent ({self.spent_usd:.4f} of {self.limit_usd:g} USD)"


class AdmittedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call may start; its row is written."""

    id: int


class CallWaits(msgspec.Struct, frozen=True, kw_only=True):
    """A model call may not start before another one has ended."""

    scope: BudgetScope


class BudgetDenied(msgspec.Struct, frozen=True, kw_only=True):
    """A model call may not start: a budget is spent."""

    scope: BudgetScope
    message: str


def objection(balances: Iterable[Balance], worst_usd: float) -> CallWaits | BudgetDenied | None:
    """Return why a call that can cost ``worst_usd`` may not start now, or ``None``."""
    waits: CallWaits | None = None
    for balance in balances:
        if balance.spent_usd >= balance.limit_usd:
            return BudgetDenied(scope=balance.scope, message=balance.refusal)
        if balance.open_usd > 0 and balance.spent_usd + balance.open_usd + worst_usd > balance.limit_usd:
            waits = waits or CallWaits(scope=balance.scope)
    return waits


# --- booked model calls ------------------------------------------------------------------------------------


class BookedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call as its row records it."""

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None  # None: not known
    charged_usd: float

    @property
    def lacks_price(self) -> bool:
        """Whether it used tokens that cannot be priced. A refused call used none."""
        used = self.input_tokens or self.output_tokens or self.cache_read_tokens or self.cache_write_tokens
        return self.cost_usd is None and bool(used)


class BookedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of a session's booked model calls."""

    count: int
    without_price: tuple[str, ...]  # models of calls that used tokens whose cost is unknown
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    priced_usd: float  # of the calls whose cost is known
    charged_usd: float  # what budgets count for them

    @property
    def known_cost_usd(self) -> float | None:
        """What they cost; ``None`` when the cost of some is unknown."""
        return None if self.without_price else self.priced_usd


def sum_calls(calls: Sequence[BookedCall]) -> BookedCalls:
    """Return the sum of model calls."""
    return BookedCalls(
        count=len(calls),
        without_price=tuple(sorted({call.model for call in calls if call.lacks_price})),
        input_tokens=sum(call.input_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cache_read_tokens=sum(call.cache_read_tokens for call in calls),
        priced_usd=sum(call.cost_usd or 0 for call in calls),
        charged_usd=sum(call.charged_usd for call in calls),
    )


def metered(ending: Ending, calls: BookedCalls) -> Ending:
    """Return an ending with what its model calls really used and cost, and a warning where the CLI's figures differ.

    Without any booked call (a session without the meter, or one without model calls) the CLI's own figures stay.
    """
    if not calls.count:
        return ending
    cost = calls.known_cost_usd
    return replace(
        ending,
        cost_usd=cost,
        input_tokens=calls.input_tokens,
        output_tokens=calls.output_tokens,
        cached_input_tokens=calls.cache_read_tokens,
        warnings=(*ending.warnings, *_cost_warnings(ending.cost_usd, cost, calls.without_price)),
    )


def from_stream(ending: Ending, messages: Sequence[MessageUsage]) -> Ending:
    """Return an ending without a result line with the usage of its messages, and a warning about that.

    For sessions that no meter has counted.
    """
    if ending.cost_usd is not None or ending.input_tokens is not None or not messages:
        return ending
    costs = [price.cost(seen.usage) if (price := price_of(seen.model)) else None for seen in messages]
    known = [cost for cost in costs if cost is not None]
    note = f"cost-from-stream: no result line came, so tokens and cost are those of {len(messages)} messages"
    return replace(
        ending,
        cost_usd=sum(known) if len(known) == len(costs) else None,
        input_tokens=sum(seen.usage.input_tokens for seen in messages),
        output_tokens=sum(seen.usage.output_tokens for seen in messages),
        cached_input_tokens=sum(seen.usage.cache_read_tokens for seen in messages),
        warnings=(*ending.warnings, note),
    )


def _cost_warnings(reported: float | None, booked: float | None, without_price: Sequence[str]) -> Iterable[str]:
    if without_price:
        yield f"cost-unknown: there is no price for {', '.join(without_price)}"
    if reported is not None and booked is not None and abs(reported - booked) > COST_TOLERANCE * max(booked, 0.0):
        yield f"cost-differs: the CLI says {reported:.6f} USD, booked were {booked:.6f} USD"
