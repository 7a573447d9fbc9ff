"""Any store: sessions whose daemon is gone, and the sign of life of those that are not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.calls import ToolEnd, Verdict, VerdictKind
from claudeops.domain.owner import Owner
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import DecisionReason, Handover, Outcome, Session, Status, Trigger
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store, open_store
from claudeops.store.tables import HEAD, JOBS_MARK
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    allow,
    check,
    claimed,
    ending,
    gone,
    one_session,
    queued,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database, has_clock

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

NEXT_OWNER = replace(OWNER, name="node-1-again", pid=99)


def is_by_its_own_clock(database: Database, moment: object) -> bool:
    """Return whether a moment is that of a database with a clock of its own, however wrong this machine's is."""
    return not database.url.startswith("sqlite") and isinstance(moment, datetime) and moment > after(days=1)


async def taken_over(store: Store) -> Session:
    (orphan,) = (await store.recovery.reconcile(NEXT_OWNER, now=after(hours=1), alive=lambda _: False)).sessions
    return orphan


async def follower(store: Store, lost: Session) -> Session | None:
    """Return the session that was queued after a lost one."""
    chain = await store.records.chain(lost.root_session_id)
    return next((session for session in chain if session.parent_session_id == lost.id), None)


async def test_sessions_of_dead_owners_are_taken_over_and_those_of_living_ones_are_left(
    store: Store, database: Database
) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: False)
    await store.recovery.reconcile(OTHER_OWNER, now=NOW, alive=lambda _: True)
    orphan = await started(store)
    kept = await queued(store)
    assert await claimed(store, owner=OTHER_OWNER) is not None
    asked = []

    def alive(owner: Owner) -> bool:
        asked.append(owner)
        return owner == OTHER_OWNER

    (taken,) = (await store.recovery.reconcile(NEXT_OWNER, now=after(hours=1), alive=alive)).sessions

    assert asked == [OWNER, OTHER_OWNER]
    assert taken == replace(orphan, attempt=2)
    rows = {row["id"]: row for row in database.rows("sessions")}
    assert (rows[orphan.id]["owner"], rows[kept.id]["owner"]) == (NEXT_OWNER.name, OTHER_OWNER.name)
    assert sorted(str(row["owner"]) for row in database.rows("instances")) == ["node-1-again", "node-2"]
    assert database.rows("events") == []


async def test_a_session_of_an_owner_that_was_never_registered_is_taken_over(store: Store) -> None:
    await started(store)

    assert len((await store.recovery.reconcile(OTHER_OWNER, now=after(hours=1), alive=lambda _: True)).sessions) == 1


async def test_a_daemon_that_was_thought_dead_writes_nothing_any_more(store: Store, database: Database) -> None:
    session = await started(store)
    await taken_over(store)

    with pytest.raises(StaleAttemptError):
        await store.queue.finish(ending(session, report(check("web"))), rules=RULES)
    with pytest.raises(StaleAttemptError):
        await recorded(store, session, "toolu_1", allow())
    with pytest.raises(StaleAttemptError):
        await store.recovery.mark_lost(session, rules=RULES, now=after(hours=1))
    assert [row["status"] for row in database.rows("sessions")] == ["running"]
    assert database.rows("tool_calls") == []


async def test_a_complete_log_ends_a_session_that_was_taken_over_once(store: Store, database: Database) -> None:
    await started(store)
    orphan = await taken_over(store)
    end = ending(orphan, report(check("web")), cost_usd=0.02)

    finished = await store.queue.finish(end, rules=RULES)
    with pytest.raises(StaleAttemptError):
        await store.queue.finish(end, rules=RULES)

    assert finished.decision.reason is DecisionReason.HEALTHY
    assert len(database.rows("budget_entries")) == 1
    assert len(database.rows("service_checks")) == 1


async def test_a_look_that_was_lost_is_started_once_more_with_what_it_was_asked(
    store: Store, database: Database
) -> None:
    await started(store, wanted(prompt_text="look at web", harness="codex"))

    lost = await store.recovery.mark_lost(await taken_over(store), rules=RULES, now=after(hours=1))

    assert (lost.status, lost.outcome, lost.ended_at) == (Status.ENDED, Outcome.LOST, after(hours=1))
    assert lost.decision_reason is DecisionReason.SESSION_FAILED
    again = await follower(store, lost)
    assert again is not None
    assert (again.tier, again.trigger, again.harness, again.prompt_text) == (
        1,
        Trigger.RECOVERY,
        "codex",
        "look at web",
    )
    (event,) = database.rows("events")
    assert (event["level"], event["session_id"]) == ("warning", lost.id)


