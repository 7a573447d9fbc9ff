"""Known failures of headless CLI sessions: those that do not end, or end without saying so."""

from __future__ import annotations

import json

import anyio
import pytest

from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.sessions import Outcome
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.structs import replace
from support.aftermath import runs
from support.estate import Estate, deliver, look, report
from support.waiting import until

pytestmark = pytest.mark.anyio

DEAF: dict[str, object] = {"ignore": ["SIGTERM", "SIGINT", "interrupt"]}


def clocks(estate: Estate, **changes: float) -> None:
    """Set clocks, in seconds; those that are not named are far longer than the test."""
    far = {"session": 300.0, "startup": 300.0, "silence": 300.0, "result_grace": 300.0, "stop_grace": 1.0}
    estate.with_context(timeouts=replace(estate.context.timeouts, **{**far, **changes}))


def saying(text: str) -> dict[str, object]:
    """Return a step: the model says a text."""
    return {"frame": {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}}


def calling(tool_id: str, name: str = "Bash") -> dict[str, object]:
    """Return a step: a call is shown, and nothing more of it."""
    use = {"type": "tool_use", "id": tool_id, "name": name, "input": {"command": "uptime"}}
    return {"frame": {"type": "assistant", "message": {"content": [use]}}}


async def test_row_01_process_stays_alive_after_the_result(estate: Estate) -> None:
    clocks(estate, result_grace=0.2)
    row = await estate.finished(DEAF, look(), deliver(report()), {"hang": True})
    assert (row["outcome"], row["decision_reason"], row["cost_usd"]) == ("success", "healthy", 0.01)
    assert row["exit_code"] == -9


async def test_row_02_no_result_ever_and_a_silent_stream(estate: Estate) -> None:
    clocks(estate, silence=0.4)
    row = await estate.finished(look(), saying("web answers, I go on to the disk"), DEAF, {"hang": True})
    assert (row["outcome"], row["error_category"], row["decision_reason"]) == ("stalled", "timeout", "session_failed")
    assert row["last_assistant_text"] == "web answers, I go on to the disk"
    assert row["cost_usd"] is None, "what nobody said is not free"
    assert [again["trigger"] for again in estate.rows("SELECT * FROM sessions WHERE status = 'queued'")] == ["retry"]


async def test_row_02_no_result_ever_and_a_quiet_exit(estate: Estate) -> None:
    row = await estate.finished(look(), saying("all is well"), {"exit": 0})
    assert (row["outcome"], row["exit_code"], row["decision_reason"]) == ("no_result", 0, "session_failed")
    assert estate.rows("SELECT * FROM service_checks") == []


async def test_row_03_stdout_stops_while_the_session_goes_on_in_its_own_transcript(estate: Estate) -> None:
    clocks(estate, silence=2)
    grow = {"grow": "x" * 100, "every": 0.2, "times": 15}
    row = await estate.finished(look(), grow, deliver(report()))
    assert (row["outcome"], row["decision_reason"]) == ("success", "healthy")


async def test_row_04_start_up_hangs_with_zero_output(estate: Estate) -> None:
    clocks(estate, startup=0.4)
    row = await estate.finished(DEAF, {"hang": True})
    assert (row["outcome"], row["error_category"], row["decision_reason"]) == (
        "startup_timeout",
        "timeout",
        "session_failed",
    )
    assert estate.frames() == []


async def test_row_04_stdin_is_never_inherited(estate: Estate) -> None:
    await estate.finished({"tell": str(estate.root)}, look(), deliver(report()))
    (told,) = [json.loads(path.read_text()) for path in estate.root.glob("*-*.json")]
    assert told["stdin_is_a_socket"]


async def test_row_12_session_goes_on_after_its_report_was_given(estate: Estate) -> None:
    clocks(estate, result_grace=0.4)
    endless = {"repeat": saying("let me look once more"), "every": 0.02}
    row = await estate.finished(look(), deliver(report()), endless)
    assert (row["outcome"], row["extraction_method"], row["decision_reason"]) == ("success", "structured", "healthy")


async def test_row_12_one_that_never_gives_its_result_meets_the_wall_clock(estate: Estate) -> None:
    clocks(estate, session=1.5)
    given = {"type": "tool_use", "id": "toolu_7", "name": "StructuredOutput", "input": report()}
    delivered = {"frame": {"type": "assistant", "message": {"content": [given]}}}
    endless = {"repeat": saying("let me look once more"), "every": 0.02}
    row = await estate.finished(look(), delivered, endless)
    assert (row["outcome"], row["extraction_method"]) == ("timeout", "salvaged")
    assert row["decision_reason"] == "session_failed", "a report does not make a session that was cut off healthy"


async def test_row_19_sigterm_in_mid_call_is_no_success(estate: Estate) -> None:
    row = await estate.finished(look(), calling("toolu_2"), {"die": "SIGTERM"})
    assert (row["outcome"], row["exit_code"], row["decision_reason"]) == ("no_result", -15, "session_failed")


async def test_row_19_exit_143_without_a_result_is_no_success(estate: Estate) -> None:
    row = await estate.finished(look(), calling("toolu_2"), {"exit": 143})
    assert (row["outcome"], row["exit_code"], row["decision_reason"]) == ("no_result", 143, "session_failed")


async def test_row_19_sigterm_that_is_ignored_is_followed_by_the_end_of_the_whole_tree(estate: Estate) -> None:
    clocks(estate)
    reached, control = estate.root / "reached", StopControl()
    estate.script(
        DEAF,
        look(),
        {"stray": str(estate.root / "stray.pid")},
        calling("toolu_2"),
        {"touch": str(reached)},
        {"hang": True},
    )
    await estate.queue()
    session = await estate.claim()

    async def stop() -> None:
        await until(reached.exists)
        control.stop(StopCause.CANCELLED)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop)
        ending = await SessionRunner(context=estate.context).run(session, control)
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    assert (ending.outcome, ending.exit_code) == (Outcome.CANCELLED, -9)
    assert not runs(int((estate.root / "stray.pid").read_text()))
