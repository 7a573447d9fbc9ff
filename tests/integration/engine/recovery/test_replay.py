"""A log read again writes what its session wrote, or would have written: once, and nothing follows from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from claudeops.domain.actions import Action
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.chains.backfill import BackfillPart, BackfillRejected, RejectionReason
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.sessions import Outcome
from claudeops.engine.control import StopControl
from claudeops.engine.recovery.replay import LogRead, read_log
from claudeops.engine.session.runner import SessionRunner
from claudeops.errors import StaleAttemptError
from claudeops.text.redact import Redactor
from support.estate import Estate, deliver, look, report
from support.replays import (
    LOST_AT,
    NOW,
    StillClock,
    Tables,
    copy_database,
    lost_with_log,
    mark_lost,
    ran,
    replay,
    replayed,
    restore_database,
    result_line,
    tables,
)
from support.streams import RECORDINGS

pytestmark = pytest.mark.anyio

FULL = report(
    status="degraded",
    events=[{"level": "warning", "service": "web", "message": "web is slow"}],
    memories=[{"key": "web:timing", "value": "answers within 40 ms"}],
)
BROKEN_LINE: Mapping[str, object] = {"raw": "half a li\n"}
SAID = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "I looked."}]}}
SETTLED = {"outcome", "decision_reason", "error", "ended_at", "duration_ms", "exit_code", "stderr_tail"}
SETTLED |= {"attempt", "owner", "lease_expires_at"}


def restarting(call: ToolCall, _workspace: object) -> Verdict:
    if call.input["command"] == "systemctl is-active web":
        return Verdict(kind=VerdictKind.ALLOW, reason="only looks", look=EvidenceLook(names=frozenset({"web"})))
    return Verdict(kind=VerdictKind.ALLOW, reason="granted", actions=(Action(kind="restart", service="web"),))


def without_the_end(all_tables: Tables) -> Tables:
    """Leave out what a row that was lost keeps, its services too, the event that says so, and which daemons run."""
    sessions = [
        {name: row[name] for name in row if name not in SETTLED}
        for row in all_tables["sessions"]
        if row["trigger"] != "recovery"
    ]
    events = [row for row in all_tables["events"] if "was lost" not in str(row["message"])]
    events = [{**row, "id": number} for number, row in enumerate(events)]
    told = [json.loads(str(row["payload"])) for row in all_tables["outbox"]]
    # Their keys are the numbers of events, which differ by the one that says that a session was lost; and what is told
    # late of a session says neither its tier nor its cost.
    parts = ("topic", "level", "text", "service", "session_id")
    outbox = [{part: notice.get(part) for part in parts} for notice in told if "was lost" not in notice["text"]]
    return {**all_tables, "sessions": sessions, "events": events, "outbox": outbox, "instances": [], "leases": []}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((look(), BROKEN_LINE, {"frame": SAID}, deliver(FULL)), id="healthy"),
        pytest.param((look(), deliver(report(needed=True, status="down"))), id="escalated"),
        pytest.param((look(), {"stderr": "boom\n"}, deliver(FULL), {"exit": 3}), id="exit and stderr"),
        pytest.param(({"frame": SAID}, {"exit": 1}), id="no result"),
        pytest.param(({"result": {"is_error": True, "result": "API Error: 529"}}, {"await_eof": True}), id="api error"),
    ],
)
async def test_replay_of_a_session_that_was_finished_changes_nothing(
    estate: Estate, steps: tuple[Mapping[str, object], ...]
) -> None:
    await estate.finished(*steps)
    before = tables(estate)

    for _ in range(2):
        result = await replayed(estate)
        assert result.parts == frozenset()
        assert result.frames == len([line for line in _log(estate) if line.startswith("{")])

    assert tables(estate) == before


def _log(estate: Estate) -> list[str]:
    return Path(estate.log_path(1)).read_text(encoding="utf-8").splitlines()


async def test_replay_onto_a_restored_database_makes_the_tables_what_they_were(estate: Estate) -> None:
    estate.with_context(clock=StillClock())
    well = {**FULL, "services_checked": report()["services_checked"]}  # else what is learnt waits in quarantine
    await estate.finished(look("toolu_0"), deliver(well))  # something to reinforce and to count up
    estate.with_judge(restarting)
    warned = {"frame": {"type": "warning", "subtype": "model_mismatch", "message": "asked for sonnet, got opus"}}
    seen = look("toolu_3", "systemctl is-active web")
    steps = (look("toolu_1"), look("toolu_2"), seen, BROKEN_LINE, warned, {"frame": SAID}, deliver(FULL))
    ending = await ran(estate, *steps, tier=2, request="web is down")
    backup = copy_database(estate, estate.root / "backup.db")
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    original = tables(estate)

    restore_database(estate, backup)
    await mark_lost(estate)
    for _ in range(2):
        await replayed(estate, 2)

    assert without_the_end(tables(estate)) == without_the_end(original)
    row = estate.row(2)
    assert (row["outcome"], row["decision_reason"], row["calls_ran"]) == ("lost", "session_failed", 3)
    assert [memory["confidence"] for memory in tables(estate)["memories"]] == [0.8]
    assert [action["success"] for action in tables(estate)["cooldown_actions"]] == [1, 1]


async def test_what_a_lost_session_asked_for_is_not_done(estate: Estate) -> None:
    await ran(estate, look(), deliver(report(needed=True, status="down")))
    await mark_lost(estate)

    result = await replayed(estate)

    assert result.parts == {BackfillPart.FACTS, BackfillPart.REPORT, BackfillPart.COST, BackfillPart.TOOL_ENDS}
    assert result.ending.outcome is Outcome.SUCCESS
    assert [row["trigger"] for row in estate.rows("SELECT * FROM sessions")] == ["manual", "recovery"]
    row = estate.row(1)
    assert (row["outcome"], row["decision_reason"], row["cost_usd"]) == ("lost", "session_failed", 0.01)
    assert "asks for the next tier" in str(row["warnings"])


async def test_call_that_the_database_lost_is_no_evidence(estate: Estate) -> None:
    """A database restored to a time before the calls knows of no yes, so nothing proves that services are well."""
    await estate.queue()
    session = await estate.claim()
    backup = copy_database(estate, estate.root / "backup.db")
    estate.script(look(), deliver(report()))
    await SessionRunner(context=estate.context).run(session, StopControl())
    restore_database(estate, backup)
    await mark_lost(estate)

    await replayed(estate)

    row = estate.row(1)
    assert (row["calls_ran"], row["summary"]) == (0, "Looked at every service of the estate.")
    assert estate.rows("SELECT * FROM service_checks") == []
    assert "unproven-health" in str(row["warnings"])


async def test_log_of_a_session_that_the_database_forgot_goes_into_no_other_row(estate: Estate) -> None:
    backup = copy_database(estate, estate.root / "backup.db")
    await estate.finished(look(), deliver(FULL))
    log = Path(estate.log_path(1)).read_bytes()
    restore_database(estate, backup)

    row = await estate.finished(look(), deliver(FULL))  # gets the same id, and finds the log's name taken
    before = tables(estate)
    refused = await replay(1, estate.context)

    assert row["outcome"] == "spawn_failed"
    assert isinstance(refused, BackfillRejected)
    assert refused.reason is RejectionReason.OTHER_SESSION
    assert tables(estate) == before
    assert Path(estate.log_path(1)).read_bytes() == log


async def test_ends_of_calls_get_the_times_of_their_arrival(estate: Estate) -> None:
    estate.with_context(clock=StillClock(timedelta(seconds=1)))
    ending = await ran(estate, look("toolu_1"), look("toolu_2"), deliver(report()))
    await mark_lost(estate)

    read = await replayed(estate)

    assert read.ending.tool_ends == ending.tool_ends
    arrivals = [line.split("\t")[2] for line in _index(estate).read_text().splitlines()]
    assert read.ending.ended_at == datetime.fromisoformat(arrivals[-1])
    checked = estate.rows("SELECT checked_at FROM service_checks")[0]["checked_at"]
    assert f"{checked}" == f"{read.ending.ended_at.replace(tzinfo=None)}.000000"


def _index(estate: Estate) -> Path:
    return Path(estate.log_path(1)).with_suffix(".index")


@pytest.mark.parametrize("damage", ["missing", "empty", "of another log", "cut off", "a pipe's", "naive times"])
async def test_index_that_does_not_fit_is_left_alone(estate: Estate, damage: str) -> None:
    estate.with_context(clock=StillClock())
    await ran(estate, look(), deliver(FULL))
    await mark_lost(estate)
    index = _index(estate)
    entries = index.read_bytes().splitlines(keepends=True)
    first = entries[0]
    index.unlink()
    match damage:
        case "empty":
            index.write_bytes(b"")
        case "of another log":
            index.write_bytes(b"".join(entry.replace(b"\t", b"\t1", 1) for entry in entries))
        case "cut off":
            index.write_bytes(first + entries[1][:-9])
        case "a pipe's":
            os.mkfifo(index)
        case "naive times":
            index.write_bytes(b"".join(entry.replace(b"+00:00", b"") for entry in entries))

    await replayed(estate)

    (call,) = estate.rows("SELECT ended_at FROM tool_calls")
    at = NOW if damage == "cut off" else LOST_AT
    assert str(call["ended_at"]) == f"{at.replace(tzinfo=None)}.000000"


async def test_line_that_a_crash_cut_off_is_counted_and_the_rest_is_taken(estate: Estate) -> None:
    await lost_with_log(estate, SAID, b'{"type":"result","subtype":"succ')

    await replayed(estate)

    row = estate.row(1)
    assert (row["response"], row["malformed_lines"], row["cost_usd"]) == ("I looked.", 1, None)
    assert (row["extraction_method"], row["input_tokens"]) == ("none", None)


async def test_log_that_turns_up_whole_later_completes_what_half_of_it_said(estate: Estate) -> None:
    session = await lost_with_log(estate, SAID, b'{"type":"result","subtype":"succ')
    await replayed(estate)
    half = tables(estate)
    path = Path(session.log_path or "")
    whole = json.dumps({**result_line(FULL), "session_id": session.cli_session_id}).encode()
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + whole)

    result = await replayed(estate)
    once = tables(estate)
    await replayed(estate)

    assert result.parts == {BackfillPart.FACTS, BackfillPart.REPORT, BackfillPart.COST}
    row = estate.row(1)
    assert (row["extraction_method"], row["cost_usd"], row["malformed_lines"]) == ("structured", 0.01, 0)
    assert "without a 'result'" not in str(row["warnings"])
    assert half["budget_entries"] == []
    assert tables(estate) == once


async def test_secret_that_was_none_when_the_log_was_written_reaches_no_row(estate: Estate) -> None:
    await ran(estate, look(), deliver(report(summary="The door opens with sesame-street, as it always did.")))
    await mark_lost(estate)
    estate.with_context(redactor=Redactor(["sesame-street"]))

    await replayed(estate)

    assert estate.row(1)["summary"] == "The door opens with [redacted], as it always did."
    assert "sesame-street" not in json.dumps(tables(estate), default=str)


async def test_warnings_of_a_cli_leave_the_events_that_they_leave_live(estate: Estate) -> None:
    warning = {"type": "warning", "subtype": "model_mismatch", "message": "asked for haiku, got opus"}
    await lost_with_log(estate, warning, warning, result_line(FULL))

    await replayed(estate)
    await replayed(estate)

    rows = estate.rows("SELECT fingerprint, count FROM events WHERE message LIKE '%warned%'")
    assert [(row["fingerprint"], row["count"]) for row in rows] == [("cli_warning:model_mismatch", 1)]


async def test_markers_count_on_replay_as_they_do_live(estate: Estate) -> None:
    text = {"type": "text", "text": "[EVENT:critical:web] down\n[MEMORY:timing:web] answers within 40 ms"}
    said = {"type": "assistant", "message": {"role": "assistant", "content": [text]}}
    await lost_with_log(estate, said, {**result_line({}), "structured_output": None})
    estate.with_context(legacy_markers=False)
    await replayed(estate)
    assert estate.row(1)["extraction_method"] == "none"

    estate.with_context(legacy_markers=True)
    await replayed(estate)

    assert estate.row(1)["extraction_method"] == "markers"
    assert len(estate.rows("SELECT id FROM memories")) == 1


async def test_codex_log_is_taken_once_its_row_knows_the_id_that_the_cli_chose(estate: Estate) -> None:
    thread = "0199a213-81c0-7800-8aa1-bbab2a035a53"
    await estate.queue(harness="codex")
    session = await estate.claim()
    lines = [
        {"type": "thread.started", "thread_id": thread},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": json.dumps(FULL)}},
        {"type": "turn.completed", "usage": {"input_tokens": 100, "output_tokens": 20}},
    ]
    Path(session.log_path or "").write_text("".join(json.dumps(line) + "\n" for line in lines))
    backup = copy_database(estate, estate.root / "backup.db")
    await mark_lost(estate)
    refused = await replay(1, estate.context)
    assert isinstance(refused, BackfillRejected)
    assert refused.reason is RejectionReason.OTHER_SESSION
    assert refused.message.startswith(f"The log {session.log_path} of session 1 is of the CLI session {thread}, not of")

    restore_database(estate, backup)
    await estate.store.queue.identify(session, thread)
    await mark_lost(estate)
    await replayed(estate)

    row = estate.row(1)
    assert (row["cli_session_id"], row["extraction_method"], row["input_tokens"]) == (thread, "structured", 100)
    with pytest.raises(StaleAttemptError):
        await estate.store.queue.identify(session, "another")


async def test_log_of_a_running_session_can_be_read_and_is_not_written(estate: Estate) -> None:
    ending = await ran(estate, look(), deliver(FULL))
    before = tables(estate)
    session = await estate.store.records.session(1)
    assert session is not None

    read = await read_log(session, estate.context)
    refused = await replay(1, estate.context)

    assert isinstance(read, LogRead)
    assert (read.ending.extraction, read.ending.looks) == (ending.extraction, ending.looks)
    assert read.ending.calls_ran == ending.calls_ran
    assert isinstance(refused, BackfillRejected)
    assert refused.reason is RejectionReason.NOT_ENDED
    assert tables(estate) == before


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_recording_of_the_real_cli_is_replayed_once(estate: Estate, recording: Path) -> None:
    lines = recording.read_bytes().splitlines(keepends=True)
    own_id = next(found for line in lines if (found := json.loads(line).get("session_id")))
    session = await lost_with_log(estate, *lines)
    with estate.connect() as connection:
        connection.exec_driver_sql("UPDATE sessions SET cli_session_id = ? WHERE id = ?", (own_id, session.id))

    result = await replayed(estate)
    once = tables(estate)
    again = await replayed(estate)

    results = [frame for frame in map(json.loads, lines) if frame.get("type") == "result"]
    row = estate.row(1)
    if results:
        assert row["cost_usd"] == results[-1]["total_cost_usd"]
    else:  # what the messages say that they used is all that is known
        assert (row["cost_usd"] is None) == ("cost-from-stream" not in str(row["warnings"]))
    assert (row["extraction_method"] == "structured") == any("structured_output" in frame for frame in results)
    assert (result.frames, again.parts) == (len(lines), frozenset())
    assert tables(estate) == once
