"""Any store: sessions into the queue, out of it, and out of dead hands."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread
import pytest
from sqlalchemy import Connection

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.holds import Capacity
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import DecisionReason, Handover, Outcome, Session, Status, Suppressed, Trigger
from claudeops.errors import StoreError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OWNER,
    RULES,
    TIERS,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    how_many_wait,
    queued,
    recorded,
    restart,
    rules,
    started,
    wanted,
)
from support.stores import Database, has_clock
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect


async def test_queued_session_is_its_own_root_and_reads_back_as_it_was_wanted(store: Store) -> None:
    handover = Handover(
        reason="down",
        findings="no upstream",
        failed_checks=("http",),
        service_status=(check("web", ServiceStatus.DOWN),),
    )
    new = wanted(
        2,
        model="sonnet",
        harness="codex",
        prompt_text="look at web",
        context=handover,
        not_before=NOW,
        started_by="ada",
    )

    session = await queued(store, new)

    assert session == Session(
        id=session.id,
        root_session_id=session.id,
        parent_session_id=None,
        tier=2,
        ordinal=0,
        harness="codex",
        model="sonnet",
        trigger=Trigger.MANUAL,
        prompt_text="look at web",
        context=handover,
        status=Status.QUEUED,
        attempt=0,
        created_at=NOW,
        started_by="ada",
    )
    assert await store.records.session(session.id) == session
    assert await how_many_wait(store) == 1


async def test_session_that_is_not_there_is_none(store: Store) -> None:
    assert await store.records.session(4711) is None
    assert await store.records.chain(4711) == ()


async def test_follow_up_joins_its_parents_chain(store: Store) -> None:
    parent = await queued(store)

    follower = await queued(store, wanted(trigger=Trigger.FOLLOW_UP, parent_session_id=parent.id))

    assert follower.root_session_id == parent.id
    assert [session.id for session in await store.records.chain(parent.id)] == [parent.id, follower.id]


async def test_follower_of_nobody_is_refused_and_leaves_nothing(store: Store, database: Database) -> None:
    with pytest.raises(StoreError, match="session 99 does not exist"):
        await queued(store, wanted(parent_session_id=99))

    assert database.rows("sessions") == []


@pytest.mark.parametrize(
    ("tier", "with_rules", "reason", "level"),
    [
        pytest.param(3, rules(max_tier=2), DecisionReason.MAX_TIER, "critical", id="maximum tier"),
        pytest.param(2, rules(dry_run=True), DecisionReason.DRY_RUN, "warning", id="dry run stops a direct start"),
    ],
)
async def test_suppressed_start_leaves_one_counted_event_and_no_row(
    store: Store, database: Database, *, tier: int, with_rules: EscalationRules, reason: DecisionReason, level: str
) -> None:
    answers = [
        await store.queue.enqueue(wanted(tier), rules=with_rules, now=after(minutes=minutes)) for minutes in range(3)
    ]

    assert database.rows("sessions") == []
    (event,) = database.rows("events")
    assert answers == [Suppressed(reason=reason, message=str(event["message"]))] * 3
    assert (event["level"], event["count"], event["session_id"]) == (level, 3, None)
    assert (event["first_seen"], event["last_seen"]) == (NOW, after(minutes=2))


async def test_direct_start_is_suppressed_when_nothing_may_be_done_any_more(store: Store) -> None:
    session = await started(store, wanted(3))
    for number in range(2):
        await recorded(store, session, f"toolu_{number}", allow(restart()))
    await store.queue.finish(ending(session, alarm()), rules=rules(max_tier=2))

    answer = await store.queue.enqueue(wanted(2), rules=rules(max_tier=2), now=after(hours=1))
    later = await store.queue.enqueue(wanted(2), rules=rules(max_tier=2), now=after(hours=5))

    assert isinstance(answer, Suppressed)
    assert answer.reason is DecisionReason.COOLDOWN
    assert isinstance(later, Session)


async def test_claim_marks_the_row_before_anything_is_spawned(store: Store, database: Database) -> None:
    session = await queued(store)

    claim = await claimed(store, at=after(minutes=5))

    assert claim == replace(
        session,
        status=Status.RUNNING,
        attempt=1,
        started_at=after(minutes=5),
        cli_session_id="5e0b1bd8-0000-4000-8000-000000000001",
        log_path=f"/results/session-{session.id:06}.ndjson",
        log_node=OWNER.node,
    )
    (row,) = database.rows("sessions")
    assert (row["owner"], row["lease_expires_at"]) == (OWNER.name, after(minutes=65))
    assert await how_many_wait(store) == 0
    assert await claimed(store) is None


async def test_oldest_due_session_is_taken_first_and_none_before_its_time(store: Store) -> None:
    later = await queued(store, wanted(not_before=after(hours=2)), at=NOW)
    waited = await queued(store, wanted(not_before=after(minutes=30)), at=NOW)
    young = await queued(store, at=after(minutes=40))
    old = await queued(store, at=after(minutes=10))

    taken = [claim.id if (claim := await claimed(store, at=after(hours=1))) else None for _ in range(4)]

    assert taken == [old.id, waited.id, young.id, None]
    last = await claimed(store, at=after(hours=2))
    assert last is not None
    assert last.id == later.id


async def test_claim_can_be_kept_to_a_chain_or_to_what_there_is_room_for(store: Store) -> None:
    async def take(**only: object) -> list[int]:
        taken = await store.claims.claim(
            OWNER,
            rules=rules(limited=False),
            now=NOW,
            cli_session_id=str,
            log_path=str,
            **only,  # type: ignore[arg-type]
        )
        return [session.id for session in taken]

    first, second, third, *more = [(await queued(store, wanted(tier))).id for tier in (1, 2, 1, 3, 1, 2, 2, 1)]

    assert await take(chain=second, room=Capacity(above=0)) == []
    assert await take(chain=third) == [third]
    assert await take(room=Capacity(sessions=0)) == []
    assert await take(room=Capacity(sessions=3, above=1)) == [first, second, more[1]]  # in one transaction
    assert await take(room=Capacity(sessions=2, above=0)) == [more[4]]
    assert await take() == [more[0]]
    assert await take(room=Capacity(sessions=9)) == [more[2], more[3]]
    assert await take(room=Capacity(sessions=9)) == []


@pytest.mark.parametrize(
    ("with_rules", "reason"),
    [
        pytest.param(rules(dry_run=True), DecisionReason.DRY_RUN, id="dry run was switched on"),
        pytest.param(rules(max_tier=1), DecisionReason.MAX_TIER, id="maximum tier was lowered"),
    ],
)
async def test_row_that_the_rules_forbid_by_now_ends_as_blocked_and_the_next_is_taken(
    store: Store, database: Database, with_rules: EscalationRules, reason: DecisionReason
) -> None:
    forbidden = await queued(store, wanted(2, model="sonnet"))
    allowed = await queued(store)

    claim = await claimed(store, at=after(minutes=1), with_rules=with_rules)

    assert claim is not None
    assert claim.id == allowed.id
    blocked = await store.records.session(forbidden.id)
    assert blocked is not None
    assert (blocked.status, blocked.outcome, blocked.decision_reason, blocked.attempt) == (
        Status.ENDED,
        Outcome.BLOCKED,
        reason,
        0,
    )
    assert blocked.ended_at == after(minutes=1)
    (event,) = database.rows("events")
    assert (event["session_id"], event["message"]) == (forbidden.id, blocked.error)


async def test_escalation_waits_in_vain_when_its_services_cool_down_by_now(store: Store) -> None:
    session = await started(store)
    finished = await store.queue.finish(ending(session, alarm()), rules=rules(max_tier=2, tiers=TIERS[:2]))
    assert finished.next_session_id is not None
    other = await started_beside(store)
    for number in range(2):
        await recorded(store, other, f"toolu_{number}", allow(restart()), at=after(minutes=2))

    claim = await claimed(store, at=after(minutes=3), with_rules=rules(max_tier=2))

    assert claim is None
    blocked = await store.records.session(finished.next_session_id)
    assert blocked is not None
    assert blocked.decision_reason is DecisionReason.COOLDOWN


async def started_beside(store: Store) -> Session:
    session = await queued(store)
    (claim,) = await store.claims.claim(
        OWNER, rules=RULES, now=after(minutes=1), cli_session_id=str, log_path=str, chain=session.id
    )
    return claim


async def test_owner_that_departs_is_forgotten(store: Store, database: Database) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    (row,) = database.rows("instances")
    assert (row["owner"], row["pid"], row["process_started_at"], row["boot_id"], row["pid_namespace"]) == (
        OWNER.name,
        OWNER.pid,
        OWNER.process_started_at,
        OWNER.boot_id,
        OWNER.pid_namespace,
    )
    assert has_clock(database) or row["heartbeat"] == NOW

    await store.recovery.depart(OWNER)
    await store.recovery.depart(OWNER)

    assert database.rows("instances") == []


async def test_a_free_slot_waits_for_no_end_that_is_to_be_written(store: Store) -> None:
    for _ in range(2):
        await queued(store)
    first = await claimed(store)  # which has seen the second one too
    assert first is not None
    order: list[str] = []
    is_busy, goes_on = threading.Event(), threading.Event()

    def keep_busy(_: Connection) -> None:
        is_busy.set()
        goes_on.wait(PATIENCE_SECONDS)

    async def end(session: Session) -> None:
        await store.queue.finish(ending(session), rules=RULES)
        order.append("ended")

    async def claim() -> None:
        assert await claimed(store) is not None
        order.append("claimed")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.database.write, keep_busy)
        await anyio.to_thread.run_sync(is_busy.wait, PATIENCE_SECONDS)
        tasks.start_soon(end, first)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(claim)
        await anyio.wait_all_tasks_blocked()
        goes_on.set()

    assert order == ["claimed", "ended"]


async def test_closed_store_refuses_and_closes_twice(store: Store) -> None:
    await store.close()
    await store.close()

    with pytest.raises(StoreError, match="closed"):
        await queued(store)
