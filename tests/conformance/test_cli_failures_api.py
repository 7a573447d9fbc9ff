"""Known failures of headless CLI sessions: refused or limited by the model API, counted wrongly by the CLI."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from claudeops.domain.holds import Hold, HoldKind
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.control import StopControl
from claudeops.engine.meter.availability import Availability
from claudeops.engine.meter.meter import MeterDeps, serve_meter
from claudeops.engine.meter.upstream import ModelUpstream
from claudeops.engine.session.runner import SessionRunner
from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import serve
from claudeops.structs import replace
from claudeops.text.redact import Redactor
from support.aftermath import assert_settled
from support.caged import caged
from support.estate import Estate, deliver, look, report
from support.waiting import until_it

pytestmark = pytest.mark.anyio


def retried(status: int, error: str, attempt: int = 1) -> dict[str, object]:
    told = {"attempt": attempt, "max_retries": 10, "retry_delay_ms": 500, "error_status": status, "error": error}
    return {"frame": {"type": "system", "subtype": "api_retry", **told}}


def refused(status: int, text: str) -> dict[str, object]:
    """Return the result line of a session that never got an answer."""
    return {"result": {"is_error": True, "api_error_status": status, "result": text, "usage": {}, "total_cost_usd": 0}}


async def held(estate: Estate) -> dict[HoldKind, Hold]:
    return {hold.kind: hold for hold in await estate.store.holds.standing(estate.context.clock.now())}


async def may_start(estate: Estate) -> bool:
    """Queue a session and say whether a claim would get one; the session is not begun."""
    await estate.queue()
    claimed = await estate.store.claims.claim(
        estate.owner,
        rules=estate.context.rules,
        now=estate.context.clock.now(),
        cli_session_id=lambda: "none",
        log_path=estate.log_path,
    )
    return len(claimed) > 0


@asynccontextmanager
async def listening(estate: Estate) -> AsyncIterator[None]:
    """Have the daemon hear at once what a session's stream says about the model API."""
    availability = Availability(holds=estate.store.holds, clock=estate.context.clock, log=estate.context.log)
    estate.with_context(availability=availability)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(availability.run)
        yield
        tasks.cancel_scope.cancel()


async def test_row_14_retries_of_the_cli_are_over_after_minutes_and_ours_go_on(estate: Estate) -> None:
    overloaded = refused(529, "API Error: 529 Overloaded")
    row = await estate.finished(*(retried(529, "overloaded", n) for n in range(1, 4)), overloaded)
    assert (row["outcome"], row["failure_kind"], row["api_retries"]) == ("error", "overloaded", 3)
    assert row["decision_reason"] == "session_failed"
    (again,) = estate.rows("SELECT * FROM sessions WHERE status = 'queued'")
    assert (again["trigger"], again["parent_session_id"]) == ("retry", 1)
    until = (await held(estate))[HoldKind.PARKED].until
    assert until is not None
    assert until > estate.context.clock.now()
    assert not await may_start(estate)


async def test_row_14_the_clis_own_long_retries_are_not_stacked_on_ours(estate: Estate) -> None:
    await estate.finished({"tell": str(estate.root)}, look(), deliver(report()))
    (start,) = [json.loads(path.read_text()) for path in estate.root.glob("*-*.json")]
    assert "CLAUDE_CODE_RETRY_WATCHDOG" not in start["environment"]


async def test_row_15_plan_limit_parks_until_its_reset_time(estate: Estate) -> None:
    resets_at = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    info = {"status": "rejected", "rateLimitType": "five_hour", "resetsAt": int(resets_at.timestamp())}
    limited = {"frame": {"type": "rate_limit_event", "rate_limit_info": info}}
    text = {"result": {"result": "You've hit your limit · resets 8pm", "num_turns": 1, "usage": {}, "is_error": True}}
    row = await estate.finished(limited, text)
    assert (row["outcome"], row["failure_kind"], row["decision_reason"]) == ("error", "rate_limit", "session_failed")
    until = (await held(estate))[HoldKind.PARKED].until
    assert until is not None
    assert timedelta(0) <= until - resets_at <= timedelta(seconds=30)
    assert not await may_start(estate)


async def test_row_16_credentials_that_are_refused_stop_all_spawns_with_one_alarm(estate: Estate) -> None:
    """No clock of ours could end these: the CLI would go on trying, and is stopped by what it says."""
    far = replace(estate.context.timeouts, session=300, startup=300, silence=300)
    estate.with_context(timeouts=far, repair_turn=False)
    async with listening(estate):
        first = await estate.run(retried(401, "authentication_failed"), {"hang": True})

        async def is_open() -> bool:
            return HoldKind.BREAKER in await held(estate)

        await until_it(is_open)
        await estate.store.queue.finish(first, rules=estate.context.rules)
    row = estate.row(first.session_id)
    assert (row["outcome"], row["failure_kind"], row["error_category"]) == ("error", "auth", "auth")
    assert not await may_start(estate)
    critical = estate.rows("SELECT fingerprint, count FROM events WHERE level = 'critical'")
    assert critical == [{"fingerprint": "hold:breaker", "count": 1}]


