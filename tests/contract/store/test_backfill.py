"""Any store: what a log says is written late, once, and nothing follows from it."""

from __future__ import annotations

import json

import pytest

from claudeops.domain.calls import ToolEnd, VerdictKind
from claudeops.domain.chains.backfill import BackfillPart
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.report.report import Extraction, ExtractionMethod, Report
from claudeops.domain.sessions import Ending, Outcome, Session, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.late_reports import FAULT, FULL, SEEN, TIMING, all_rows, amended, lost, read
from support.store_values import (
    RULES,
    after,
    alarm,
    allow,
    check,
    ending,
    gone,
    how_many_wait,
    one_session,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database, opened

LOST = (
    "the tier 1 session {} was lost: its daemon ended, or was cut off, before it did, for the second time; "
    "it is not started again."
)

pytest_plugins = ("support.store_fixtures",)

# --- once -------------------------------------------------------------------------------------------------

ENDS = (
    ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1), is_error=False),
    ToolEnd(tool_use_id="toolu_2", ended_at=after(minutes=1), is_error=True),
)


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        pytest.param(FULL, {}, id="healthy"),
        pytest.param(alarm(), {"events": (NewEvent(level=EventLevel.WARNING, message="seen"),)}, id="escalated"),
        pytest.param(FULL, {"outcome": Outcome.TIMEOUT, "cost_usd": None, "num_turns": None}, id="stopped"),
        pytest.param(None, {"cost_usd": None}, id="without a report"),
        pytest.param(None, {"response": None, "cost_usd": float("inf")}, id="without anything"),
    ],
)
async def test_session_that_was_finished_is_not_changed(
    store: Store, database: Database, said: Report | None, changes: dict[str, object]
) -> None:
    await one_session(store, FULL, at=after(hours=-1))
    session = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", allow(restart()))
    await recorded(store, session, "toolu_3", allow(restart("db")))
    end = read(session, said, **{"tool_ends": ENDS, "warnings": ("slow",), **changes})
    await store.queue.finish(end, rules=RULES)
    before = all_rows(database)

    result = await amended(store, end)

    assert all_rows(database) == before
    assert result.parts == frozenset()
    assert result.session == await store.records.session(session.id)


async def test_later_reading_by_other_rules_does_not_change_a_finished_session(
    store: Store, database: Database
) -> None:
    session = await started(store)
    await store.queue.finish(read(session, exit_code=-9), rules=RULES)
    before = all_rows(database)

    again = read(session, alarm(), cost_usd=9.0, num_turns=99, response="else", warnings=("exit-code-mismatch: -9",))
    await store.recovery.backfill(again)

    assert all_rows(database) == before


@pytest.mark.dialect
async def test_lost_session_gets_its_report_and_its_cost_and_stays_lost(store: Store, database: Database) -> None:
    session = await lost(store)
    row_before = database.rows("sessions")[0]
    said = Extraction(method=ExtractionMethod.SALVAGED, report=FULL, warnings=("salvaged: from text",))

    result = await amended(
        store,
        read(
            session,
            extraction=said,
            api_key_source="none",
            input_tokens=1000,
            output_tokens=200,
            response="I looked.",
            tool_calls_seen=4,
            malformed_lines=1,
            warnings=("one line was no JSON",),
        ),
    )

    assert result.parts == {BackfillPart.FACTS, BackfillPart.REPORT, BackfillPart.COST}
    (row,) = database.rows("sessions")
    changed = {name: row[name] for name in row if row[name] != row_before[name]}
    assert json.loads(str(changed.pop("warnings"))) == ["salvaged: from text", "one line was no JSON"]
    assert changed == {
        "extraction_method": "salvaged",
        "summary": "Looked at everything.",
        "api_key_source": "none",
        "num_turns": 4,
        "input_tokens": 1000,
        "output_tokens": 200,
        "cost_usd": 0.25,
        "response": "I looked.",
        "tool_calls_seen": 4,
        "calls_ran": 3,
        "malformed_lines": 1,
        "tool_errors": 0,
        "api_retries": 0,
        "unknown_frames": 0,
    }
    assert (row["outcome"], row["decision_reason"]) == ("lost", "session_failed")
    checks = [(check["service"], check["status"], check["checked_at"]) for check in database.rows("service_checks")]
    assert checks == [("web", "degraded", after(minutes=1)), ("db", "healthy", after(minutes=1))]
    (memory,) = database.rows("memories")
    assert (memory["observation"], memory["confidence"], memory["session_id"]) == ("answers within 40 ms", 0.7, 1)
    assert [(event["message"], event["count"], event["last_seen"]) for event in database.rows("events")] == [
        (
            LOST.format(session.id),
            1,
            after(hours=1),
        ),
        ("web answers 502", 1, after(minutes=1)),
    ]
    (entry,) = database.rows("budget_entries")
    assert (entry["kind"], entry["amount_usd"], entry["created_at"]) == ("settled", 0.25, after(minutes=1))


