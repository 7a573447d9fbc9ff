"""Any store: what becomes of the due times of schedules."""

from __future__ import annotations

from datetime import datetime

import pytest

from claudeops.domain.chains.escalation import retry_of
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.schedules.plan import Fire, LastFire, Overlap, SkipReason
from claudeops.domain.sessions import DecisionReason, Outcome, Session
from claudeops.domain.spending.budget import Budgets
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    RULES,
    after,
    alarm,
    check,
    claimed,
    ending,
    report,
    rules,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)


def fire(schedule: str, due_at: datetime, **changes: object) -> Fire:
    values: dict[str, object] = {"schedule": schedule, "due_at": due_at, **changes}
    return Fire(**values)  # type: ignore[arg-type]


@pytest.mark.dialect
async def test_fire_is_recorded_once_whoever_repeats_it(store: Store, database: Database) -> None:
    first = await store.schedules.fire(fire("default", NOW), wanted(), rules=RULES, now=NOW)
    again = await store.schedules.fire(fire("default", NOW), wanted(), rules=RULES, now=after(minutes=1))

    assert isinstance(first, Session)
    assert again is None
    (fired,) = database.rows("schedule_fires")
    assert (fired["session_id"], fired["skipped_reason"], fired["fired_at"]) == (first.id, None, NOW)
    assert (await store.schedules.last_fires())["default"].due_at == NOW
    assert "another" not in await store.schedules.last_fires()


async def test_fire_is_skipped_while_an_escalation_of_its_last_chain_is_under_way(store: Store) -> None:
    first = await store.schedules.fire(fire("default", NOW), wanted(), rules=RULES, now=NOW)
    assert isinstance(first, Session)
    session = await claimed(store)
    assert session is not None
    await store.queue.finish(ending(session, alarm()), rules=RULES)

    while_escalated = await store.schedules.fire(
        fire("default", after(hours=1)), wanted(), rules=RULES, now=after(hours=1)
    )
    another = await store.schedules.fire(fire("another", after(hours=1)), wanted(), rules=RULES, now=after(hours=1))
    escalated = await claimed(store, at=after(hours=1))
    assert escalated is not None
    await store.queue.finish(ending(escalated, report(check("web"))), rules=RULES)
    when_done = await store.schedules.fire(fire("default", after(hours=2)), wanted(), rules=RULES, now=after(hours=2))

    assert while_escalated is SkipReason.CHAIN_UNFINISHED
    assert isinstance(another, Session)
    assert isinstance(when_done, Session)
    assert (await store.schedules.last_fires())["default"].due_at == after(hours=2)


async def test_fire_of_a_forbidden_tier_is_recorded_as_suppressed(store: Store, database: Database) -> None:
    answer = await store.schedules.fire(fire("remedy", NOW), wanted(3), rules=rules(dry_run=True), now=NOW)

    assert answer is SkipReason.SUPPRESSED
    (fired,) = database.rows("schedule_fires")
    assert (fired["session_id"], fired["skipped_reason"]) == (None, "suppressed")
    assert len(database.rows("events")) == 1


async def fired(store: Store, hour: float, **changes: object) -> Session | SkipReason | None:
    at = after(hours=hour)
    return await store.schedules.fire(fire("default", at, **changes), wanted(), rules=RULES, now=at)


async def ended(store: Store, *, at: datetime, cost_usd: float | None = None) -> Session:
    session = await claimed(store, at=at)
    assert session is not None
    end = ending(session, report(check("web"), check("db")), cost_usd=cost_usd)
    await store.queue.finish(end, rules=RULES)
    return session


async def test_one_chain_waits_for_the_end_of_the_one_before_it(store: Store) -> None:
    first = await fired(store, 0, overlap=Overlap.QUEUE)
    running = await claimed(store)
    second = await fired(store, 1, overlap=Overlap.QUEUE)
    third = await fired(store, 2, overlap=Overlap.QUEUE)

    assert isinstance(first, Session)
    assert isinstance(second, Session)
    assert third is SkipReason.CHAIN_UNFINISHED  # one waits already
    assert await claimed(store, at=after(hours=2)) is None
    assert running is not None
    await store.queue.finish(ending(running, report(check("web"))), rules=RULES)
    claim = await claimed(store, at=after(hours=2))
    assert claim is not None
    assert claim.id == second.id


async def test_a_waiting_chain_waits_for_the_escalation_of_the_one_before_it(store: Store) -> None:
    await fired(store, 0, overlap=Overlap.QUEUE)
    running = await claimed(store)
    second = await fired(store, 1, overlap=Overlap.QUEUE)
    assert running is not None
    await store.queue.finish(ending(running, alarm()), rules=RULES)

    escalated = await claimed(store, at=after(hours=2))
    assert escalated is not None
    assert escalated.root_session_id == running.id
    assert await claimed(store, at=after(hours=2)) is None
    await store.queue.finish(ending(escalated, report(check("web"))), rules=RULES)
    claim = await claimed(store, at=after(hours=2))
    assert claim is not None
    assert isinstance(second, Session)
    assert claim.id == second.id


