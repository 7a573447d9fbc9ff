"""Any store: allowances, model calls, and that nobody spends what somebody else was promised."""

from __future__ import annotations

from datetime import datetime

import anyio
import pytest

from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.events import EventLevel
from claudeops.domain.holds import HoldKind
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Status
from claudeops.domain.spending.budget import AdmittedCall, BudgetDenied, Budgets, BudgetScope, CallWaits
from claudeops.domain.spending.tokens import CallState, TokenUsage
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import NOW, after, alarm, claimed, ending, gone, how_many_wait, queued, rules, wanted
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

TIERS = (
    TierChoice(number=1, model="haiku", max_budget_usd=0.5),
    TierChoice(number=2, model="sonnet", max_budget_usd=2),
)
USAGE = TokenUsage(
    input_tokens=12, output_tokens=60, cache_read_tokens=5400, cache_write_tokens=900, cache_write_1h_tokens=300
)


def paid(*, chain: float = 3, day: float = 4, tiers: tuple[TierChoice, ...] = TIERS) -> EscalationRules:
    return replace(rules(limited=False, tiers=tiers, max_tier=2), budgets=Budgets(chain_usd=chain, day_usd=day))


RULES = paid()


async def running(store: Store, *, with_rules: EscalationRules = RULES, at: datetime = NOW, tier: int = 1) -> Session:
    await queued(store, wanted(tier), at=at)
    session = await claimed(store, at=at, with_rules=with_rules)
    assert session is not None
    return session


async def begun(store: Store, session: Session, worst: float = 0.2, *, with_rules: EscalationRules = RULES) -> int:
    answer = await asked(store, session, worst, with_rules=with_rules)
    assert isinstance(answer, AdmittedCall)
    return answer.id


async def asked(
    store: Store, session: Session, worst: float = 0.2, *, with_rules: EscalationRules = RULES, at: datetime = NOW
) -> AdmittedCall | CallWaits | BudgetDenied:
    return await store.spending.begin_model_call(
        session, model="claude-haiku-5-5", worst_usd=worst, rules=with_rules, now=at
    )


def state(call_id: int, cost: float | None = 0.1, *, over: bool = True, **changes: object) -> CallState:
    values: dict[str, object] = {
        "id": call_id,
        "http_status": 200,
        "usage": USAGE,
        "cost_usd": cost,
        "charged_usd": cost or 0.0,
        "ended_at": after(minutes=1) if over else None,
        **changes,
    }
    return CallState(**values)  # type: ignore[arg-type]


async def spent(store: Store, session: Session, usd: float, *, with_rules: EscalationRules = RULES) -> None:
    await store.spending.book_model_call(state(await begun(store, session, 0.01, with_rules=with_rules), usd))


def entries(database: Database) -> list[tuple[object, object, object]]:
    rows = database.rows("budget_entries")
    return [(row["session_id"], row["kind"], pytest.approx(row["amount_usd"])) for row in rows]


# --- a call -----------------------------------------------------------------------------------------------