@pytest.mark.dialect
async def test_twice_is_the_same_as_once(store: Store, database: Database) -> None:
    await one_session(store, SEEN, at=after(hours=-1))
    session = await lost(store, tier=2, calls=True)
    await amended(store, read(session, tool_ends=ENDS))
    once = all_rows(database)

    for _ in range(2):
        result = await amended(store, read(session, tool_ends=ENDS))
        assert result.parts == frozenset()

    assert all_rows(database) == once
    assert [event["count"] for event in database.rows("events")] == [2, 1]
    assert [memory["confidence"] for memory in database.rows("memories")] == [0.8]


async def test_what_a_late_report_wishes_is_told_and_not_done(store: Store, database: Database) -> None:
    session = await lost(store)

    await amended(store, read(session, alarm()))

    assert (await how_many_wait(store), len(database.rows("sessions"))) == (0, 1)
    (row,) = database.rows("sessions")
    assert (row["outcome"], row["decision_reason"]) == ("lost", "session_failed")
    assert "the report asks for the next tier" in str(row["warnings"])


async def test_amended_session_equals_a_finished_one_but_for_its_end(store: Store, database: Database) -> None:
    """Two sessions with the same log, one finished and one lost and amended, leave the same rows."""
    await one_session(store, SEEN, at=after(days=-1))
    wish = wanted(2, prompt_text="web-2 and web-3 do not answer")
    first, second = [await started(store, wish, at=after(hours=hour)) for hour in (0, 0)]
    for session in (first, second):
        await recorded(store, session, f"toolu_{session.id}", allow(restart(f"web-{session.id}")))

    def log_of(session: Session) -> Ending:
        service = f"web-{session.id}"
        said = report(
            check(service),
            events=(replace(FAULT, service=service),),
            memories=(TIMING, replace(TIMING, service=service)),
        )
        end = ToolEnd(tool_use_id=f"toolu_{session.id}", ended_at=after(minutes=1), is_error=False)
        look = EvidenceLook(names=frozenset({service}), results_before=1)
        return read(session, said, tool_ends=(end,), looks=(look,), response="I looked.", warnings=("slow",))

    await store.queue.finish(log_of(first), rules=RULES)
    await gone(store, at=after(hours=1))
    await amended(store, replace(log_of(second), attempt=2))  # taken over once

    own = {
        "id",
        "root_session_id",
        "session_id",
        "last_session_id",
        "log_path",
        "tool_use_id",
        "fingerprint",
        "evidence",
    }
    own |= {"previous_hash", "hash", "audit_head", "audit_results", "prompt_text"}
    own |= {"attempt", "owner", "lease_expires_at"}
    of_the_end = {"outcome", "decision_reason", "error", "ended_at", "duration_ms"}

    def rows(table: str, session: Session) -> list[dict[str, str]]:
        ignored = own | of_the_end if table == "sessions" else own
        return [
            {name: str(row[name]).replace(f"web-{session.id}", "web-N") for name in row if name not in ignored}
            for row in database.rows(table)
            if row.get("session_id", row["id"]) == session.id and "lost" not in str(row.get("message"))
        ]

    for table in ("sessions", "events", "memories", "service_checks", "tool_calls", "cooldown_actions"):
        assert rows(table, first), table
        assert rows(table, second) == rows(table, first)
    # Reinforced by each of the two, after the session of the day before.
    assert database.rows("memories")[0]["confidence"] == 0.9
    assert [entry["amount_usd"] for entry in database.rows("budget_entries")] == [0.25, 0.25]


async def test_log_that_grew_since_adds_what_it_lacked_and_nothing_again(store: Store, database: Database) -> None:
    session = await lost(store)
    await amended(store, read(session, None, cost_usd=None, response="I", warnings=("no result line",)))
    assert database.rows("sessions")[0]["extraction_method"] == "none"

    result = await amended(store, read(session, response="I looked."))
    await amended(store, read(session, response="I looked."))

    assert result.parts == {BackfillPart.FACTS, BackfillPart.REPORT, BackfillPart.COST}
    (row,) = database.rows("sessions")
    assert (row["response"], row["extraction_method"], row["warnings"]) == ("I looked.", "structured", "[]")
    assert [event["count"] for event in database.rows("events")] == [1, 1]
    assert len(database.rows("budget_entries")) == 1


