"""What a CLI prints when a model refuses, or when a report has lost its form, through a real session to its row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.estate import Estate, deliver, look, report
from support.streams import DATA

pytestmark = pytest.mark.anyio


def steps_of(name: str) -> Iterator[Mapping[str, Any]]:
    """Yield a recorded case as steps of the stand-in, which asks the gate about each call as the CLI does."""
    case = json.loads((DATA / "streams" / f"{name}.json").read_text(encoding="utf-8"))
    frames: list[dict[str, Any]] = [frame for frame in case["lines"] if frame.get("subtype") != "init"]
    results = {
        block["tool_use_id"]: block
        for frame in frames
        if frame["type"] == "user"
        for block in frame["message"]["content"]
    }
    for frame in frames:
        calls = [block for block in blocks(frame) if block["type"] == "tool_use"]
        for call in calls:
            ended = results[call["id"]]
            fails = {"fails": True} if ended.get("is_error") else {}
            yield {"tool": {**{key: call[key] for key in ("id", "name", "input")}, "output": ended["content"], **fails}}
        if not calls and frame["type"] != "user":
            yield {"frame": frame}
    yield {"exit": case.get("rc", 0)}


def blocks(frame: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(frame["message"]["content"]) if frame["type"] == "assistant" else []


def following(estate: Estate) -> list[tuple[object, ...]]:
    rows = estate.rows("SELECT * FROM sessions WHERE status = 'queued'")
    return [(row["tier"], row["model"], row["trigger"]) for row in rows]


async def test_a_report_that_is_json_text_is_read(estate: Estate) -> None:
    row = await estate.finished(*steps_of("report-as-json-text"))
    assert (row["extraction_method"], row["decision_reason"]) == ("salvaged", "escalated")
    assert row["summary"] == "web is down: 502 from the proxy."
    assert [(one["service"], one["status"]) for one in estate.rows("SELECT * FROM service_checks")] == [("web", "down")]


async def test_a_report_whose_arrays_are_markup_goes_up_a_tier_with_its_summary(estate: Estate) -> None:
    row = await estate.finished(*steps_of("report-as-tool-markup"))
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("error", "salvaged", "escalated")
    assert row["summary"] == "web is down: 502 from the proxy."
    events = [(one["level"], one["message"]) for one in estate.rows("SELECT * FROM events")]
    assert ("warning", "web is down: 502 from the proxy.") in events
    ((tier, model, _),) = following(estate)
    assert (tier, model) == (2, "sonnet")
    (waiting,) = estate.rows("SELECT * FROM sessions WHERE status = 'queued'")
    assert "the report could not be read" in str(waiting["context"])


async def test_a_refusal_goes_to_the_next_tiers_model_and_to_no_retry(estate: Estate) -> None:
    row = await estate.finished(*steps_of("model-refusal"))
    assert (row["outcome"], row["failure_kind"], row["decision_reason"]) == ("error", "refusal", "escalated")
    assert following(estate) == [(2, "sonnet", "escalation")]


async def test_a_refusal_that_is_no_error_is_not_asked_to_repair_its_report(estate: Estate) -> None:
    row = await estate.finished({"result": {"result": "I cannot help.", "stop_reason": "refusal"}}, {"await_eof": True})
    assert (row["outcome"], row["failure_kind"], row["error"]) == ("error", "refusal", "I cannot help.")
    assert following(estate) == [(2, "sonnet", "escalation")]


async def test_markers_as_people_write_them_are_events(estate: Estate) -> None:
    row = await estate.finished(*steps_of("markers-as-people-write-them"))
    assert row["extraction_method"] == "markers"
    events = {(one["level"], one["service"]) for one in estate.rows("SELECT * FROM events")}
    assert {("critical", "web"), ("critical", "10.0.0.5:8080"), ("critical", "pi-hole")} <= events
    assert "not read" not in str(row["warnings"])


async def test_a_control_request_that_is_not_known_is_answered_at_once(estate: Estate) -> None:
    asked = {"type": "control_request", "request_id": "r-9", "request": {"subtype": "mcp_message", "server_name": "x"}}
    row = await estate.finished(look(), {"frame": asked}, {"await_answer": "r-9"}, deliver(report()))
    assert row["outcome"] == "success"
    assert "control_request_unknown" in estate.logged.getvalue()
