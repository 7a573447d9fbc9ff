"""Known failures of headless CLI sessions: what the stream says wrongly, twice, too early or in a new way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.estate import Estate, deliver, look, report

pytestmark = pytest.mark.anyio


async def test_row_05_result_is_lost_when_its_reader_is_slow(estate: Estate) -> None:
    """More than the socket and the log's queue hold is under way when the CLI ends, without a last newline."""
    lines = 20_000
    frame = json.dumps({"type": "system", "subtype": "noise", "text": "y" * 500}) + "\n"
    result = {"type": "result", "subtype": "success", "is_error": False, "structured_output": report()}
    row = await estate.finished(look(), {"raw": frame, "times": lines}, {"raw": json.dumps(result)}, {"exit": 0})
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("success", "structured", "healthy")
    assert Path(estate.log_path(1)).read_bytes().count(b'"noise"') == lines


async def test_row_06_early_result_is_not_the_last_one(estate: Estate) -> None:
    early = {"result": {"result": "The subagent is under way.", "num_turns": 1, "total_cost_usd": 0.002}}
    late = {"result": {"structured_output": report(), "num_turns": 4, "total_cost_usd": 0.03, "result_index": 1}}
    row = await estate.finished(early, look(), late, {"await_eof": True})
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("success", "structured", "healthy")
    assert (row["num_turns"], row["cost_usd"]) == (4, 0.03)
    assert len(estate.rows("SELECT * FROM service_checks")) == 1


async def test_row_06_background_tasks_are_switched_off(estate: Estate) -> None:
    await estate.finished({"tell": str(estate.root)}, look(), deliver(report()))
    (told,) = [json.loads(path.read_text()) for path in estate.root.glob("*-*.json")]
    assert told["environment"]["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"


@pytest.mark.parametrize(
    ("said", "category", "kind"),
    [
        ({"api_error_status": 529, "result": "API Error: 529 Overloaded"}, "api", "overloaded"),
        ({"api_error_status": 400, "result": "Credit balance is too low"}, "api", "billing"),
        ({"result": "API Error: 500 Internal server error"}, "api", "other"),
        ({"result": "Not logged in · Please run /login"}, "api", "auth"),
    ],
    ids=["status", "credit", "words", "login"],
)
async def test_row_07_api_error_reported_as_success(
    estate: Estate, said: dict[str, object], category: str, kind: str
) -> None:
    nothing = {"usage": {"input_tokens": 0, "output_tokens": 0}, "total_cost_usd": 0}
    row = await estate.finished(look(), {"result": {"is_error": True, **nothing, **said}}, {"exit": 0})
    assert (row["outcome"], row["decision_reason"], row["exit_code"]) == ("error", "session_failed", 0)
    assert (row["error_category"], row["failure_kind"]) == (category, kind)


async def test_row_07_not_even_without_the_error_flag_is_it_healthy(estate: Estate) -> None:
    nothing = {"usage": {"input_tokens": 0, "output_tokens": 0}, "total_cost_usd": 0, "num_turns": 1}
    said = {"result": {"result": "API Error: 500 Internal server error", **nothing}}
    row = await estate.finished(said, {"await_user": True}, said, {"exit": 0})
    assert (row["extraction_method"], row["decision_reason"]) == ("none", "no_report")
    assert [event["level"] for event in estate.rows("SELECT level FROM events")] == ["critical"]


async def test_row_13_new_kinds_of_frames(estate: Estate) -> None:
    unheard_of: list[Mapping[str, object]] = [
        {"frame": {"type": "quantum_event", "payload": {"nested": [1, 2, {"deep": None}]}}},
        {"frame": {"type": "system", "subtype": "not_invented_yet"}},
        {"frame": {"type": "tool_progress", "tool_use_id": "toolu_0", "elapsed_time_seconds": 3}},
        {"frame": {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}},
        {"frame": {"type": "assistant", "message": {"content": [{"type": "hologram", "data": "…"}]}}},
        {"frame": {"type": "assistant", "message": "no object at all"}},
        {"frame": {"type": 7}},
    ]
    row = await estate.finished(*unheard_of, {"raw": "[1]\n\n"}, look(), deliver(report()))
    assert (row["outcome"], row["decision_reason"]) == ("success", "healthy")
    assert int(str(row["unknown_frames"])) >= 1
    logged = Path(estate.log_path(1)).read_text()
    assert all(word in logged for word in ("quantum_event", "not_invented_yet", "hologram"))


async def test_row_13_wide_characters_and_lines_of_megabytes(estate: Estate) -> None:
    """At 3 bytes a character, every way to cut the stream cuts some of them in two."""
    spoken = "網路服務正常。" * 200_000
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": spoken}]}}
    raw = {"raw": json.dumps(said, ensure_ascii=False) + "\n"}
    row = await estate.finished(raw, look(), deliver(report(summary="網路服務正常, 磁碟也是。")))
    assert (row["outcome"], row["malformed_lines"]) == ("success", 0)
    assert row["summary"] == "網路服務正常, 磁碟也是。"
    assert spoken in Path(estate.log_path(1)).read_text()