async def test_cost_that_comes_after_the_report_is_booked_alone(store: Store, database: Database) -> None:
    session = await lost(store)
    await amended(store, read(session, cost_usd=None, warnings=("no result line",)))

    result = await amended(store, read(session, alarm(), warnings=("slow",)))

    assert result.parts == {BackfillPart.FACTS, BackfillPart.COST}
    assert [event["count"] for event in database.rows("events")] == [1, 1]
    assert len(database.rows("service_checks")) == 2
    (row,) = database.rows("sessions")
    assert (row["summary"], row["cost_usd"]) == ("Looked at everything.", 0.25)
    assert json.loads(str(row["warnings"])) == ["no result line", "slow"]
    assert len(database.rows("budget_entries")) == 1


async def test_session_that_our_own_fault_ended_gets_the_report_of_its_log(store: Store, database: Database) -> None:
    session = await started(store, wanted(trigger=Trigger.RETRY))
    told = {"error": "internal error", "warnings": ("it broke",), "api_key_source": "none", "calls_ran": 0}
    await store.queue.finish(ending(session, None, outcome=Outcome.ERROR, **told), rules=RULES)

    result = await amended(store, read(session, warnings=("slow",), exit_code=0))

    assert result.parts == {BackfillPart.FACTS, BackfillPart.REPORT, BackfillPart.COST}
    (row,) = database.rows("sessions")
    assert (row["outcome"], row["decision_reason"], row["exit_code"]) == ("error", "session_failed", None)
    assert (row["error"], row["summary"], row["calls_ran"]) == ("internal error", "Looked at everything.", 3)
    assert row["api_key_source"] == "none"  # the log does not say it
    assert json.loads(str(row["warnings"])) == ["it broke", "slow"]


async def test_unknown_cost_stays_null_and_books_nothing(store: Store, database: Database) -> None:
    session = await lost(store)

    await amended(store, read(session, cost_usd=float("nan")))

    assert database.rows("sessions")[0]["cost_usd"] is None
    assert database.rows("budget_entries") == []


async def test_health_that_nothing_stands_behind_is_not_recorded_late_either(store: Store, database: Database) -> None:
    session = await lost(store)

    await amended(store, read(session, calls_ran=0))

    assert [row["service"] for row in database.rows("service_checks")] == ["web"]
    assert "unproven-health" in str(database.rows("sessions")[0]["warnings"])


async def test_spend_that_was_settled_without_a_cost_in_the_row_is_not_settled_again(database: Database) -> None:
    async with opened(database) as store:
        session = await lost(store)
        await amended(store, read(session))
        database.execute("UPDATE sessions SET cost_usd = NULL")

        await amended(store, read(session))

    assert database.rows("sessions")[0]["cost_usd"] == 0.25
    assert len(database.rows("budget_entries")) == 1


# --- tool calls -------------------------------------------------------------------------------------------


async def test_results_reach_the_calls_that_show_none(store: Store, database: Database) -> None:
    session = await lost(store, tier=2, calls=True)
    assert [row["error"] for row in database.rows("cooldown_actions")] == ["no result seen"] * 2

    result = await amended(store, read(session, None, cost_usd=None, tool_ends=ENDS))

    assert BackfillPart.TOOL_ENDS in result.parts
    calls = database.rows("tool_calls")
    assert [(call["ended_at"], call["is_error"]) for call in calls] == [
        (after(minutes=1), False),
        (after(minutes=1), True),
    ]
    assert [(action["success"], action["error"]) for action in database.rows("cooldown_actions")] == [
        (True, None),
        (False, "the call ended with an error"),
    ]


async def test_action_without_a_result_stays_a_failed_one(store: Store, database: Database) -> None:
    session = await lost(store, tier=2, calls=True)

    await amended(store, read(session, tool_ends=ENDS[:1]))

    assert [(action["success"], action["error"]) for action in database.rows("cooldown_actions")] == [
        (True, None),
        (False, "no result seen"),
    ]


async def test_allowed_calls_are_those_with_our_yes(store: Store) -> None:
    session = await started(store, wanted(2))
    other = await started(store, wanted(2))
    await recorded(store, session, "toolu_1", allow(restart()))
    await recorded(store, session, "toolu_2", replace(allow(), kind=VerdictKind.DENY))
    await recorded(store, other, "toolu_3", allow())

    assert await store.calls.allowed_calls(session.id) == {"toolu_1"}
    assert await store.calls.allowed_calls(99) == frozenset()
