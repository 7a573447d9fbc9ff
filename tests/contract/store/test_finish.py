"""Any store: the end of a session and everything that follows from it."""

from __future__ import annotations

import json

import pytest

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import Extraction, ExtractionMethod, ReportedMemory, ServiceStatus
from claudeops.domain.sessions import DecisionReason, ErrorCategory, FailureKind, Handover, Outcome, Status, Trigger
from claudeops.errors import StaleAttemptError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    extraction,
    how_many_wait,
    one_session,
    queued,
    recorded,
    report,
    rules,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

TABLES = (
    "sessions",
    "events",
    "memories",
    "service_checks",
    "tool_calls",
    "cooldown_actions",
    "budget_entries",
)


def everything(database: Database) -> dict[str, list[dict[str, object]]]:
    return {table: database.rows(table) for table in TABLES}


@pytest.mark.dialect
async def test_session_row_keeps_what_is_known_about_the_end(store: Store, database: Database) -> None:
    session = await started(store)
    said = Extraction(method=ExtractionMethod.SALVAGED, report=report(check("web")), warnings=("salvaged: from text",))
    end = ending(
        session,
        extraction=said,
        outcome=Outcome.MAX_TURNS,
        exit_code=-9,
        error_category=ErrorCategory.BACKGROUND_TASK,
        failure_kind=FailureKind.OTHER,
        error="ran out of turns",
        cli_session_id="another-id",
        api_key_source="none",
        num_turns=30,
        input_tokens=1000,
        output_tokens=200,
        cost_usd=0.0425,
        response="I looked.",
        tool_calls_seen=4,
        malformed_lines=2,
        permission_mode="dontAsk",
        stop_reason="end_turn",
        cli_duration_ms=4800,
        cached_input_tokens=40,
        reasoning_output_tokens=3,
        tool_errors=1,
        api_retries=2,
        unknown_frames=5,
        last_assistant_text="I looked.",
        warnings=("background-task: one is still running",),
        stderr_tail="boom",
    )

    finished = await store.queue.finish(end, rules=RULES)

    (row,) = database.rows("sessions")
    assert finished.decision.reason is DecisionReason.SESSION_FAILED
    assert finished.next_session_id is None
    written = {name: row[name] for name in row if name not in {"context", "prompt_text", "not_before"}}
    assert json.loads(str(written.pop("warnings"))) == ["salvaged: from text", "background-task: one is still running"]
    assert written.pop("lease_expires_at") is not None
    assert written == {
        "id": session.id,
        "root_session_id": session.id,
        "parent_session_id": None,
        "budget_usd": None,
        "incident_id": None,
        "services": None,
        "started_by": None,
        "site": None,
        "for_node": None,
        "ranked_at": after(minutes=0.5),
        "tier": 1,
        "ordinal": 0,
        "harness": "claude",
        "model": "haiku",
        "trigger": "manual",
        "status": "ended",
        "outcome": "max_turns",
        "error_category": "background-task",
        "failure_kind": "other",
        "error": "ran out of turns",
        "extraction_method": "salvaged",
        "decision_reason": "session_failed",
        "cli_session_id": "another-id",
        "api_key_source": "none",
        "created_at": NOW,
        "started_at": NOW,
        "ended_at": after(minutes=1),
        "duration_ms": 60_000,
        "exit_code": -9,
        "num_turns": 30,
        "input_tokens": 1000,
        "output_tokens": 200,
        "cost_usd": 0.0425,
        "summary": "Looked at everything.",
        "response": "I looked.",
        "tool_calls_seen": 4,
        "calls_ran": 3,
        "malformed_lines": 2,
        "permission_mode": "dontAsk",
        "stop_reason": "end_turn",
        "cli_duration_ms": 4800,
        "cached_input_tokens": 40,
        "reasoning_output_tokens": 3,
        "tool_errors": 1,
        "api_retries": 2,
        "unknown_frames": 5,
        "last_assistant_text": "I looked.",
        "stderr_tail": "boom",
        "log_node": OWNER.node,
        "log_path": session.log_path,
        "attempt": 1,
        "owner": "node-1",
        "audit_head": "",
        "audit_results": written["audit_results"],
        "isolation": "user",
    }
    read = await store.records.session(session.id)
    assert read is not None
    assert (read.status, read.outcome, read.cost_usd, read.num_turns) == (Status.ENDED, Outcome.MAX_TURNS, 0.0425, 30)


