"""Any store: what is too old goes, what still counts stays, and of the audit trail something always stays."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.notice import Notice, Topic
from claudeops.domain.report.report import Escalation, ReportedMemory, ServiceStatus
from claudeops.domain.retention import KEYS_KEPT, Aged, Cutoffs, RemovalStep, cutoffs
from claudeops.domain.schedules.plan import Fire
from claudeops.domain.sessions import Session
from claudeops.store.access.idempotency import KeyState
from claudeops.store.store import Store
from support.store_values import (
    NOW,
    OWNER,
    RULES,
    after,
    allow,
    check,
    ending,
    one_session,
    queued,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

LATER = after(days=100)
NEEDED = Escalation(needed=True, reason="web is down", context="it is", failed_checks=("web",))
USUAL = cutoffs(LATER, retention_days=30)  # everything of NOW is older than both


async def expired(store: Store, wanted: Cutoffs = USUAL, *, rows: int = 500) -> dict[Aged, int]:
    """Remove all that is too old; return what there was of it."""
    done: Counter[Aged] = Counter()
    for aged in Aged:
        more = True
        while more:
            step = await store.retention.expire(aged, wanted, now=LATER, rows=rows)
            done[aged] += step.done
            more = step.more
    return {aged: count for aged, count in done.items() if count}


async def acting_session(store: Store, *, at: datetime = NOW) -> Session:
    """Run a session that leaves a row in as many tables as one can."""
    session = await started(store, wanted(tier=2, prompt_text="look at web"), at=at)
    await recorded(store, session, "toolu_1", allow(restart()), at=at)
    said = report(
        check("web"),
        events=(NewEvent(level=EventLevel.WARNING, message="web was slow", service="web"),),
        memories=(ReportedMemory(category="timing", observation="40 ms", service="web"),),
    )
    await store.queue.finish(ending(session, said, cost_usd=0.01, response="long text", stderr_tail="x"), rules=RULES)
    return session


def test_the_audit_trail_is_kept_for_ninety_days_at_least() -> None:
    usual = cutoffs(NOW, retention_days=30)
    assert (usual.details, usual.audit) == (NOW - timedelta(days=30), NOW - timedelta(days=90))
    assert cutoffs(NOW, retention_days=400).audit == NOW - timedelta(days=400)


async def test_nothing_young_is_touched(store: Store, database: Database) -> None:
    await acting_session(store)
    before = {table: database.rows(table) for table in ("sessions", "tool_calls", "events", "service_checks")}

    assert await expired(store, cutoffs(after(days=29), retention_days=30)) == {}

    assert {table: database.rows(table) for table in before} == before


async def test_after_the_retention_the_long_texts_go_and_the_conclusion_stays(store: Store, database: Database) -> None:
    await acting_session(store)

    found = await expired(store, cutoffs(after(days=31), retention_days=30))

    assert found[Aged.TEXTS] == 1
    (row,) = database.rows("sessions")
    assert (row["prompt_text"], row["response"], row["stderr_tail"]) == (None, None, None)
    assert (row["summary"], row["outcome"], row["cost_usd"]) == (report().summary, "success", 0.01)
    assert len(database.rows("tool_calls")) == 1
    assert await expired(store, cutoffs(after(days=31), retention_days=30)) == {}


async def test_after_the_audits_age_the_chain_goes_whole_and_leaves_a_tombstone(
    store: Store, database: Database
) -> None:
    session = await acting_session(store)

    found = await expired(store)

    assert found[Aged.CHAINS] == 1
    for table in ("sessions", "tool_calls", "cooldown_actions"):
        assert database.rows(table) == [], table
    (stone,) = database.rows("audit_tombstones")
    assert (stone["session_id"], stone["calls"], stone["reason"]) == (session.id, 1, "retention")
    (memory,) = database.rows("memories")
    assert (memory["observation"], memory["session_id"]) == ("40 ms", None)
    (spent,) = [row for row in database.rows("budget_entries") if row["kind"] == "settled"]
    assert (spent["amount_usd"], spent["session_id"]) == (0.01, None)


async def test_a_chain_of_which_a_part_is_young_or_runs_stays_whole(store: Store, database: Database) -> None:
    await one_session(store, report(check("web", ServiceStatus.DOWN), escalation=NEEDED))  # tier 2 is queued
    assert [row["status"] for row in database.rows("sessions")] == ["ended", "queued"]

    assert Aged.CHAINS not in await expired(store)

    (second,) = await store.claims.claim(
        OWNER, rules=RULES, now=after(days=80), cli_session_id=lambda: "x", log_path=lambda _: "/x.ndjson"
    )
    assert Aged.CHAINS not in await expired(store)
    await store.queue.finish(ending(second, report(check("web")), ended_at=after(days=80)), rules=RULES)
    assert Aged.CHAINS not in await expired(store)  # it is the last end that counts
    assert (await expired(store, cutoffs(after(days=171), retention_days=30)))[Aged.CHAINS] == 2


async def test_open_events_stay_however_old_and_those_that_are_over_go(store: Store, database: Database) -> None:
    fault = NewEvent(level=EventLevel.CRITICAL, message="web is down", service="web")
    other = NewEvent(level=EventLevel.WARNING, message="db is slow", service="db")
    await one_session(store, report(check("web", ServiceStatus.DEGRADED), events=(fault, other)))
    await one_session(store, report(check("web")), at=after(hours=1))

    found = await expired(store, cutoffs(after(days=31), retention_days=30))

    assert found[Aged.EVENTS] == 1
    assert [row["message"] for row in database.rows("events")] == ["db is slow"]


async def test_the_latest_check_of_each_service_stays(store: Store, database: Database) -> None:
    for hour in range(3):
        await one_session(store, report(check("web"), check("db")), at=after(hours=hour))

    found = await expired(store, cutoffs(after(days=31), retention_days=30))

    assert found[Aged.CHECKS] == 4
    assert {(row["service"], row["session_id"]) for row in database.rows("service_checks")} == {("web", 3), ("db", 3)}


async def test_the_latest_fire_of_each_schedule_stays(store: Store) -> None:
    for name in ("one", "other"):
        for hour in range(3):
            fire = Fire(schedule=name, due_at=after(hours=hour))
            await store.schedules.fire(fire, wanted(), rules=RULES, now=after(hours=hour))

    found = await expired(store)

    assert found[Aged.FIRES] == 4
    last = await store.schedules.last_fires()
    assert last["one"].due_at == last["other"].due_at == after(hours=2)


async def test_what_was_answered_to_a_call_with_a_key_goes_with_its_time_and_not_before(database: Database) -> None:
    store = database.open()
    try:
        kept = await store.idempotency.begin("token 1", "k-1", "of a call", now=NOW)
        await store.idempotency.answered(kept, 201, "{}")
        early = await expired(store, cutoffs(NOW + KEYS_KEPT - timedelta(seconds=1), retention_days=30))
        again = await store.idempotency.begin("token 1", "k-1", "of a call", now=NOW)
        late = await expired(store, cutoffs(NOW + KEYS_KEPT, retention_days=30))
    finally:
        await store.close()
    assert (early, again.state, late) == ({}, KeyState.ANSWERED, {Aged.KEYS: 1})
    assert database.rows("idempotency_keys") == []


async def test_a_step_is_small_and_the_next_one_goes_on(store: Store, database: Database) -> None:
    for hour in range(5):
        await one_session(store, report(check("web")), at=after(hours=hour))
    young = cutoffs(after(days=31), retention_days=30)

    found = [await store.retention.expire(Aged.CHECKS, young, now=LATER, rows=2) for _ in range(3)]

    assert found == [RemovalStep(done=2, more=True), RemovalStep(done=2, more=True), RemovalStep()]
    assert len(database.rows("service_checks")) == 1


async def test_no_id_is_used_again_after_its_row_has_gone(store: Store) -> None:
    await one_session(store, report(check("web")))
    await expired(store)

    assert (await queued(store, at=LATER)).id == 2


async def test_what_expired_leaves_no_fault_in_the_audit_trail(database: Database) -> None:
    store = database.open()
    try:
        await acting_session(store)
        await acting_session(store, at=after(days=99))
        await expired(store)
        verified = await store.audit.verify()
    finally:
        await store.close()

    assert verified.faults == ()


async def test_a_reader_in_the_way_of_that_holds_nobody_up_for_long(sqlite: Database) -> None:
    patient = Database(sqlite.url, busy_seconds=600)  # longer than any caller waits
    store = patient.open()
    try:
        await one_session(store, report(check("web")))
        with sqlite.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            connection.exec_driver_sql("SELECT * FROM sessions").fetchone()
            await queued(store, at=after(hours=1))

            assert not await store.retention.checkpoint()

        assert await store.retention.checkpoint()
    finally:
        await store.close()


async def test_notices_that_are_over_go_and_those_on_their_way_stay(store: Store, database: Database) -> None:
    for key in ("over", "waiting"):
        notice = Notice(topic=Topic.EVENT, level=EventLevel.WARNING, text="web is down", key=key)
        await store.outbox.add(notice, now=NOW)
    database.execute("UPDATE outbox SET delivered_at = created_at WHERE dedupe_key = 'over'")

    assert await expired(store) == {Aged.NOTICES: 1}

    assert [row["dedupe_key"] for row in database.rows("outbox")] == ["waiting"]