async def test_chains_of_a_schedule_may_overlap_where_it_says_so(store: Store) -> None:
    first = await fired(store, 0, overlap=Overlap.ALLOW)
    running = await claimed(store)
    second = await fired(store, 1, overlap=Overlap.ALLOW)
    claim = await claimed(store, at=after(hours=1))

    assert isinstance(first, Session)
    assert isinstance(second, Session)
    assert running is not None
    assert claim is not None
    assert claim.id == second.id


async def test_a_fire_that_is_not_wanted_is_recorded_with_its_reason_and_queues_nothing(
    store: Store, database: Database
) -> None:
    await fired(store, 0)
    answer = await fired(store, 1, skip=SkipReason.UNCHANGED, saved_usd=0.125)
    again = await fired(store, 1)

    assert answer is SkipReason.UNCHANGED
    assert again is None
    row = database.rows("schedule_fires")[1]
    assert (row["skipped_reason"], row["session_id"], row["saved_usd"]) == ("unchanged", None, 0.125)
    assert len(database.rows("sessions")) == 1


@pytest.mark.dialect
async def test_what_was_skipped_and_saved_can_be_counted(store: Store) -> None:
    for hour in range(4):
        await fired(store, hour, skip=SkipReason.UNCHANGED, saved_usd=0.1 if hour else None)
    await fired(store, 4, skip=SkipReason.QUIET_HOURS)
    await fired(store, 5)

    saved = await store.schedules.saved(after(hours=1))

    assert saved.skipped == {"unchanged": 3, "quiet_hours": 1}
    assert abs(saved.usd - 0.3) < 1e-9
    assert (await store.schedules.saved(after(hours=6))).skipped == {}


@pytest.mark.dialect
async def test_the_last_chain_of_a_schedule_is_told_from_what_was_skipped_since(store: Store) -> None:
    assert await store.schedules.last_fires() == {}
    await fired(store, 0)
    await ended(store, at=after(hours=0.5))
    await fired(store, 1, skip=SkipReason.UNCHANGED)

    assert await store.schedules.last_fires() == {
        "default": LastFire(due_at=after(hours=1), started_due_at=NOW, started_at=NOW)
    }


@pytest.mark.dialect
async def test_the_mean_cost_is_that_of_whole_chains_of_the_schedule(store: Store) -> None:
    assert await store.schedules.mean_cost("default") is None
    for hour, cost in enumerate((0.1, None, 0.3)):
        await fired(store, hour)
        await ended(store, at=after(hours=hour), cost_usd=cost)

    mean = await store.schedules.mean_cost("default")
    assert mean is not None
    assert abs(mean - 0.2) < 1e-9
    assert await store.schedules.mean_cost("another") is None


async def test_the_last_round_is_known_once_its_chain_has_ended(store: Store) -> None:
    assert await store.schedules.last_round("default") is None
    await fired(store, 0)
    assert await store.schedules.last_round("default") is None
    session = await ended(store, at=after(minutes=5))
    await fired(store, 1, skip=SkipReason.UNCHANGED)

    last = await store.schedules.last_round("default")
    assert last is not None
    assert (last.reason, last.looked_from, last.services) == (
        DecisionReason.HEALTHY,
        session.started_at,
        ("db", "web"),
    )
    await fired(store, 2)
    assert await store.schedules.last_round("default") is None  # it is under way


async def test_a_schedules_budget_is_a_bound_of_its_sessions_and_of_their_retries(store: Store) -> None:
    limited = replace(
        RULES,
        budgets=Budgets(chain_usd=5, day_usd=10),
        tiers=tuple(replace(tier, max_budget_usd=1.0) for tier in RULES.tiers),
    )
    for number, (budget, allowed) in enumerate(((0.25, 0.25), (None, 1.0), (3.0, 1.0))):
        new = replace(wanted(), budget_usd=budget)
        at = after(hours=number)
        await store.schedules.fire(fire("default", at), new, rules=limited, now=at)
        claim = await claimed(store, at=at, with_rules=limited)
        assert claim is not None
        assert (claim.budget_usd, claim.allowance_usd) == (budget, allowed)
        retry = retry_of(claim, ending(claim, outcome=Outcome.ERROR), at)
        assert retry is not None
        assert retry.budget_usd == budget
        await store.queue.finish(ending(claim, report(check("web"))), rules=limited)


async def test_an_event_about_the_schedules_is_raised_and_resolved(store: Store, database: Database) -> None:
    event = NewEvent(level=EventLevel.WARNING, message="line 3 is wrong", fingerprint="schedules")
    await store.schedules.note(event, over=False, now=NOW)
    await store.schedules.note(event, over=False, now=after(minutes=1))
    await store.schedules.note(event, over=True, now=after(minutes=2))

    (row,) = database.rows("events")
    assert (row["count"], row["resolved_at"]) == (2, after(minutes=2))