async def test_row_28_cost_ten_times_wrong(estate: Estate) -> None:
    """What was served is what is booked; what the CLI says beside it is a warning."""
    script = Script.from_mapping({"tiers": {"haiku": {"steps": [{"text": "I look."}]}}})
    async with serve(script) as api:
        books = MeterDeps(
            spending=estate.store.spending,
            rules=estate.context.rules,
            clock=estate.context.clock,
            log=estate.context.log,
            redactor_with=lambda secret: Redactor((secret,)),
        )
        async with serve_meter(ModelUpstream(base_url=api.url, secret="sk-ant-key"), books) as meter:
            estate.with_context(meter=meter)
            asking = {"ask_model": {"model": "claude-haiku-4-5", "stream": True}}
            result = {"result": {"structured_output": report(), "total_cost_usd": 10.0}}
            row = await estate.finished(asking, look(), result)
        served = api.traffic.tokens()
    (call,) = estate.rows("SELECT * FROM model_calls")
    assert (call["input_tokens"], call["output_tokens"]) == (served.input_tokens, served.output_tokens)
    assert (row["outcome"], row["cost_usd"]) == ("success", call["cost_usd"])
    assert 0 < float(str(row["cost_usd"])) < 1
    assert "cost-differs: the CLI says 10.000000 USD" in str(row["warnings"])


async def test_row_28_totals_of_one_process_are_not_added_up(estate: Estate) -> None:
    first, total = {"result": {"total_cost_usd": 0.02}}, deliver(report())
    total["result"] |= {"total_cost_usd": 0.03}  # type: ignore[operator]  # a dictionary
    row = await estate.finished(look(), first, {"await_user": True}, total)
    assert row["cost_usd"] == 0.03
    entries = estate.rows("SELECT kind, amount_usd FROM budget_entries WHERE kind = 'settled'")
    assert [entry["amount_usd"] for entry in entries] == [0.03]


async def test_row_29_nothing_depends_on_what_the_cli_exports(estate: Estate) -> None:
    """Figures come from the stream; the CLI is not even asked to export any."""
    row = await estate.finished({"tell": str(estate.root)}, look(), deliver(report()))
    (start,) = [json.loads(path.read_text()) for path in estate.root.glob("*-*.json")]
    assert [name for name in start["environment"] if "OTEL" in name or name == "CLAUDE_CODE_ENABLE_TELEMETRY"] == []
    figures = [row[name] for name in ("duration_ms", "num_turns", "input_tokens", "output_tokens", "cost_usd")]
    assert None not in figures
    (call,) = estate.rows("SELECT requested_at, decided_at, ended_at FROM tool_calls")
    assert None not in call.values()


async def test_row_29_a_chain_is_one_trace_and_the_log_names_it(estate: Estate) -> None:
    """What a session starts can be joined to it, and the tiers of a chain to each other."""
    estate.script({"tell": str(estate.root)}, look(), deliver(report(needed=True, status="down")))
    await estate.queue()
    for _ in range(2):
        ending = await SessionRunner(context=estate.context).run(await estate.claim(), StopControl())
        await estate.store.queue.finish(ending, rules=estate.context.rules)

    first, second = (str(row["cli_session_id"]) for row in estate.rows("SELECT * FROM sessions ORDER BY id LIMIT 2"))
    told = [json.loads((estate.root / f"{name}.json").read_text())["environment"] for name in (first, second)]
    trace = first.replace("-", "")
    spans = [name.replace("-", "")[16:] for name in (first, second)]
    assert [environment["TRACEPARENT"] for environment in told] == [f"00-{trace}-{span}-01" for span in spans]
    logged = [line for line in map(json.loads, estate.logged.getvalue().splitlines()) if "trace_id" in line]
    assert [(line["event"], line["trace_id"], line["span_id"]) for line in logged] == [
        ("session_spawned", trace, span) for span in spans
    ]


async def test_row_33_first_call_carries_no_more_than_is_asked_for_and_keeps_its_prefix(tmp_path: Path) -> None:
    """The real CLI, twice, in other directories: the same tools, and the same text before what is the session's own.

    The model API's cache is keyed by what a request begins with.
    """
    ours = "# Environment of this session"
    tools, prefixes = [], []
    for name in ("first", "second"):
        async with caged(tmp_path / name, IsolationLevel.NONE, "uptime") as cage:
            ending = await cage.run()
            await cage.estate.store.queue.finish(ending, rules=cage.estate.context.rules)
            assert_settled(cage.estate)
            asked = cage.api.traffic.main("haiku")[0]
        text, separator, _ = asked.system_text.partition(ours)
        assert separator, "what the session is told of itself comes last"
        prefixes.append(text)
        tools.append(asked.body["tools"])
    assert len(prefixes[0]) > 1000
    assert prefixes[0] == prefixes[1]
    assert tools[0] == tools[1]
    assert isinstance(tools[0], list)
    assert {tool["name"] for tool in tools[0]} <= {"Bash", "Read", "StructuredOutput", "DeferredToolPlaceholder"}
