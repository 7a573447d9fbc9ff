"""The meter under the real CLI: every model call goes through it, and what the API served is what is booked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import serve
from support.booked import Tokens
from support.operating import DUMMY_KEY, Operator, conclude, look, operator
from support.vertex import vertex
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

CALLS = "SELECT * FROM model_calls ORDER BY id"


def booked(op: Operator) -> Tokens:
    return Tokens.booked(op.rows(CALLS))


async def test_what_the_api_served_is_what_is_booked(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as op:
        done = await op.bootstrap()
        assert done.code == 0, done.stderr
        assert booked(op) == Tokens.served(op.api.traffic) != Tokens()
    calls = op.rows(CALLS)
    [session] = op.sessions()
    assert [(call["session_id"], call["http_status"], call["error"]) for call in calls] == [(1, 200, None)] * 2
    assert all(str(call["model"]).startswith("claude-haiku-") and call["ended_at"] for call in calls)
    assert session["cost_usd"] == pytest.approx(sum(float(str(call["cost_usd"])) for call in calls))
    assert session["cost_usd"]
    assert (session["input_tokens"], session["output_tokens"]) == (booked(op).input, booked(op).output)
    assert session["warnings"] in {None, "[]"}, "our price table and the CLI's own figure agree"


async def test_what_a_subagent_asks_is_booked_on_its_session(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('extends = "default"\n[tiers.1]\ntools = ["Bash", "Agent"]\n', encoding="utf-8")
    task = {"description": "look", "prompt": "Look closer.", "subagent_type": "general-purpose"}
    send: dict[str, object] = {"text": "I send somebody.", "tool": {"name": "Agent", "input": task}}
    parent = [send, look(), conclude()]
    async with operator(tmp_path, haiku=parent) as op:
        script = {"tiers": {"haiku": {"sessions": [{"steps": parent}, {"steps": [{"text": "closer it is fine"}]}]}}}
        async with serve(Script.from_mapping(script)) as op.api:
            done = await op.bootstrap(CLAUDEOPS_POLICY_PATH=str(policy))
            assert done.code == 0, done.stderr
            own, other = op.api.traffic.sessions("haiku")
            assert other.startswith(f"{own}/"), "the subagent did ask"
            assert booked(op) == Tokens.served(op.api.traffic)
            assert len(op.rows(CALLS)) == len(op.api.requests) == 4
    [session] = op.sessions()
    assert session["cost_usd"] == pytest.approx(sum(float(str(call["cost_usd"])) for call in op.rows(CALLS)))


async def test_a_session_out_of_budget_ends_at_once_and_asks_no_second_time(tmp_path: Path) -> None:
    # The first one leaves less than its CLI was told that it may spend, so that it is the meter who says no.
    dear = {**look(), "usage": {"output_tokens": 600_000}}  # 0.30 USD
    async with operator(tmp_path, haiku=[dear, conclude()]) as op:
        async with op.daemon(CLAUDEOPS_DAILY_BUDGET_USD="0.5", CLAUDEOPS_INTERVAL="1") as daemon:
            await op.until("SELECT * FROM sessions WHERE outcome = 'budget_exceeded'", lambda rows: len(rows) == 1)
            await daemon.until_logged("model_call_refused")
        assert len(op.api.requests) == 3, "the fourth was refused, and not repeated"
        assert booked(op) == Tokens.served(op.api.traffic)
    healthy, session, *_ = op.sessions()
    assert (healthy["outcome"], session["decision_reason"]) == ("success", "budget")
    assert "refused because a budget is spent: the session's budget is spent" in str(session["error"])
    assert session["failure_kind"] == "other", "an API that refused it would stop all sessions"
    [told] = op.rows("SELECT * FROM events WHERE fingerprint LIKE 'budget:%'")
    assert (told["level"], told["count"]) == ("critical", 1)


async def test_a_spent_day_parks_the_queue_and_says_so_once(tmp_path: Path) -> None:
    dear = {**look(), "usage": {"output_tokens": 1_000_000}}
    async with operator(tmp_path, haiku=[dear, conclude()]) as op:
        async with op.daemon(CLAUDEOPS_DAILY_BUDGET_USD="0.5", CLAUDEOPS_INTERVAL="1"):
            await op.until("SELECT * FROM flags WHERE name = 'budget'", lambda rows: len(rows) == 1)
            await op.until("SELECT * FROM schedule_fires", lambda rows: len(rows) >= 3)
        assert len(op.api.requests) == 1
        ended = [session for session in op.sessions() if session["status"] == "ended"]
        assert len(ended) == 1
    [told] = op.rows("SELECT * FROM events WHERE fingerprint = 'hold:budget'")
    assert (told["level"], told["count"]) == ("critical", 1)


async def test_a_daemon_killed_in_mid_answer_has_booked_what_was_said(tmp_path: Path) -> None:
    silent = {"text": "I begin to think.", "hang": True}
    async with operator(tmp_path, haiku=[look(), silent]) as op:
        async with op.daemon() as daemon:
            await op.until(CALLS, lambda rows: len(rows) == 2 and rows[1]["input_tokens"] is not None)
            os.kill(daemon.process.pid, signal.SIGKILL)
            await daemon.process.wait()
            with anyio.fail_after(PATIENCE_SECONDS):
                await op.api.wait_for(lambda traffic: len(traffic.served) == 2)
        [first, second] = op.rows(CALLS)
        assert first["ended_at"] is not None
        assert (second["ended_at"], second["http_status"]) == (None, 200)
        assert booked(op) == Tokens.served(op.api.traffic)

        async with op.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0") as again:
            await again.until_logged("sessions_reconciled")
            await op.until("SELECT * FROM sessions WHERE outcome = 'lost'", lambda rows: len(rows) == 1)
            # What was left of the session had no way to the API while nobody ran the meter.
            assert len(op.api.traffic.main(session=op.api.requests[0].session)) == 2
        lost, *_ = op.sessions()
        calls = op.rows("SELECT * FROM model_calls WHERE session_id = 1 ORDER BY id")
        assert all(call["ended_at"] for call in calls)
        assert lost["cost_usd"] == pytest.approx(sum(float(str(call["cost_usd"])) for call in calls))
        entries = op.rows("SELECT kind, amount_usd FROM budget_entries WHERE session_id = 1 ORDER BY id")
        assert [entry["kind"] for entry in entries] == ["reserved", "released", "settled"]


async def test_a_session_has_a_token_and_not_the_key(tmp_path: Path) -> None:
    steps = [look("sleep 600"), conclude()]
    async with operator(tmp_path, haiku=steps) as op, op.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0"):
        await op.until("SELECT * FROM tool_calls WHERE ended_at IS NULL", lambda rows: len(rows) == 1)
        told = "\n".join(op.told_to_sessions())
        assert "ANTHROPIC_BASE_URL=http://127.0.0.1:" in told
        assert op.api.url not in told
        assert DUMMY_KEY not in told
    assert op.api.traffic.mentioning(DUMMY_KEY) == []


@pytest.mark.parametrize("status", [529, pytest.param(401, marks=pytest.mark.long)])
async def test_an_error_of_the_api_reaches_the_cli_as_it_is(tmp_path: Path, status: int) -> None:
    refused = {"error": {"status": status, "message": "no", "headers": {"x-should-retry": "false"}}, "times": 30}
    async with operator(tmp_path, haiku=[refused]) as op:
        await op.bootstrap()
        calls = op.rows(CALLS)
        assert {call["http_status"] for call in calls} == {status}
        assert len(calls) == len(op.api.requests)
        assert all(call["charged_usd"] == 0 for call in calls)
    session, *_ = op.sessions()
    assert session["failure_kind"] == {401: "auth", 529: "overloaded"}[status]


async def test_without_the_meter_the_session_is_run_as_before_and_that_is_said(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as op:
        done = await op.bootstrap(CLAUDEOPS_METER="off")
        assert done.code == 0, done.stderr
        assert '"meter_off"' in done.stderr
    assert op.rows(CALLS) == []
    [session] = op.sessions()
    assert session["cost_usd"]
    entries = op.rows("SELECT kind, amount_usd FROM budget_entries ORDER BY id")
    assert [entry["kind"] for entry in entries] == ["reserved", "released", "settled"]
    assert entries[-1]["amount_usd"] == pytest.approx(session["cost_usd"])


async def test_without_the_meter_a_cli_is_told_what_was_reserved_for_its_session(tmp_path: Path) -> None:
    dear = {**look(), "usage": {"output_tokens": 600_000}}  # 0.30 USD of the 0.50 that a session of this tier may spend
    async with operator(tmp_path, haiku=[dear, conclude()]) as op:
        async with op.daemon(CLAUDEOPS_METER="off", CLAUDEOPS_DAILY_BUDGET_USD="0.5", CLAUDEOPS_INTERVAL="1"):
            await op.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) == 2)
        assert len(op.api.requests) == 3, "the second session had 0.20 left, and began nothing beyond it"
    first, second, *_ = op.sessions()
    assert (first["outcome"], second["outcome"]) == ("success", "budget_exceeded")
    reserved = op.rows("SELECT amount_usd FROM budget_entries WHERE kind = 'reserved' AND session_id = 2")
    assert [row["amount_usd"] for row in reserved] == [pytest.approx(0.2, abs=0.001)]


async def test_without_the_meter_another_provider_may_be_asked_and_needs_none_of_our_credentials(
    tmp_path: Path,
) -> None:
    names = ("CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "ANTHROPIC_VERTEX_PROJECT_ID")
    async with operator(tmp_path, haiku=[look(), conclude()]) as op, vertex(op.api) as provider:
        done = await op.bootstrap(
            ANTHROPIC_API_KEY="",
            ANTHROPIC_BASE_URL="",
            CLAUDEOPS_METER="off",
            CLAUDEOPS_MAX_TIER="1",
            CLAUDEOPS_TIER1_MODEL="claude-haiku-4-5@20251001",
            CLAUDEOPS_TIER1_ENV=",".join((*names, "ANTHROPIC_VERTEX_BASE_URL", "CLOUD_ML_REGION")),
            ANTHROPIC_VERTEX_BASE_URL=provider.url,
            CLOUD_ML_REGION="us-east5",
            **dict(zip(names, ("1", "1", "estate"), strict=True)),
        )
    assert done.code == 0, done.stderr
    assert provider.projects == ["estate"] * 2
    assert provider.credentials == []
    [session] = op.sessions()
    assert (session["outcome"], session["decision_reason"]) == ("success", "healthy")
    assert session["cost_usd"], "the CLI knows what its provider takes"