async def test_a_recovery_that_is_lost_too_is_given_up_with_a_critical_event(store: Store, database: Database) -> None:
    await started(store, wanted(trigger=Trigger.RECOVERY))

    (lost,) = await gone(store, at=after(hours=1))

    assert await follower(store, lost) is None
    assert [row["level"] for row in database.rows("events")] == ["critical"]


async def test_a_tier_that_can_change_things_is_not_repeated_but_looked_after(store: Store) -> None:
    handover = Handover(
        reason="web answers 502",
        findings="its upstream is gone",
        failed_checks=("web http",),
        service_status=(check("web", ServiceStatus.DOWN),),
    )
    session = await started(store, wanted(3, trigger=Trigger.MANUAL, context=handover, prompt_text="mend web"))
    await recorded(store, session, "toolu_1", allow(restart()), at=after(minutes=1))
    await recorded(store, session, "toolu_2", allow(), at=after(minutes=2))
    await recorded(store, session, "toolu_3", Verdict(kind=VerdictKind.DENY, reason="no"), at=after(minutes=3))
    ends = (ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1.5), is_error=False),)

    lost = await store.recovery.mark_lost(await taken_over(store), rules=RULES, now=after(hours=1), tool_ends=ends)

    look = await follower(store, lost)
    assert look is not None
    assert (look.tier, look.trigger, look.model, look.prompt_text) == (1, Trigger.RECOVERY, "haiku", None)
    assert look.context is not None
    assert (look.context.failed_checks, look.context.service_status) == (
        handover.failed_checks,
        handover.service_status,
    )
    assert f"session {lost.id} was cut off" in look.context.reason
    told = look.context.findings
    assert "web answers 502" in told
    assert "its upstream is gone" in told
    assert "mend web" in told
    assert "12:01:00 UTC Bash {}: ran\n" in told
    assert "12:02:00 UTC Bash {}: allowed; whether it ran, and with which result, is not known\n" in told
    assert told.endswith("12:03:00 UTC Bash {}: not allowed, so it did not run")


async def test_actions_count_as_used_and_failed_unless_the_log_shows_their_end(
    store: Store, database: Database
) -> None:
    await one_session(store, report(check("web", ServiceStatus.DOWN), check("db", ServiceStatus.DOWN)))
    session = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", allow(restart()))
    await recorded(store, session, "toolu_2", allow(restart("db")))
    ends = (ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1), is_error=False),)

    await store.recovery.mark_lost(await taken_over(store), rules=RULES, now=after(hours=1), tool_ends=ends)

    settled = [(row["service"], row["success"], row["error"]) for row in database.rows("cooldown_actions")]
    assert settled == [("web", True, None), ("db", False, "no result seen")]
    assert [row["ended_at"] for row in database.rows("tool_calls")] == [after(minutes=1), None]


async def test_lost_sessions_are_looked_for_until_their_report_or_cost_is_known(store: Store) -> None:
    found = []
    for number in range(3):
        await started(store, wanted(trigger=Trigger.RECOVERY), at=after(minutes=number))
        (row,) = await gone(store, at=after(hours=1), owner=replace(NEXT_OWNER, name=f"next-{number}"))
        found.append(row)
    first, second, third = found
    await one_session(store, report(check("web")), at=after(hours=2))
    named = {"cli_session_id": first.cli_session_id}

    assert [session.id for session in await store.recovery.unrecovered_sessions()] == [third.id, second.id, first.id]
    await store.recovery.backfill(ending(first, report(check("web")), **named))
    await store.recovery.backfill(ending(second, None, num_turns=3, **named))
    await store.recovery.backfill(ending(third, None, **named))
    assert [session.id for session in await store.recovery.unrecovered_sessions()] == [third.id]