async def test_unknown_cost_is_null_and_books_nothing(store: Store, database: Database) -> None:
    await one_session(store, report(check("web")))
    await one_session(store, report(check("web")), cost_usd=0.25, at=after(minutes=5))

    assert [row["cost_usd"] for row in database.rows("sessions")] == [None, 0.25]
    (entry,) = database.rows("budget_entries")
    assert (entry["session_id"], entry["kind"], entry["amount_usd"], entry["created_at"]) == (
        2,
        "settled",
        0.25,
        after(minutes=6),
    )


async def test_escalation_is_a_queued_row_of_the_same_commit(store: Store, database: Database) -> None:
    session = await started(store, wanted(prompt_text="look at web"))

    finished = await store.queue.finish(ending(session, alarm()), rules=RULES)

    assert finished.decision.reason is DecisionReason.ESCALATED
    assert finished.next_session_id is not None
    following = await store.records.session(finished.next_session_id)
    assert following is not None
    assert (following.root_session_id, following.parent_session_id) == (session.id, session.id)
    assert (following.tier, following.model, following.harness, following.trigger, following.status) == (
        2,
        "sonnet",
        "claude",
        Trigger.ESCALATION,
        Status.QUEUED,
    )
    assert following.context == Handover(
        reason="web answers 502",
        findings="its upstream is gone",
        service_status=(check("web", ServiceStatus.DOWN, "502"),),
    )
    assert [event["message"] for event in database.rows("events")] == ["incident 1 is open: web"]  # of what it found
    claim = await claimed(store, at=after(minutes=2))
    assert claim is not None
    assert claim.id == following.id


async def test_three_tiers_form_one_chain_and_the_last_one_says_so(store: Store, database: Database) -> None:
    await started(store)
    reasons = []
    for number in (1, 2, 3):
        session = await store.records.session(number)
        if session is not None and session.status is Status.QUEUED:
            session = await claimed(store, at=after(minutes=number * 2))
        assert session is not None
        finished = await store.queue.finish(ending(session, alarm()), rules=RULES)
        reasons.append(finished.decision.reason)

    assert reasons == [DecisionReason.ESCALATED, DecisionReason.ESCALATED, DecisionReason.MAX_TIER]
    assert [(session.tier, session.harness) for session in await store.records.chain(1)] == [
        (1, "claude"),
        (2, "claude"),
        (3, "codex"),
    ]
    found, event = database.rows("events")
    assert found["message"] == "incident 1 is open: web"
    assert (event["level"], event["session_id"], event["service"]) == ("critical", 3, "web")


@pytest.mark.dialect
@pytest.mark.parametrize(
    ("attempt", "session_id"),
    [pytest.param(2, 1, id="another attempt"), pytest.param(1, 2, id="not begun"), pytest.param(1, 99, id="nobody")],
)
async def test_stale_end_writes_nothing(store: Store, database: Database, attempt: int, session_id: int) -> None:
    session = await started(store)
    await queued(store)
    before = everything(database)
    end = ending(session, alarm(), events=(NewEvent(level=EventLevel.INFO, message="seen"),), cost_usd=1.0)

    with pytest.raises(StaleAttemptError):
        await store.queue.finish(replace(end, attempt=attempt, session_id=session_id), rules=RULES)

    assert everything(database) == before


async def test_session_ends_once(store: Store, database: Database) -> None:
    session = await started(store)
    await store.queue.finish(ending(session, alarm()), rules=RULES)
    before = everything(database)

    with pytest.raises(StaleAttemptError):
        await store.queue.finish(ending(session, alarm()), rules=RULES)

    assert everything(database) == before


