"""Who may spend what: allowances, the calls that may start, and what is left of a day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.holds import HoldKind
from claudeops.domain.report.report import Extraction, ExtractionMethod
from claudeops.domain.sessions import Ending, Outcome
from claudeops.domain.spending.budget import (
    Allowance,
    Balance,
    BookedCall,
    BudgetDenied,
    Budgets,
    BudgetScope,
    CallWaits,
    Shortfall,
    Spending,
    allowance,
    chain_can_pay,
    day_hold,
    last_midnight,
    metered,
    next_midnight,
    objection,
    sum_calls,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BUDGETS = Budgets(chain_usd=10, day_usd=20)


def spending(chain: float = 0, chain_reserved: float = 0, day: float = 0, day_reserved: float = 0) -> Spending:
    return Spending(chain_usd=chain, chain_reserved_usd=chain_reserved, day_usd=day, day_reserved_usd=day_reserved)


# --- allowances -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "expected"),
    [
        (spending(), Allowance(usd=4)),
        (spending(chain=7), Allowance(usd=3)),
        (spending(chain=9.1), Shortfall(scope=BudgetScope.CHAIN, spent_usd=9.1, temporary=False)),
        (spending(chain=1, chain_reserved=8.1), Shortfall(scope=BudgetScope.CHAIN, spent_usd=1, temporary=True)),
        (spending(day=19), Allowance(usd=1)),
        (spending(day=19.1), Shortfall(scope=BudgetScope.DAY, spent_usd=19.1, temporary=False)),
        (spending(day=25), Shortfall(scope=BudgetScope.DAY, spent_usd=25, temporary=False)),
        (spending(day=10, day_reserved=9.1), Shortfall(scope=BudgetScope.DAY, spent_usd=10, temporary=True)),
        (spending(day=10, day_reserved=7), Allowance(usd=3)),
    ],
)
def test_session_is_promised_what_nobody_else_has(spent: Spending, expected: Allowance | Shortfall) -> None:
    assert allowance(4, BUDGETS, spent) == expected


@given(
    tiers=st.lists(st.floats(0.01, 30), max_size=30),
    spent=st.floats(0, 25),
)
def test_promises_together_never_pass_the_day(tiers: list[float], spent: float) -> None:
    reserved = 0.0
    for tier in tiers:
        promised = allowance(tier, Budgets(chain_usd=100, day_usd=20), spending(day=spent, day_reserved=reserved))
        reserved += promised.usd if isinstance(promised, Allowance) else 0
    assert reserved <= max(0.0, 20 - spent) + 1e-6


def test_chain_pays_while_a_quarter_of_the_tiers_budget_is_left() -> None:
    assert chain_can_pay(8, BUDGETS, 8)
    assert not chain_can_pay(8, BUDGETS, 8.01)
    assert chain_can_pay(None, BUDGETS, 100)


# --- days -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timezone", "now", "since", "until"),
    [
        ("UTC", NOW, datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)),
        ("Asia/Kathmandu", NOW, datetime(2026, 2, 28, 18, 15, tzinfo=UTC), datetime(2026, 3, 1, 18, 15, tzinfo=UTC)),
        # Berlin's clocks go forward on that day: it has 23 hours.
        (
            "Europe/Berlin",
            datetime(2026, 3, 29, 12, tzinfo=UTC),
            datetime(2026, 3, 28, 23, tzinfo=UTC),
            datetime(2026, 3, 29, 22, tzinfo=UTC),
        ),
        # Cairo's clocks skip the midnight itself.
        (
            "Africa/Cairo",
            datetime(2026, 4, 24, 12, tzinfo=UTC),
            datetime(2026, 4, 23, 22, tzinfo=UTC),
            datetime(2026, 4, 24, 21, tzinfo=UTC),
        ),
    ],
)
def test_day_ends_at_midnight_of_its_time_zone(timezone: str, now: datetime, since: datetime, until: datetime) -> None:
    assert (last_midnight(now, timezone), next_midnight(now, timezone)) == (since, until)


def test_spent_day_holds_the_queue_until_midnight() -> None:
    hold = day_hold(Budgets(chain_usd=10, day_usd=20, timezone="Asia/Kathmandu"), 20.004, now=NOW)
    assert (hold.kind, hold.until) == (HoldKind.BUDGET, datetime(2026, 3, 1, 18, 15, tzinfo=UTC))
    assert "20.00 of 20 USD" in hold.reason


# --- calls ------------------------------------------------------------------------------------------------


def balance(spent: float, still_open: float = 0, scope: BudgetScope = BudgetScope.SESSION) -> Balance:
    return Balance(scope=scope, limit_usd=1, spent_usd=spent, open_usd=still_open)


@pytest.mark.parametrize(
    ("balances", "expected"),
    [
        ([], None),
        ([balance(0)], None),
        ([balance(0.99)], None),  # the one that may pass the budget
        ([balance(0.3, 0.3)], None),
        ([balance(0.5, 0.3)], CallWaits),
        ([balance(1)], BudgetDenied),
        ([balance(1, 0.3)], BudgetDenied),
        ([balance(0.5, 0.3), balance(1, scope=BudgetScope.DAY)], BudgetDenied),
        ([balance(0), balance(0.9, 0.1, scope=BudgetScope.DAY)], CallWaits),
    ],
)
def test_call_starts_waits_or_is_refused(balances: Sequence[Balance], expected: type | None) -> None:
    found = objection(balances, 0.4)
    assert (found is None) if expected is None else isinstance(found, expected)


@given(
    calls=st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 1)), min_size=1, max_size=40),
    order=st.randoms(use_true_random=False),
)
def test_budget_is_passed_by_one_call_at_most(calls: list[tuple[float, float]], order: object) -> None:
    """Whatever many callers do at once: each call costs a share of its worst, ends come in any order."""
    limit, spent, costs = 5.0, 0.0, [0.0]
    still_open: list[tuple[float, float]] = []
    waiting = list(calls)
    while waiting or still_open:
        now = Balance(
            scope=BudgetScope.DAY, limit_usd=limit, spent_usd=spent, open_usd=sum(worst for worst, _ in still_open)
        )
        against = objection([now], waiting[0][0]) if waiting else None
        if waiting and against is None:
            still_open.append(waiting.pop(0))
        elif isinstance(against, BudgetDenied):
            waiting.clear()
        else:
            worst, share = still_open.pop(order.randrange(len(still_open)))  # type: ignore[attr-defined]
            spent += worst * share
            costs.append(worst * share)
    assert spent <= limit + max(costs) + 1e-9


# --- sums -------------------------------------------------------------------------------------------------


def call(
    cost: float | None = 0.5, tokens: int = 10, model: str = "claude-haiku-5-5", charged: float = 0.5
) -> BookedCall:
    return BookedCall(
        model=model,
        input_tokens=tokens,
        output_tokens=tokens,
        cache_read_tokens=tokens,
        cache_write_tokens=tokens,
        cost_usd=cost,
        charged_usd=charged,
    )


def ending(cost: float | None) -> Ending:
    return Ending(
        session_id=1,
        attempt=1,
        outcome=Outcome.SUCCESS,
        extraction=Extraction(method=ExtractionMethod.NONE, report=None),
        ended_at=NOW,
        duration_ms=1,
        calls_ran=0,
        cost_usd=cost,
        input_tokens=7,
    )


@pytest.mark.parametrize("told", [None, 1.0, 0.81, 1.2])
def test_session_costs_what_its_calls_cost(told: float | None) -> None:
    booked = metered(ending(told), sum_calls([call(), call()]))
    assert (booked.cost_usd, booked.input_tokens, booked.output_tokens, booked.warnings) == (1.0, 20, 20, ())


@pytest.mark.parametrize("told", [0.79, 1.21, 0.0])
def test_other_figure_of_the_cli_is_a_warning(told: float) -> None:
    booked = metered(ending(told), sum_calls([call(), call()]))
    assert booked.cost_usd == 1.0
    assert [warning.partition(":")[0] for warning in booked.warnings] == ["cost-differs"]


def test_call_without_a_price_makes_the_cost_unknown_but_not_free() -> None:
    calls = sum_calls([call(), call(cost=None, model="claude-opus-9", charged=3)])
    booked = metered(ending(0.5), calls)
    assert booked.cost_usd is None
    assert booked.warnings == ("cost-unknown: there is no price for claude-opus-9",)
    assert calls.charged_usd == 3.5


def test_refused_call_leaves_the_cost_known() -> None:
    assert metered(ending(None), sum_calls([call(), call(cost=None, tokens=0, charged=0)])).cost_usd == 0.5


def test_session_without_booked_calls_keeps_the_clis_own_figures() -> None:
    assert metered(ending(0.25), sum_calls([])) == ending(0.25)
