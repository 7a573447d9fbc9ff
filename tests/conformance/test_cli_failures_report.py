"""Known failures of headless CLI sessions: the report that does not come, does not fit, or says nothing."""

from __future__ import annotations

import json

import pytest

from claudeops.policy.repetition import REPORTS
from claudeops.settings.files import packaged
from support.estate import Estate, deliver, look, report

pytestmark = pytest.mark.anyio


def attempt(document: object, tool_id: str = "toolu_7") -> dict[str, object]:
    """Return a step: a StructuredOutput call that the CLI rejects."""
    said = "Output does not match required schema"
    return {"tool": {"id": tool_id, "name": "StructuredOutput", "input": document, "fails": True, "output": said}}


def exhausted() -> dict[str, object]:
    """Return the result line of a CLI that has given up on its schema."""
    told = {"subtype": "error_max_structured_output_retries", "terminal_reason": "structured_output_retry_exhausted"}
    return {"result": {**told, "is_error": True, "errors": ["Failed to provide valid structured output"]}}


async def test_row_08_structured_output_is_absent_while_success(estate: Estate) -> None:
    row = await estate.finished(look(), {"result": {}}, {"await_user": True}, deliver(report()))
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("success", "structured", "healthy")
    assert estate.logged.getvalue().count("repair_requested") == 1


async def test_row_08_it_is_taken_from_the_call_where_the_result_line_lost_it(estate: Estate) -> None:
    row = await estate.finished(look(), attempt(report()), {"result": {}}, {"await_eof": True})
    assert (row["extraction_method"], row["decision_reason"]) == ("salvaged", "healthy")
    assert "repair_requested" not in estate.logged.getvalue()


async def test_row_08_blank_is_no_report(estate: Estate) -> None:
    blank: dict[str, object] = {"result": {"structured_output": {}}}
    row = await estate.finished(look(), blank, {"await_user": True}, blank, {"await_eof": True})
    assert (row["extraction_method"], row["decision_reason"]) == ("none", "no_report")
    assert [event["level"] for event in estate.rows("SELECT level FROM events")] == ["critical"]


async def test_row_09_schema_retries_used_up_and_the_work_thrown_away(estate: Estate) -> None:
    alarm = report(needed=True, status="down", summary="web answers 502 since noon")
    row = await estate.finished(look(), attempt(alarm), exhausted(), {"exit": 1})
    assert (row["outcome"], row["extraction_method"], row["summary"]) == (
        "error",
        "salvaged",
        "web answers 502 since noon",
    )
    assert row["decision_reason"] == "escalated", "an alarm is heard however its session ended"


async def test_row_09_what_no_schema_takes_is_kept_for_people(estate: Estate) -> None:
    words = {"frame": {"type": "assistant", "message": {"content": [{"type": "text", "text": "web is down"}]}}}
    row = await estate.finished(look(), attempt({"summary": 1}), words, exhausted(), {"exit": 1})
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("error", "none", "session_failed")
    assert row["last_assistant_text"] == "web is down"
    assert '{"summary":1}' in json.dumps(estate.frames(), separators=(",", ":"))


async def test_row_10_schema_retries_run_away(estate: Estate) -> None:
    """A CLI whose own limit does not hold: it would go on for hours."""
    attempts = [attempt({"summary": 1}, f"toolu_r{number}") for number in range(REPORTS)]
    row = await estate.finished(look(), *attempts, {"hang": True})
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("error", "none", "session_failed")
    assert f"{REPORTS} reports in this session did not fit" in str(estate.rows("SELECT message FROM events"))


async def test_row_10_filler_that_a_loose_schema_takes_is_never_healthy(estate: Estate) -> None:
    filler = report(summary="a", services_checked=[{"name": "b", "status": "healthy", "detail": "c"}])
    row = await estate.finished(look(), deliver(filler), {"await_user": True}, deliver(filler), {"await_eof": True})
    assert (row["extraction_method"], row["decision_reason"]) == ("markers", "no_report")
    assert estate.rows("SELECT * FROM service_checks") == []


async def test_row_11_schema_that_the_cli_ignores_is_kept_by_us(estate: Estate) -> None:
    wrong = deliver({"summary": "all is well", "verdict": "fine"})
    row = await estate.finished(look(), wrong, {"await_user": True}, wrong, {"await_eof": True})
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("success", "markers", "no_report")


async def test_row_11_schema_that_the_cli_refuses_is_said_in_its_own_words(estate: Estate) -> None:
    row = await estate.finished({"stderr": "Error: --json-schema is not a valid JSON Schema\n"}, {"exit": 1})
    assert (row["outcome"], row["decision_reason"]) == ("no_output", "session_failed")
    assert "--json-schema" in str(row["error"])


def test_row_11_schema_uses_nothing_that_versions_disagree_about() -> None:
    text = (packaged("schemas") / "agent-response.json").read_text(encoding="utf-8")
    assert [word for word in ('"format"', '"$ref"', '"$defs"', '"definitions"') if word in text] == []
    assert len(json.dumps(json.loads(text))) < 32 * 1024
