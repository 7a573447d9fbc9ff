"""Any store: a chain's tree, what was spent, how it went, and all of it at a glance."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.domain.calls import ToolEnd, Verdict, VerdictKind
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Status
from claudeops.domain.spending.budget import AdmittedCall, Budgets, last_midnight
from claudeops.domain.spending.tokens import CallState, TokenUsage
from claudeops.errors import DatabaseUnavailableError, MissingInputError
from claudeops.store.glance import Glance, glance, noted_of_targets
from claudeops.store.reading import spending
from claudeops.store.reading.chains import chain_of, tree
from claudeops.store.reading.figures import figures
from claudeops.store.reading.spending import ChainSpend, OpenSpend, TierSpend
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    TIERS,
    after,
    alarm,
    allow,
    check,
    claimed,
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

DENY = Verdict(kind=VerdictKind.DENY, reason="not for this tier")
PAID = replace(
    RULES,
    tiers=tuple(replace(tier, max_budget_usd=1.0) for tier in TIERS),
    budgets=Budgets(chain_usd=5, day_usd=10),
)
USAGE = TokenUsage(
    input_tokens=12, output_tokens=60, cache_read_tokens=5400, cache_write_tokens=900, cache_write_1h_tokens=300
)


@pytest.fixture
async def escalated(store: Store) -> Session:
    """Return the second session of a chain: the first found web down, the second has mended it."""
    await one_session(store, alarm("web"), cost_usd=0.25)
    session = await claimed(store, at=after(minutes=2))
    assert session is not None
    await recorded(store, session, "toolu_1", DENY, at=after(minutes=2))
    await recorded(store, session, "toolu_2", allow(restart()), at=after(minutes=2))
    ended = ToolEnd(tool_use_id="toolu_2", ended_at=after(minutes=3), is_error=False)
    await store.queue.finish(
        ending(session, report(check("web")), tool_ends=(ended,), cost_usd=1.5, num_turns=4), rules=RULES
    )
    return session


# --- a chain ----------------------------------------------------------------------------------------------


async def test_a_tree_holds_what_each_session_was_refused_did_saw_and_cost(
    escalated: Session, database: Database
) -> None:
    with database.connect() as connection:
        assert chain_of(connection, escalated.id) == 1
        assert chain_of(connection, 99) is None
        shown = tree(connection, 1)

    first, second = shown.sessions
    assert (shown.sessions_count, shown.status, shown.decision_reason) == (2, Status.ENDED, second.decision_reason)
    assert (shown.cost_usd, first.decision_reason, second.parent_session_id) == (1.75, DecisionReason.ESCALATED, 1)
    assert [(one.service, one.status.value) for one in first.checks] == [("web", "down")]
    assert (second.reason, second.tier, second.num_turns) == ("web answers 502", 2, 4)
    assert second.verdicts == {"allow": 1, "deny": 1, "ask": 0}
    assert [(call.tool_name, call.verdict, call.reason) for call in second.refused] == [
        ("Bash", VerdictKind.DENY, "not for this tier")
    ]
    assert [(one.action_type, one.service, one.success) for one in second.actions] == [("restart", "web", True)]


async def test_a_chain_runs_while_one_of_its_sessions_does_and_waits_while_one_is_queued(
    store: Store, database: Database
) -> None:
    await one_session(store, alarm("web"), cost_usd=0.25)
    with database.connect() as connection:
        waiting = tree(connection, 1)
    await claimed(store, at=after(minutes=2))
    with database.connect() as connection:
        running = tree(connection, 1)
        none = tree(connection, 99)
    database.execute("UPDATE sessions SET status = 'queued', outcome = NULL WHERE id = 1")
    with database.connect() as connection:
        both = tree(connection, 1)

    assert (waiting.status, running.status, both.status) == (Status.QUEUED, Status.RUNNING, Status.RUNNING)
    assert (running.sessions_count, running.cost_usd, running.decision_reason) == (2, 0.25, None)
    assert (none.sessions_count, none.sessions, none.cost_usd) == (0, (), None)


# --- money ------------------------------------------------------------------------------------------------


async def test_spending_is_told_by_day_tier_chain_and_what_is_under_way(
    escalated: Session, store: Store, database: Database
) -> None:
    await queued(store, at=after(minutes=5))
    running = await claimed(store, at=after(minutes=5), with_rules=PAID)
    assert running is not None
    begun = await store.spending.begin_model_call(
        running, model="claude-haiku-5-5", worst_usd=0.2, rules=PAID, now=after(minutes=6)
    )
    assert isinstance(begun, AdmittedCall)
    done = CallState(
        id=begun.id, http_status=200, usage=USAGE, cost_usd=0.1, charged_usd=0.1, ended_at=after(minutes=7)
    )
    await store.spending.book_model_call(done)
    since = after(days=-2)

    with database.connect() as connection:
        days = spending.by_day(connection, since=since, now=after(hours=1), timezone="Europe/Paris")
        tiers = spending.by_tier(connection, since=since)
        [chain] = spending.by_chain(connection, since=since, limit=5)
        [model] = spending.by_model(connection, since=since)
        under_way = spending.under_way(connection)
        whole = spending.spending_of(
            connection,
            since=since,
            now=after(hours=1),
            timezone="Europe/Paris",
            day_budget_usd=10,
            chain_budget_usd=5,
            limit=5,
        )

    assert [(day.day, day.booked_usd, day.sessions) for day in days] == [
        ("2026-03-01", pytest.approx(1.75), 2),
        ("2026-02-28", 0.0, 0),
        ("2026-02-27", 0.0, 0),
    ]
    assert tiers == [
        TierSpend(tier=1, booked_usd=0.25, sessions=1),
        TierSpend(tier=2, booked_usd=1.5, sessions=1),
    ]
    assert chain == ChainSpend(chain=1, booked_usd=1.75, sessions=2, last_at=after(minutes=3))
    assert (model.model, model.calls, model.input_tokens, model.cost_usd) == ("claude-haiku-5-5", 1, 12, 0.1)
    assert model.without_price == 0
    assert under_way == [OpenSpend(session_id=running.id, chain=running.id, tier=1, reserved_usd=1.0, charged_usd=0.1)]
    assert escalated.id == chain.sessions
    assert (whole.days, whole.tiers, whole.chains) == (tuple(days), tuple(tiers), (chain,))
    assert (whole.models, whole.under_way) == ((model,), tuple(under_way))
    assert whole.today_usd == pytest.approx(1.85)
    assert whole.booked_usd == pytest.approx(1.75)
    assert whole.nothing_found_usd == 0  # the second tier ends well because it has mended what the first one found
    database.execute("DELETE FROM cooldown_actions")
    database.execute("UPDATE sessions SET decision_reason = 'healthy' WHERE parent_session_id IS NOT NULL")
    with database.connect() as connection:
        assert spending.nothing_found(connection, since=since) == 0  # or because it is over by itself
    assert (whole.reserved_usd, whole.day_budget_usd, whole.chain_budget_usd) == (1.0, 10, 5)


async def test_a_session_is_paid_by_the_services_that_it_looked_at_in_equal_parts(
    store: Store, database: Database
) -> None:
    await one_session(store, report(check("Web"), check("web"), check("db")), cost_usd=0.5)
    await one_session(store, report(check("db")), cost_usd=0.25, at=after(hours=1))
    await one_session(store, None, outcome=Outcome.ERROR, cost_usd=0.125, at=after(hours=2))
    since = after(days=-1)
    with database.connect() as connection:
        services = spending.by_service(connection, since=since, limit=5)
        verdicts = spending.by_verdict(connection, since=since)
        dearest = spending.by_service(connection, since=since, limit=1)
        later = spending.by_service(connection, since=after(minutes=30), limit=5)
    assert [(one.service, one.booked_usd, one.sessions) for one in services] == [
        ("db", 0.5, 2),
        ("web", 0.25, 1),
        (None, 0.125, 1),
    ]
    assert [(one.service, one.booked_usd) for one in later] == [("db", 0.25), (None, 0.125)]
    assert dearest == services[:1]
    assert sum(one.booked_usd for one in verdicts) == pytest.approx(0.875)
    assert {one.verdict for one in verdicts} >= {DecisionReason.SESSION_FAILED}


async def test_what_found_nothing_and_what_was_not_started_is_counted(store: Store, database: Database) -> None:
    for cost in (0.5, 0.25):
        await one_session(store, report(check("web")), cost_usd=cost)
    database.execute("UPDATE sessions SET decision_reason = CASE id WHEN 1 THEN 'healthy' ELSE 'no_evidence' END")
    for minute, reason, usd in ((1, "unchanged", "0.25"), (2, "unchanged", ""), (3, "missed", "9")):
        database.execute(
            "INSERT INTO schedule_fires (schedule, due_at, fired_at, skipped_reason, saved_usd)"
            " SELECT :due, created_at, created_at, :reason, CAST(NULLIF(:usd, '') AS FLOAT) FROM sessions WHERE id = 1",
            due=str(minute),
            reason=reason,
            usd=usd,
        )
    with database.connect() as connection:
        found = spending.saved(connection, since=after(days=-1))
        verdicts = spending.by_verdict(connection, since=after(days=-1))
        whole = spending.spending_of(
            connection,
            since=after(days=-1),
            now=after(hours=1),
            timezone="UTC",
            day_budget_usd=10,
            chain_budget_usd=5,
            limit=5,
        )
    assert found == (whole.saved_usd, whole.saved_fires) == (0.25, 2)
    assert [(one.verdict, one.booked_usd) for one in verdicts] == [
        (DecisionReason.HEALTHY, 0.5),
        (DecisionReason.NO_EVIDENCE, 0.25),
    ]
    assert whole.nothing_found_usd == 0.5
    database.execute(
        "INSERT INTO cooldown_actions (session_id, tool_use_id, service, action_type, timestamp, tier)"
        " SELECT id, 'toolu_1', 'web', 'restart', created_at, tier FROM sessions WHERE id = 1"
    )
    with database.connect() as connection:
        assert spending.nothing_found(connection, since=after(days=-1)) == 0  # it has done something


async def test_figures_count_what_ended_since_then(escalated: Session, database: Database) -> None:
    with database.connect() as connection:
        found = figures(connection, after(days=-1))
        later = figures(connection, after(days=1))

    assert (found.chains, found.sessions, found.actions, found.actions_failed) == (1, 2, 1, 0)
    assert found.outcomes == {"success": 2}
    assert found.decisions["escalated"] == 1
    assert found.verdicts == {"allow": 1, "deny": 1}
    assert [(tier.tier, tier.sessions, tier.succeeded, tier.mean_duration_ms) for tier in found.tiers] == [
        (1, 1, 1, 60_000.0),
        (escalated.tier, 1, 1, 60_000.0),
    ]
    assert (later.chains, later.sessions, later.outcomes, later.tiers) == (0, 0, {}, ())


# --- at a glance ------------------------------------------------------------------------------------------


def glanced(database: Database) -> Glance:
    now = after(minutes=10)
    return glance(database.url, now=now, midnight=last_midnight(now, "UTC"))


async def test_what_waits_for_a_site_without_a_daemon_is_there_at_a_glance(store: Store, database: Database) -> None:
    await queued(store, wanted(site="harbour"))
    await queued(store, wanted(site="main"))
    assert glanced(database).sites_without_node == ()  # no daemon runs at all, which is said elsewhere

    await store.recovery.renew_lease(OWNER, now=NOW)
    assert glanced(database).sites_without_node == ("harbour",)

    await store.recovery.renew_lease(replace(OTHER_OWNER, is_alone=True), now=NOW)
    assert glanced(database).sites_without_node == ()  # nothing waits for a site where a daemon is alone


async def test_what_waits_for_a_machine_without_a_daemon_is_there_at_a_glance(store: Store, database: Database) -> None:
    await queued(store, wanted(site="main", for_node="attic"))
    for _ in range(2):
        await queued(store, wanted(site="harbour", for_node="loft"))
    assert glanced(database).nodes_absent == {}  # no daemon runs at all, which is said elsewhere

    await store.recovery.renew_lease(OWNER, now=NOW)
    assert glanced(database).sites_without_node == ()  # a node of its site would not be enough
    assert glanced(database).nodes_absent == {"loft": 2}

    await store.recovery.renew_lease(replace(OTHER_OWNER, is_alone=True), now=NOW)
    assert glanced(database).nodes_absent == {}  # one that is alone waits for no machine


async def test_an_empty_database_has_nothing_to_tell(database: Database) -> None:
    seen = glanced(database)
    assert (seen.running, seen.queued, seen.last_session, seen.last_fire, seen.holds) == ((), 0, None, None, ())
    assert (seen.today_usd, seen.reserved_usd, seen.open_events, seen.approvals_waiting) == (0.0, 0.0, {}, 0)
    assert (seen.notices_waiting, seen.untold_since) == (0, None)


async def test_a_glance_sees_what_runs_waits_and_is_open(escalated: Session, store: Store, database: Database) -> None:
    running = await started(store, at=after(minutes=5))
    await queued(store, at=after(minutes=6))
    await store.holds.hold(Hold(kind=HoldKind.PAUSED, reason="moving house", since=NOW), now=NOW)
    await store.holds.hold(Hold(kind=HoldKind.BUDGET, reason="spent", since=NOW, until=after(minutes=9)), now=NOW)
    database.execute(
        "INSERT INTO approvals (session_id, tool_use_id, call_hash, status, requested_at, expires_at)"
        " SELECT id, 'toolu_9', 'x', :status, started_at, :expires FROM sessions WHERE status = 'running'",
        status=ApprovalStatus.PENDING.value,
        expires="2026-03-01 12:15:00.000000",
    )

    seen = glanced(database)

    [now_running] = seen.running
    assert (now_running.session_id, now_running.started_at) == (running.id, after(minutes=5))
    assert seen.queued == 1
    assert seen.last_session is not None
    assert (seen.last_session.session_id, seen.last_session.outcome) == (escalated.id, Outcome.SUCCESS.value)
    assert seen.last_session.ended_at == after(minutes=3)
    assert [(hold.kind, hold.reason) for hold in seen.holds] == [("paused", "moving house")]
    assert seen.today_usd == pytest.approx(1.75)
    assert (seen.approvals_waiting, seen.approval_expires_at) == (1, after(minutes=15))
    untold = await store.outbox.oldest(after(minutes=10))
    assert (seen.notices_waiting > 0, seen.untold_since) == (True, untold)
    assert seen.open_events.get(EventLevel.WARNING.value, 0) >= 1  # the pause itself
    assert all(event.level != EventLevel.INFO.value for event in seen.newest_events)


@pytest.mark.dialect
async def test_a_glance_names_the_chain_that_has_a_service_under_repair(store: Store, database: Database) -> None:
    session = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", allow(restart()), at=after(minutes=2))
    (repair,) = glanced(database).under_repair
    assert (repair.service, repair.chain, repair.since) == ("web", session.id, after(minutes=2))
    database.execute("UPDATE leases SET ends_at = '2000-01-01 00:00:00.000000'")
    assert glanced(database).under_repair == ()


@pytest.mark.dialect
async def test_a_glance_names_chats_whose_answers_do_not_arrive(store: Store, database: Database) -> None:
    for name, level in (
        ("chat_deaf:ops", EventLevel.CRITICAL),
        ("target_refused:ops", EventLevel.CRITICAL),
        ("chatxdeaf:no", EventLevel.WARNING),
    ):
        await store.probes.note(NewEvent(level=level, message=f"about {name}", fingerprint=name), over=False, now=NOW)

    assert glanced(database).chats_deaf == ("about chat_deaf:ops",)
    noted = noted_of_targets(database.url)
    assert noted == [("chat_deaf:ops", "about chat_deaf:ops"), ("target_refused:ops", "about target_refused:ops")]


async def test_a_glance_has_every_kind_of_hold(store: Store, database: Database) -> None:
    for kind in HoldKind:
        await store.holds.hold(Hold(kind=kind, reason=kind.value, since=NOW, until=after(hours=1)), now=NOW)
    assert {hold.kind for hold in glanced(database).holds} == {kind.value for kind in HoldKind}


def test_a_database_that_is_missing_or_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="there is no database"):
        glance(f"sqlite:///{tmp_path}/none.db", now=NOW, midnight=NOW)
    file = tmp_path / "other.db"
    file.write_text("something else altogether, and longer than a header of a hundred bytes " * 3)
    with pytest.raises(DatabaseUnavailableError, match="not a database"):
        glance(f"sqlite:///{file}", now=NOW, midnight=NOW)
    with pytest.raises(DatabaseUnavailableError, match="says"):
        glance("postgresql+psycopg://nobody:hunter2@127.0.0.1:1/none", now=NOW, midnight=NOW, busy_seconds=1)