async def test_a_living_owner_hears_what_it_still_runs_and_its_leases_are_renewed(
    store: Store, database: Database
) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    first, second = await started(store), await started(store)
    await store.queue.finish(ending(first, report(check("web"))), rules=RULES)

    running = await store.recovery.renew_lease(OWNER, now=after(hours=3))

    assert running.running == {(second.id, 1)}
    (row,) = [row for row in database.rows("sessions") if row["id"] == second.id]
    assert row["lease_expires_at"] == after(hours=4)
    (instance,) = database.rows("instances")
    assert has_clock(database) or instance["heartbeat"] == after(hours=3)
    await store.recovery.reconcile(OTHER_OWNER, now=after(hours=4), alive=lambda _: False)
    assert (await store.recovery.renew_lease(OWNER, now=after(hours=5))).running == frozenset()


@pytest.mark.dialect
async def test_owner_that_was_taken_for_dead_shows_life_again(store: Store, database: Database) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    (before,) = database.rows("instances")
    await store.recovery.reconcile(OTHER_OWNER, now=after(hours=1), alive=lambda _: False)
    assert [row["owner"] for row in database.rows("instances")] == [OTHER_OWNER.name]

    for minutes in (61, 62):
        await store.recovery.renew_lease(OWNER, now=after(minutes=minutes))

    (again,) = [row for row in database.rows("instances") if row["owner"] == OWNER.name]
    assert again == {**before, "heartbeat": again["heartbeat"]}
    assert has_clock(database) or again["heartbeat"] == after(minutes=62)


@pytest.mark.dialect
@pytest.mark.parametrize(("off", "says"), [(0, None), (1, "ahead of"), (-1, "behind")])
async def test_clock_that_is_not_the_databases_is_seen(database: Database, off: int, says: str | None) -> None:
    store = open_store(database.url, now=lambda: datetime.now(UTC) + timedelta(hours=off))

    life = await store.recovery.renew_lease(OWNER, now=NOW)
    await store.close()

    fault = life.clock_fault()
    if not has_clock(database):  # it has this machine's
        assert (life.ahead_seconds, fault) == (None, None)
    elif says is None:
        assert fault is None
    else:
        assert fault is not None
        assert says in fault


@pytest.mark.dialect
@pytest.mark.parametrize(("revision", "newer"), [("9999", "9999"), (HEAD, None), ("0000", None)])
async def test_sign_of_life_shows_that_a_newer_version_has_migrated(
    store: Store, database: Database, revision: str, newer: str | None
) -> None:
    database.execute("UPDATE alembic_version SET version_num = :revision", revision=revision)
    try:
        assert (await store.recovery.renew_lease(OWNER, now=NOW)).newer_revision == newer
    finally:
        database.execute("UPDATE alembic_version SET version_num = :revision", revision=HEAD)


@pytest.mark.dialect
async def test_sign_of_life_shows_the_version_of_the_tables_of_jobs(store: Store, database: Database) -> None:
    if database.url.startswith("sqlite"):
        assert (await store.recovery.renew_lease(OWNER, now=NOW)).job_tables is None  # it has no such tables
        return

    # Those of other tests may be there: they belong to the worker's server.
    database.execute("ALTER TABLE IF EXISTS procrastinate_jobs RENAME TO jobs_of_others")
    try:
        assert (await store.recovery.renew_lease(OWNER, now=NOW)).job_tables is None
        database.execute("CREATE TABLE procrastinate_jobs ()")
        assert (await store.recovery.renew_lease(OWNER, now=NOW)).job_tables is None
        database.execute(f"COMMENT ON TABLE procrastinate_jobs IS '{JOBS_MARK}03.04'")
        assert (await store.recovery.renew_lease(OWNER, now=NOW)).job_tables == "03.04"
    finally:
        database.execute("DROP TABLE IF EXISTS procrastinate_jobs")
        database.execute("ALTER TABLE IF EXISTS jobs_of_others RENAME TO procrastinate_jobs")


@pytest.mark.parametrize("before", [0, 3])
async def test_no_session_gets_an_id_whose_log_is_there_already(store: Store, database: Database, before: int) -> None:
    for _ in range(before):
        await queued(store)

    reached = [await store.recovery.skip_ids(highest, now=NOW) for highest in (41, 12)]

    assert reached == [before, 41]
    noted = [(row["fingerprint"], row["resolved_at"]) for row in database.rows("events")]
    assert noted == ([(f"restored:{before}:41", NOW)] if before else [])
    assert (await queued(store)).id == 42
    assert (await queued(store)).id == 43
