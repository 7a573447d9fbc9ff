"""Whole chains: the installed command, the real CLI, the scripted model, and then what the database says."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.operating import DUMMY_KEY, Operator, conclude, look, operator, say
from support.waiting import until

pytestmark = pytest.mark.anyio

TIER_BY_MODEL = {"haiku": 1, "sonnet": 2, "opus": 3}


def ladder(node: Operator) -> list[tuple[object, object, object]]:
    return [(row["tier"], row["outcome"], row["decision_reason"]) for row in node.sessions()]


async def test_a_healthy_estate_takes_one_session_and_nothing_is_left_of_it_but_its_evidence_and_its_log(
    tmp_path: Path,
) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        done = await node.bootstrap()
        assert node.processes_of_sessions() == []
    assert node.workspaces_left() == []
    assert sorted(path.suffix for path in (tmp_path / "results").iterdir()) == [".index", ".ndjson", ".stderr"]
    assert (done.code, ladder(node)) == (0, [(1, "success", "healthy")]), done.stderr
    (session,) = node.sessions()
    assert session["extraction_method"] == "structured"
    assert isinstance(session["cost_usd"], float)
    assert session["cost_usd"] > 0
    assert [(row["service"], row["status"]) for row in node.rows("SELECT * FROM service_checks")] == [
        ("web", "healthy")
    ]
    assert [(row["service"], row["category"], row["confidence"]) for row in node.rows("SELECT * FROM memories")] == [
        ("web", "timing", 0.7)
    ]
    calls = node.rows("SELECT tool_name, verdict, is_error, ended_at FROM tool_calls ORDER BY id")
    assert [(call["tool_name"], call["verdict"]) for call in calls] == [
        ("Bash", "allow"),
        ("StructuredOutput", "allow"),
    ]
    assert all(call["ended_at"] is not None for call in calls)
    assert Path(str(session["log_path"])).name == "session-000001.ndjson"


async def test_three_tiers_are_one_chain_and_hand_over_reason_findings_failed_checks_and_status(
    tmp_path: Path,
) -> None:
    down = [look(), conclude(needed=True, status="down")]
    async with operator(tmp_path, haiku=down, sonnet=down, opus=[look(), conclude()]) as node:
        done = await node.bootstrap()
        asked = node.api.traffic.main("sonnet")[0]
    climbed = [(1, "success", "escalated"), (2, "success", "escalated"), (3, "success", "healthy")]
    assert (done.code, ladder(node)) == (0, climbed), done.stderr
    assert [row["root_session_id"] for row in node.sessions()] == [1, 1, 1]
    assert [row["parent_session_id"] for row in node.sessions()] == [None, 1, 2]
    for line in (
        "Escalation reason: web answers 502",
        "Investigation findings: its upstream is gone",
        "Failed checks: web http",
        "Service status: ",
    ):
        assert line in asked.system_text


async def test_the_top_of_the_ladder_is_unresolved_and_critical(tmp_path: Path) -> None:
    down = [look(), conclude(needed=True, status="down")]
    async with operator(tmp_path, haiku=down, sonnet=down) as node:
        done = await node.bootstrap(CLAUDEOPS_MAX_TIER="2")
    assert (done.code, ladder(node)) == (1, [(1, "success", "escalated"), (2, "success", "max_tier")])
    assert [level for level, _ in node.events()].count("critical") == 1


async def test_a_report_that_was_forgotten_is_delivered_in_the_repair_turn(tmp_path: Path) -> None:
    steps = [look(), say("All is well."), say("Really."), conclude()]
    async with operator(tmp_path, haiku=steps) as node:
        done = await node.bootstrap()
    assert done.code == 0, done.stderr
    assert node.sessions()[0]["extraction_method"] == "structured"


async def test_markers_are_the_last_resort_and_no_proof_of_health(tmp_path: Path) -> None:
    text = "[EVENT:warning:web] web is slow\n[MEMORY:timing:web] web needs 2 s on Mondays\n\nThat is all."
    async with operator(tmp_path, haiku=[look(), say(text, times=20)]) as node:
        done = await node.bootstrap()
    assert (done.code, node.sessions()[0]["extraction_method"]) == (1, "markers")
    assert node.sessions()[0]["decision_reason"] == "no_evidence"
    assert ("warning", "web is slow") in node.events()


async def test_a_report_that_breaks_the_schema_is_never_read_as_healthy(tmp_path: Path) -> None:
    broken = {"report": {"summary": "all is well"}, "times": 20}
    async with operator(tmp_path, haiku=[look(), broken], sonnet=[look(), broken]) as node:
        done = await node.bootstrap(CLAUDEOPS_MAX_TIER="2")
    assert [row["extraction_method"] for row in node.sessions()] == ["salvaged", "salvaged"]
    assert [(row["tier"], row["decision_reason"]) for row in node.sessions()] == [(1, "escalated"), (2, "max_tier")]
    assert done.code == 1
    assert ("warning", "all is well") in node.events()
    assert "critical" in [level for level, _ in node.events()]


@pytest.mark.long
async def test_a_session_whose_every_call_was_denied_proves_nothing(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look("docker restart web"), conclude()]) as node:
        done = await node.bootstrap()
    assert (done.code, ladder(node)) == (1, [(1, "success", "no_evidence")])
    (call,) = node.rows("SELECT * FROM tool_calls WHERE tool_name = 'Bash'")
    assert call["verdict"] == "deny"


@pytest.mark.long
async def test_an_api_error_is_a_failed_session_with_its_category(tmp_path: Path) -> None:
    refused = {"error": {"status": 400, "message": "credit balance is too low"}, "times": 20}
    async with operator(tmp_path, haiku=[refused]) as node:
        done = await node.bootstrap()
    session, retry = node.sessions()
    assert (done.code, session["outcome"], session["error_category"]) == (75, "error", "api")
    assert session["failure_kind"] == "billing"
    assert session["decision_reason"] == "session_failed"
    assert (retry["trigger"], retry["status"]) == ("retry", "queued")


async def test_a_refused_key_ends_the_session_at_once_instead_of_after_minutes(tmp_path: Path) -> None:
    refused = {"error": {"status": 401, "message": "invalid x-api-key"}, "times": 50}
    async with operator(tmp_path, haiku=[refused]) as node:
        done = await node.bootstrap()
        asked = len(node.api.traffic.main("haiku"))
    session, retry = node.sessions()
    assert retry["status"] == "queued"
    assert [level for level, _ in node.events()].count("critical") == 1
    assert (done.code, session["outcome"], session["error_category"], session["failure_kind"]) == (
        75,
        "error",
        "auth",
        "auth",
    )
    assert asked <= 3


async def test_dry_run_stops_a_direct_start_at_a_higher_tier_too(tmp_path: Path) -> None:
    async with operator(tmp_path, opus=[look(), conclude()]) as node:
        done = await node.bootstrap("--tier", "3", CLAUDEOPS_DRY_RUN="true")
    assert (done.code, node.sessions()) == (1, [])
    ((_, message),) = node.events()
    assert "dry run" in str(message)
    assert node.api.requests == []


async def test_a_start_above_the_highest_tier_leaves_an_event(tmp_path: Path) -> None:
    async with operator(tmp_path, opus=[look(), conclude()]) as node:
        done = await node.bootstrap("--tier", "3", CLAUDEOPS_MAX_TIER="2")
    assert (done.code, node.sessions()) == (1, [])
    assert "critical" in [level for level, _ in node.events()]


async def test_an_ad_hoc_prompt_belongs_to_the_first_session_whatever_its_tier(tmp_path: Path) -> None:
    down = [look(), conclude(needed=True, status="down")]
    async with operator(tmp_path, sonnet=down, opus=[look(), conclude()]) as node:
        done = await node.bootstrap("--tier", "2", "--prompt", "Why is the cache cold?")
        asked = {tier: node.api.traffic.main(tier)[0].system_text for tier in ("sonnet", "opus")}
    assert done.code == 0, done.stderr
    assert [row["prompt_text"] for row in node.sessions()] == ["Why is the cache cold?", None]
    assert "Why is the cache cold?" in asked["sonnet"]
    assert "Why is the cache cold?" not in asked["opus"]
    assert "Why is the cache cold?" not in done.stderr
    assert "You are tier" not in done.stderr


async def test_the_json_envelope_is_one_document(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as node:
        done = await node.bootstrap("--output-format", "json", "--prompt", "look at web")
    document = done.document
    assert {key: document[key] for key in ("command", "exit_code", "sysexit", "output_format", "schema_version")} == {
        "command": "bootstrap",
        "exit_code": 0,
        "sysexit": 0,
        "output_format": "json",
        "schema_version": "1.0",
    }
    assert document["turn"] == {
        "prompt": "look at web",
        "output": "Looked at web and wrote down what was there.",
        "stop_reason": "completed",
        "cancel_observed": False,
    }
    assert Path(str(document["persisted_session_path"])).exists()


async def test_no_secret_and_no_prompt_is_in_any_argument_list_or_environment_of_a_session(tmp_path: Path) -> None:
    steps = [look("sleep 30"), conclude()]
    async with operator(tmp_path, haiku=steps) as node, node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0"):
        await node.until("SELECT * FROM tool_calls", lambda rows: len(rows) > 0)
        await until(lambda: any("sleep" in told for told in node.told_to_sessions()))
        told = node.told_to_sessions()
    assert not any(DUMMY_KEY in text for text in told)
    assert not any("You are tier 1" in text or "Environment of this session" in text for text in told)
    written = [path.read_text() for path in (tmp_path / "results").iterdir()]
    assert written
    assert not any(DUMMY_KEY in text for text in written)