async def test_a_call_is_on_record_before_it_starts_and_says_at_its_end_what_it_used(
    store: Store, database: Database
) -> None:
    session = await running(store)
    call_id = await begun(store, session, 0.2)

    [row] = database.rows("model_calls")
    assert (row["session_id"], row["model"], row["started_at"]) == (session.id, "claude-haiku-5-5", NOW)
    assert (row["ended_at"], row["cost_usd"], row["input_tokens"], row["charged_usd"]) == (None, None, None, 0.2)

    await store.spending.book_model_call(state(call_id, over=False, charged_usd=0.2))
    await store.spending.book_model_call(state(call_id, error="overloaded_error"))

    [row] = database.rows("model_calls")
    tokens = [row[name] for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")]
    assert tokens == [12, 60, 5400, 900]
    assert (row["cache_write_1h_tokens"], row["http_status"], row["error"]) == (300, 200, "overloaded_error")
    assert (row["cost_usd"], row["charged_usd"], row["ended_at"]) == (0.1, 0.1, after(minutes=1))


async def test_a_call_that_is_over_is_not_changed_any_more(store: Store, database: Database) -> None:
    session = await running(store)
    call_id = await begun(store, session)
    await store.spending.book_model_call(state(call_id))
    before = database.rows("model_calls")

    await store.spending.book_model_call(state(call_id, 9.0, over=False))
    await store.spending.book_model_call(state(call_id, 9.0))

    assert database.rows("model_calls") == before


async def test_what_is_owed_is_written_before_budgets_are_looked_at(store: Store, database: Database) -> None:
    session = await running(store)
    first = await begun(store, session, 0.4)
    assert isinstance(await asked(store, session, 0.4), CallWaits)

    owed = (state(first, 0.05),)
    answer = await store.spending.begin_model_call(
        session, model="claude-haiku-5-5", worst_usd=0.4, rules=RULES, now=NOW, owed=owed
    )

    assert isinstance(answer, AdmittedCall)
    assert [row["charged_usd"] for row in database.rows("model_calls")] == [0.05, 0.4]
    await store.spending.book_model_call(state(answer.id, 0.46))
    refused = await store.spending.begin_model_call(
        session, model="claude-haiku-5-5", worst_usd=0.4, rules=RULES, now=NOW, owed=owed
    )
    assert isinstance(refused, BudgetDenied)


async def test_only_the_current_attempt_of_a_running_session_makes_calls(store: Store, database: Database) -> None:
    session = await running(store)
    with pytest.raises(StaleAttemptError):
        await asked(store, replace(session, attempt=session.attempt + 1))
    await store.queue.finish(ending(session), rules=RULES)
    with pytest.raises(StaleAttemptError):
        await asked(store, session)
    assert database.rows("model_calls") == []


# --- a session's end --------------------------------------------------------------------------------------


async def test_a_session_costs_the_sum_of_its_calls(store: Store, database: Database) -> None:
    session = await running(store)
    for usd in (0.1, 0.15):
        await spent(store, session, usd)

    await store.queue.finish(ending(session, cost_usd=0.9, input_tokens=1), rules=RULES)

    [row] = database.rows("sessions")
    assert row["cost_usd"] == pytest.approx(0.25)
    assert (row["input_tokens"], row["output_tokens"], row["cached_input_tokens"]) == (24, 120, 10800)
    assert "cost-differs: the CLI says 0.900000 USD, booked were 0.250000 USD" in str(row["warnings"])
    one = session.id
    assert entries(database) == [(one, "reserved", 0.5), (one, "released", 0.5), (one, "settled", 0.25)]


async def test_without_calls_the_clis_own_figure_is_settled(store: Store, database: Database) -> None:
    session = await running(store)
    await store.queue.finish(ending(session, cost_usd=0.125), rules=RULES)
    assert entries(database)[-1] == (session.id, "settled", 0.125)
    assert database.rows("sessions")[0]["cost_usd"] == 0.125


async def test_what_could_not_be_booked_in_time_is_booked_with_the_end(store: Store, database: Database) -> None:
    session = await running(store)
    call_id = await begun(store, session)

    await store.queue.finish(ending(session, unbooked=(state(call_id),)), rules=RULES)

    assert database.rows("model_calls")[0]["ended_at"] == after(minutes=1)
    assert database.rows("sessions")[0]["cost_usd"] == pytest.approx(0.1)


async def test_a_call_that_nobody_ended_is_over_with_its_session(store: Store, database: Database) -> None:
    session = await running(store)
    said, silent = await begun(store, session, 0.03), await begun(store, session, 0.02)
    await store.spending.book_model_call(state(said, 0.01, over=False, charged_usd=0.03))

    await store.queue.finish(ending(session), rules=RULES)

    calls = {row["id"]: row for row in database.rows("model_calls")}
    assert all((row["error"], row["ended_at"]) == ("not seen to end", after(minutes=1)) for row in calls.values())
    # Nobody knows what became of them: they count with the most that they can have cost.
    assert (calls[said]["charged_usd"], calls[silent]["charged_usd"]) == (0.03, 0.02)
    assert entries(database)[-1] == (session.id, "settled", 0.05)


async def test_a_call_without_a_price_leaves_the_cost_unknown_and_is_settled_all_the_same(
    store: Store, database: Database
) -> None:
    session = await running(store)
    await store.spending.book_model_call(state(await begun(store, session), None, charged_usd=0.3))
    await store.queue.finish(ending(session, cost_usd=0.05), rules=RULES)
    [row] = database.rows("sessions")
    assert row["cost_usd"] is None
    assert "cost-unknown: there is no price for claude-haiku-5-5" in str(row["warnings"])
    assert entries(database)[-1] == (session.id, "settled", 0.3)


async def test_a_lost_session_keeps_what_its_calls_had_said(store: Store, database: Database) -> None:
    session = await running(store)
    await spent(store, session, 0.1)
    mid_stream, unanswered = await begun(store, session, 0.03), await begun(store, session, 0.02)
    await store.spending.book_model_call(state(mid_stream, 0.01, over=False, charged_usd=0.03))

    [lost] = await gone(store, at=after(hours=1))

    assert lost.outcome is Outcome.LOST
    assert lost.cost_usd == pytest.approx(0.11)
    calls = {row["id"]: row for row in database.rows("model_calls")}
    assert all(row["ended_at"] for row in calls.values())
    # Nobody knows what became of them: they count with the most that they can have cost.
    assert (calls[mid_stream]["cost_usd"], calls[mid_stream]["charged_usd"]) == (0.01, 0.03)
    assert (calls[unanswered]["cost_usd"], calls[unanswered]["charged_usd"]) == (None, 0.02)
    assert [kind for _, kind, _ in entries(database)] == ["reserved", "released", "settled"]
    assert entries(database)[-1][-1] == 0.15


# --- who may start ----------------------------------------------------------------------------------------


@pytest.mark.dialect
async def test_what_one_session_was_promised_no_other_gets(store: Store, database: Database) -> None:
    tight = paid(chain=1, day=1)
    sessions = [await queued(store) for _ in range(4)]

    first = await claimed(store, with_rules=tight)
    second = await claimed(store, with_rules=tight)
    assert await claimed(store, with_rules=tight) is None, "the day is promised away"
    assert first is not None
    assert second is not None
    assert [kind for _, kind, _ in entries(database)] == ["reserved", "reserved"]
    assert await store.holds.standing(NOW) == (), "what is promised may come back: the day is not spent"

    await spent(store, first, 0.1, with_rules=tight)
    await store.queue.finish(ending(first), rules=tight)
    third = await claimed(store, at=after(minutes=2), with_rules=tight)
    assert third is not None
    assert third.id == sessions[2].id
    assert entries(database)[-1] == (third.id, "reserved", 0.4)
    assert [session.allowance_usd for session in (first, second, third)] == [0.5, 0.5, pytest.approx(0.4)]


async def test_a_session_that_waits_for_money_holds_no_cheaper_one_back(store: Store) -> None:
    tight = paid(chain=2.4, day=2.4)
    await running(store, with_rules=tight, tier=2)
    dear, cheap = await queued(store, wanted(2)), await queued(store, wanted(1))

    taken = await claimed(store, with_rules=tight)

    assert taken is not None
    assert taken.id == cheap.id != dear.id


@pytest.mark.dialect
async def test_a_spent_day_parks_the_queue_until_midnight_with_one_critical_event(
    store: Store, database: Database
) -> None:
    tight = paid(chain=1, day=1)
    session = await running(store, with_rules=tight)
    await spent(store, session, 0.95, with_rules=tight)
    await store.queue.finish(ending(session), rules=tight)
    waiting = [await queued(store, at=after(minutes=2)) for _ in range(2)]

    for minute in (3, 4, 5):
        assert await claimed(store, at=after(minutes=minute), with_rules=tight) is None

    [hold] = await store.holds.standing(after(minutes=6))
    assert (hold.kind, hold.until) == (HoldKind.BUDGET, after(hours=12))
    told = [row for row in database.rows("events") if row["fingerprint"] == "hold:budget"]
    assert [(row["level"], row["count"], row["resolved_at"]) for row in told] == [(EventLevel.CRITICAL.value, 1, None)]
    assert await how_many_wait(store) == 2

    taken = await claimed(store, at=after(hours=12), with_rules=tight)
    assert taken is not None
    assert taken.id == waiting[0].id
    assert [row["resolved_at"] for row in database.rows("events") if row["fingerprint"] == "hold:budget"] != [None]


@pytest.mark.dialect
async def test_the_day_begins_anew_at_midnight_of_its_own_time_zone(store: Store) -> None:
    nepal = replace(RULES, budgets=Budgets(chain_usd=0.5, day_usd=0.5, timezone="Asia/Kathmandu"))  # UTC+5:45
    session = await running(store, with_rules=nepal)
    await spent(store, session, 0.5, with_rules=nepal)
    await store.queue.finish(ending(session), rules=nepal)
    await queued(store, at=after(minutes=2))
    assert await claimed(store, at=after(hours=6), with_rules=nepal) is None
    assert await claimed(store, at=after(hours=6, minutes=15), with_rules=nepal) is not None


async def test_a_chain_out_of_budget_escalates_no_further(store: Store, database: Database) -> None:
    tight = paid(chain=0.6, day=4, tiers=(TIERS[0], replace(TIERS[1], max_budget_usd=0.6)))
    session = await running(store, with_rules=tight)
    await spent(store, session, 0.5, with_rules=tight)

    finished = await store.queue.finish(ending(session, alarm()), rules=tight)

    assert (finished.decision.reason, finished.next_session_id) == (DecisionReason.BUDGET, None)
    [event] = [row for row in database.rows("events") if str(row["fingerprint"]).startswith("budget:")]
    assert event["level"] == EventLevel.CRITICAL.value
    assert "the chain has spent 0.50 of its 0.6 USD" in str(event["message"])


async def test_a_queued_session_of_a_chain_that_has_no_money_left_ends_as_blocked(
    store: Store, database: Database
) -> None:
    session = await running(store)
    await spent(store, session, 0.4)
    finished = await store.queue.finish(ending(session, alarm()), rules=RULES)
    assert finished.next_session_id is not None

    assert await claimed(store, at=after(minutes=2), with_rules=paid(chain=0.5)) is None

    blocked = await store.records.session(finished.next_session_id)
    assert blocked is not None
    assert (blocked.status, blocked.outcome) == (Status.ENDED, Outcome.BLOCKED)
    assert blocked.decision_reason is DecisionReason.BUDGET
    assert any("the chain has spent" in str(row["message"]) for row in database.rows("events"))


async def test_without_budgets_nothing_is_reserved(store: Store, database: Database) -> None:
    session = await running(store, with_rules=rules())
    assert entries(database) == []
    assert isinstance(await asked(store, session, 1e6, with_rules=rules()), AdmittedCall)


# --- which call may start -----------------------------------------------------------------------------------


async def test_a_call_beyond_the_sessions_allowance_is_refused(store: Store, database: Database) -> None:
    session = await running(store)
    await spent(store, session, 0.5)

    refused = await asked(store, session)

    assert isinstance(refused, BudgetDenied)
    assert (refused.scope, refused.message) == (
        BudgetScope.SESSION,
        "the session's budget is spent (0.5000 of 0.5 USD)",
    )
    assert len(database.rows("model_calls")) == 1


async def test_a_call_that_could_pass_a_budget_waits_for_those_that_are_open(store: Store) -> None:
    session = await running(store)
    first = await begun(store, session, 0.4)
    assert await asked(store, session, 0.4) == CallWaits(scope=BudgetScope.SESSION)
    await store.spending.book_model_call(state(first, 0.05))
    second = await asked(store, session, 9.0)
    assert isinstance(second, AdmittedCall), "nobody else is open: this is the one that may pass it"


async def test_a_chain_pays_for_all_its_sessions(store: Store) -> None:
    session = await running(store)
    await spent(store, session, 0.4)
    await store.queue.finish(ending(session, alarm()), rules=RULES)
    following = await claimed(store, at=after(minutes=2), with_rules=RULES)
    assert following is not None
    await spent(store, following, 1.0)
    refused = await asked(store, following, with_rules=paid(chain=1.4))
    assert isinstance(refused, BudgetDenied)
    assert refused.scope is BudgetScope.CHAIN


@pytest.mark.dialect
async def test_sessions_side_by_side_pass_the_day_by_one_call_at_most(store: Store, database: Database) -> None:
    """Four sessions on two nodes that ask as often as they may, each call as dear as it can be."""
    loose = paid(chain=1.0, day=1.0, tiers=(replace(TIERS[0], max_budget_usd=0.25), TIERS[1]))
    sessions = [await running(store, with_rules=loose) for _ in range(4)]
    costs: list[float] = []

    async def ask_until_refused(node: Store, session: Session) -> None:
        while not isinstance(answer := await asked(node, session, 0.11, with_rules=loose), BudgetDenied):
            if isinstance(answer, AdmittedCall):
                await anyio.lowlevel.checkpoint()
                await node.spending.book_model_call(state(answer.id, 0.11))
                costs.append(0.11)

    other = database.open()
    try:
        async with anyio.create_task_group() as tasks:
            for number, session in enumerate(sessions):
                tasks.start_soon(ask_until_refused, (store, other)[number % 2], session)
    finally:
        await other.close()
    assert 1.0 <= sum(costs) <= 1.0 + 0.11 + 1e-9


async def test_money_that_was_given_back_is_there_again(store: Store) -> None:
    tight = paid(chain=0.5, day=0.5)
    session = await running(store, with_rules=tight)
    await store.queue.finish(ending(session), rules=tight)
    assert await running(store, with_rules=tight, at=after(minutes=2)) is not None
