"""Any store: what stops claims, and for how long."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from claudeops.domain.holds import ApiRefusal, Capacity, Hold, HoldKind
from claudeops.domain.sessions import FailureKind, Outcome, Session, Status, Trigger
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    check,
    claimed,
    ending,
    how_many_wait,
    queued,
    report,
    started,
    wanted,
)
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

TIMED = [HoldKind.PAUSED, HoldKind.BUDGET]
PROBED = [HoldKind.BREAKER, HoldKind.PARKED]


def held(kind: HoldKind, *, until: datetime | None = None, since: datetime = NOW) -> Hold:
    return Hold(kind=kind, reason=f"{kind.value} for a reason.", since=since, until=until)


async def taken(store: Store, *, at: datetime, **only: object) -> Session | None:
    taken = await store.claims.claim(
        OWNER,
        rules=RULES,
        now=at,
        cli_session_id=lambda: "5e0b1bd8-0000-4000-8000-000000000001",
        log_path=lambda session_id: f"/results/{session_id}",
        **only,  # type: ignore[arg-type]  # a test names its arguments
    )
    return taken[0] if taken else None


@pytest.mark.parametrize("kind", list(HoldKind))
async def test_nothing_is_claimed_under_any_hold_and_what_waits_goes_on_waiting(store: Store, kind: HoldKind) -> None:
    sessions = [await queued(store, wanted(tier)) for tier in (1, 2)]
    await store.holds.hold(held(kind), now=NOW)

    assert await claimed(store, at=after(days=300)) is None
    assert await claimed(store, at=after(days=300), owner=OTHER_OWNER) is None
    assert await how_many_wait(store) == len(sessions)

    assert await store.holds.release(kind, now=after(days=300))
    assert await claimed(store, at=after(days=300)) is not None


@pytest.mark.dialect
async def test_a_hold_reads_back_as_it_was_set(store: Store) -> None:
    hold = replace(held(HoldKind.PAUSED, until=after(hours=1)), by="ann", failures=3, trial=7)
    await store.holds.hold(hold, now=after(minutes=1))

    assert await store.holds.standing(after(minutes=2)) == (hold,)


async def test_holds_come_in_the_order_in_which_they_began(store: Store) -> None:
    late, early = held(HoldKind.BREAKER, since=after(minutes=2)), held(HoldKind.PAUSED, since=after(minutes=1))
    await store.holds.hold(late, now=after(minutes=2))
    await store.holds.hold(early, now=after(minutes=3))

    assert await store.holds.standing(after(minutes=4)) == (early, late)


async def test_one_hold_does_not_end_with_another(store: Store) -> None:
    await queued(store)
    await store.holds.hold(held(HoldKind.PAUSED), now=NOW)
    await store.holds.hold(held(HoldKind.BUDGET, until=after(hours=1)), now=NOW)

    assert await claimed(store, at=after(hours=2)) is None
    assert [hold.kind for hold in await store.holds.standing(after(hours=2))] == [HoldKind.PAUSED]


@pytest.mark.dialect
async def test_a_hold_outlives_the_store_that_set_it(database: Database) -> None:
    first = database.open()
    await first.holds.hold(held(HoldKind.PAUSED), now=NOW)
    second = database.open()
    try:
        assert await second.holds.standing(NOW) == (held(HoldKind.PAUSED),)
    finally:
        await first.close()
        if second is not first:
            await second.close()


@pytest.mark.dialect
@pytest.mark.parametrize("kind", TIMED)
async def test_a_hold_whose_time_is_over_holds_no_more_and_is_cleared_with_its_event(
    store: Store, database: Database, kind: HoldKind
) -> None:
    session = await queued(store)
    await store.holds.hold(held(kind, until=after(hours=1)), now=NOW)

    assert await claimed(store, at=after(minutes=59)) is None
    claim = await claimed(store, at=after(hours=1))

    assert claim is not None
    assert claim.id == session.id
    assert database.rows("flags") == []
    (event,) = database.rows("events")
    assert event["resolved_at"] == after(hours=1)


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        (HoldKind.PAUSED, "info"),
        (HoldKind.BREAKER, "critical"),
        (HoldKind.PARKED, "warning"),
        (HoldKind.BUDGET, "critical"),
    ],
)
async def test_a_hold_leaves_one_event_however_often_it_is_set_until_it_is_released(
    store: Store, database: Database, kind: HoldKind, level: str
) -> None:
    for minutes in range(3):
        await store.holds.hold(held(kind, until=after(hours=5 + minutes)), now=after(minutes=minutes))
    (event,) = database.rows("events")
    assert (event["level"], event["count"], event["message"], event["resolved_at"]) == (
        level,
        1,
        f"{kind.value} for a reason.",
        None,
    )

    assert await store.holds.release(kind, now=after(hours=1))
    assert not await store.holds.release(kind, now=after(hours=2))

    (event,) = database.rows("events")
    assert event["resolved_at"] == after(hours=1)
    assert database.rows("flags") == []


async def test_other_flags_are_no_holds(database: Database) -> None:
    async with opened(database) as store:
        database.execute("INSERT INTO flags (name, value, updated_at) VALUES ('colour', 'blue', '2026-03-01 00:00:00')")
        await queued(store)

        assert await store.holds.standing(NOW) == ()
        assert await claimed(store) is not None


async def test_a_hold_that_somebody_wrote_by_hand_holds_all_the_same(database: Database) -> None:
    async with opened(database) as store:
        database.execute("INSERT INTO flags (name, value, updated_at) VALUES ('paused', 'yes!', '2026-03-01 00:00:00')")
        await queued(store)

        assert await claimed(store) is None
        (hold,) = await store.holds.standing(NOW)
        assert (hold.kind, hold.reason) == (HoldKind.PAUSED, "no reason was given")


@pytest.mark.parametrize("kind", PROBED)
async def test_when_its_time_has_come_one_probe_of_the_lowest_tier_goes_alone(
    store: Store, database: Database, kind: HoldKind
) -> None:
    for tier in (2, 1, 1):
        await queued(store, wanted(tier))
    await store.holds.hold(held(kind, until=after(minutes=10)), now=NOW)

    assert await claimed(store, at=after(minutes=9)) is None
    probe = await claimed(store, at=after(minutes=10))
    assert probe is not None
    assert (probe.tier, probe.id) == (1, 2)
    assert await claimed(store, at=after(minutes=11)) is None
    assert [hold.trial for hold in await store.holds.standing(after(minutes=11))] == [probe.id]
    assert [row["status"] for row in database.rows("sessions")] == ["queued", "running", "queued"]


async def test_a_higher_tier_is_too_good_to_be_the_probe_so_one_is_queued_for_it(store: Store) -> None:
    waiting = await queued(store, wanted(3))
    await store.holds.hold(held(HoldKind.BREAKER, until=after(minutes=10)), now=NOW)

    probe = await claimed(store, at=after(minutes=10))

    assert probe is not None
    assert (probe.tier, probe.trigger, probe.model, probe.status) == (1, Trigger.RETRY, "haiku", Status.RUNNING)
    assert probe.root_session_id == probe.id
    still = await store.records.session(waiting.id)
    assert still is not None
    assert still.status is Status.QUEUED


async def test_no_probe_is_made_up_for_an_empty_queue_nor_for_one_chain_nor_without_room(store: Store) -> None:
    await store.holds.hold(held(HoldKind.PARKED, until=after(minutes=10)), now=NOW)
    assert await taken(store, at=after(minutes=11)) is None
    waiting = await queued(store, wanted(2))

    assert await taken(store, at=after(minutes=11), chain=waiting.id) is None
    assert await taken(store, at=after(minutes=11), room=Capacity(sessions=0)) is None
    assert await how_many_wait(store) == 1


async def test_no_probe_goes_while_another_hold_stands(store: Store) -> None:
    await queued(store)
    await store.holds.hold(held(HoldKind.BREAKER, until=after(minutes=10)), now=NOW)
    await store.holds.hold(held(HoldKind.PAUSED, until=after(hours=1)), now=NOW)

    assert await claimed(store, at=after(minutes=30)) is None
    assert await claimed(store, at=after(hours=1)) is not None


@pytest.mark.dialect
@pytest.mark.parametrize("kind", PROBED)
async def test_a_clock_that_was_set_back_does_not_hold_for_years(store: Store, kind: HoldKind) -> None:
    await queued(store)
    ahead = NOW + timedelta(days=4000)
    await store.holds.hold(held(kind, since=ahead, until=ahead + timedelta(minutes=1)), now=ahead)

    assert await claimed(store, at=after(minutes=1)) is not None


# --- refusals of the model API ----------------------------------------------------------------------------


def refusal(kind: FailureKind = FailureKind.AUTH, **changes: object) -> ApiRefusal:
    return ApiRefusal(kind=kind, message="invalid x-api-key", **changes)  # type: ignore[arg-type]  # a test names its fields


async def test_a_session_that_ends_refused_stops_all_claims_in_the_same_commit_with_one_critical_event(
    store: Store, database: Database
) -> None:
    session = await started(store)
    other = await queued(store)
    refused = ending(session, None, outcome=Outcome.ERROR, failure_kind=FailureKind.AUTH, error="invalid x-api-key")

    finished = await store.queue.finish(refused, rules=RULES)

    assert finished.decision.next is not None
    assert finished.decision.next.trigger is Trigger.RETRY
    (hold,) = await store.holds.standing(after(minutes=1))
    assert (hold.kind, hold.failures, hold.since) == (HoldKind.BREAKER, 1, refused.ended_at)
    assert await claimed(store, at=after(minutes=1.5)) is None
    critical = [row for row in database.rows("events") if row["level"] == "critical"]
    assert [row["fingerprint"] for row in critical] == ["hold:breaker"]
    still = await store.records.session(other.id)
    assert still is not None
    assert still.status is Status.QUEUED


async def test_refused_probes_wait_longer_and_add_no_critical_event_until_one_is_served(
    store: Store, database: Database
) -> None:
    await queued(store, wanted(2))
    await store.holds.refused(refusal(), now=NOW)
    at, waits = NOW, []
    for _ in range(3):
        (hold,) = await store.holds.standing(at)
        assert hold.until is not None
        waits.append(hold.until - at)
        at = hold.until
        probe = await claimed(store, at=at)
        assert probe is not None
        assert probe.tier == 1
        await store.queue.finish(
            ending(probe, None, outcome=Outcome.ERROR, failure_kind=FailureKind.AUTH, ended_at=at), rules=RULES
        )
    assert waits == sorted(waits)
    assert waits[2] > 3 * waits[0]
    critical = [row for row in database.rows("events") if row["level"] == "critical"]
    assert [(row["fingerprint"], row["count"]) for row in critical] == [("hold:breaker", 1)]

    at += timedelta(hours=1)
    probe = await claimed(store, at=at)
    assert probe is not None
    await store.queue.finish(ending(probe, report(check("web")), ended_at=at), rules=RULES)

    assert await store.holds.standing(at) == ()
    (event,) = [row for row in database.rows("events") if row["fingerprint"] == "hold:breaker"]
    assert event["resolved_at"] == at
    assert await claimed(store, at=at) is not None


async def test_the_first_answer_to_the_probe_releases_and_other_answers_do_not(store: Store) -> None:
    probe, other = await started(store), await queued(store)
    await store.holds.refused(refusal(FailureKind.OVERLOADED, session_id=probe.id, trying=True), now=NOW)
    assert await claimed(store, at=after(minutes=1)) is None

    assert await store.holds.answered(other.id, attempt=0, now=after(minutes=1)) == ()
    assert await claimed(store, at=after(minutes=1)) is None
    assert await store.holds.answered(probe.id, attempt=1, now=after(minutes=1)) == (HoldKind.PARKED,)

    assert await claimed(store, at=after(minutes=1)) is not None


@pytest.mark.dialect
async def test_attempt_that_was_taken_over_neither_begins_a_hold_nor_ends_one(store: Store) -> None:
    session = await started(store)
    mine = refusal(session_id=session.id, attempt=session.attempt)
    await store.recovery.reconcile(OTHER_OWNER, now=NOW, alive=lambda _: False)

    with pytest.raises(StaleAttemptError):
        await store.holds.refused(mine, now=NOW)
    assert await store.holds.standing(NOW) == ()
    its = replace(mine, kind=FailureKind.OVERLOADED, trying=True, attempt=session.attempt + 1)
    await store.holds.refused(its, now=NOW)
    with pytest.raises(StaleAttemptError):
        await store.holds.answered(session.id, attempt=session.attempt, now=NOW)
    assert [hold.trial for hold in await store.holds.standing(NOW)] == [session.id]
    assert await store.holds.answered(session.id, attempt=session.attempt + 1, now=NOW) == (HoldKind.PARKED,)


async def test_refusal_that_is_reported_after_the_end_of_its_session_still_counts(store: Store) -> None:
    session = await started(store)
    await store.queue.finish(ending(session), rules=RULES)

    await store.holds.refused(refusal(session_id=session.id, attempt=session.attempt), now=after(minutes=2))

    assert [hold.kind for hold in await store.holds.standing(after(minutes=2))] == [HoldKind.BREAKER]


async def test_a_new_daemon_tries_the_breaker_at_once(store: Store) -> None:
    await queued(store)
    await store.holds.refused(refusal(), now=NOW)
    assert await claimed(store, at=NOW) is None

    await store.recovery.reconcile(OTHER_OWNER, now=NOW, alive=lambda _: False)

    assert await claimed(store, at=NOW, owner=OTHER_OWNER) is not None