@pytest.mark.dialect
async def test_report_becomes_rows(store: Store, database: Database) -> None:
    said = report(
        check("web", detail="200 in 40 ms"),
        check("db", ServiceStatus.DEGRADED),
        events=(NewEvent(level=EventLevel.WARNING, message="disk at 81 %", service="db"),),
        memories=(ReportedMemory(category="timing", observation="answers within 40 ms", service="web"),),
    )

    await one_session(store, said)

    checks = [(row["service"], row["status"], row["detail"], row["source"]) for row in database.rows("service_checks")]
    assert checks == [("web", "healthy", "200 in 40 ms", "report"), ("db", "degraded", None, "report")]
    (event,) = database.rows("events")
    assert (event["level"], event["service"], event["message"]) == ("warning", "db", "disk at 81 %")
    (memory,) = database.rows("memories")
    assert (memory["service"], memory["category"], memory["observation"]) == ("web", "timing", "answers within 40 ms")
    assert (memory["confidence"], memory["active"], memory["session_id"], memory["tier"]) == (0.7, True, 1, 1)


async def test_service_that_a_report_lists_twice_is_recorded_once_as_the_worse(
    store: Store, database: Database
) -> None:
    await one_session(store, report(check("web"), check("web", ServiceStatus.DOWN, "502"), check("web")))

    (row,) = database.rows("service_checks")
    assert (row["status"], row["detail"]) == ("down", "502")


async def test_health_that_nothing_stands_behind_is_not_recorded(store: Store, database: Database) -> None:
    await one_session(store, report(check("web"), check("db", ServiceStatus.DEGRADED)), calls_ran=0)

    (row,) = database.rows("service_checks")
    assert (row["service"], row["status"]) == ("db", "degraded")
    (session,) = database.rows("sessions")
    assert session["decision_reason"] == "no_evidence"
    assert "unproven-health: 1 healthy checks were not recorded" in str(session["warnings"])


async def test_dry_run_says_what_it_would_have_done(store: Store, database: Database) -> None:
    session = await started(store)

    finished = await store.queue.finish(ending(session, alarm()), rules=rules(dry_run=True))

    assert finished.decision.reason is DecisionReason.DRY_RUN
    assert (await how_many_wait(store), len(database.rows("sessions"))) == (0, 1)
    (event,) = database.rows("events")
    assert event["message"] == "dry run: would escalate to tier 2: web answers 502"


@pytest.mark.dialect
async def test_nothing_that_a_model_writes_keeps_a_session_from_ending(store: Store, database: Database) -> None:
    session = await started(store)
    await recorded(store, session, "toolu_\x00" + "x" * 400, allow())
    hostile = "a\x00b\ud800c" + "\U0001f600" * 3000
    said = report(
        check(hostile, ServiceStatus.DOWN, hostile),
        summary=hostile,
        events=(NewEvent(level=EventLevel.INFO, message=hostile, service=hostile),),
        memories=(ReportedMemory(category=hostile, observation=hostile, service=hostile),),
        escalation=replace(alarm().escalation, reason=hostile, failed_checks=(hostile,)),
    )

    finished = await store.queue.finish(
        ending(
            session,
            extraction=extraction(said),
            response=hostile,
            stderr_tail=hostile,
            warnings=(hostile,),
            input_tokens=10**30,
            num_turns=-(10**30),
            cost_usd=float("nan"),
        ),
        rules=RULES,
    )

    assert finished.next_session_id is not None
    (row, following) = database.rows("sessions")
    assert str(row["summary"]).startswith("a\ufffdb?c\U0001f600")
    assert row["cost_usd"] is None
    assert row["input_tokens"] == 2**63 - 1
    claim = await claimed(store, at=after(minutes=2))
    assert claim is not None
    assert claim.id == following["id"]
    assert len(str(database.rows("service_checks")[0]["service"])) == 255
