"""One session with a CLI that behaves and one that does not; every clock, every way to lose a line or a process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from claudeops.domain.actions import TOO_LATE
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.report.report import ExtractionMethod
from claudeops.domain.sessions import Ending, Outcome
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.structs import replace
from support.aftermath import runs
from support.estate import Estate, deliver, look, report
from support.loop_time import LeapingClock, loop_time
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio


def clocks(estate: Estate, **changes: float) -> None:
    estate.with_context(timeouts=replace(estate.context.timeouts, **changes))


async def test_a_healthy_session_leaves_its_row_its_log_and_nothing_else(estate: Estate) -> None:
    row = await estate.finished(look(), deliver(report()))
    assert (row["outcome"], row["decision_reason"], row["extraction_method"]) == ("success", "healthy", "structured")
    assert (row["cost_usd"], row["input_tokens"], row["exit_code"]) == (0.01, 100, 0)
    assert [frame["type"] for frame in estate.frames()] == ["assistant", "control_request", "user", "result"]
    assert not list((estate.root / "state" / "sessions").glob("*"))
    index = Path(estate.log_path(1)).with_suffix(".index").read_text().splitlines()
    assert [line.split("\t")[0] for line in index] == ["1", "2", "3", "4"]


async def test_ids_and_log_path_are_in_the_row_before_anything_is_spawned(estate: Estate) -> None:
    await estate.queue()
    session = await estate.claim()
    row = estate.row(session.id)
    assert row["status"] == "running"
    assert row["cli_session_id"] == session.cli_session_id
    assert row["log_path"] == estate.log_path(session.id)
    assert not Path(str(row["log_path"])).exists()


async def test_a_denied_call_is_answered_recorded_and_no_evidence(estate: Estate) -> None:
    estate.with_judge(lambda _call, _workspace: Verdict(kind=VerdictKind.DENY, reason="not in this test"))
    row = await estate.finished(look(), deliver(report()))
    assert row["decision_reason"] == "no_evidence"
    (call,) = estate.rows("SELECT * FROM tool_calls")
    assert (call["verdict"], call["reason"], call["is_error"]) == ("deny", "not in this test", 1)


async def test_two_gate_requests_with_one_number_end_no_session(estate: Estate) -> None:
    asked = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "id"}}
    request = {"subtype": "hook_callback", "callback_id": "gate", "input": asked, "tool_use_id": "toolu_8"}
    frame = json.dumps({"type": "control_request", "request_id": "twice", "request": request}) + "\n"
    ran = {"tool": {"id": "toolu_8", "name": "Bash", "input": {"command": "id"}, "output": "uid=0", "ungated": True}}
    # The call ends before the result: one that is allowed and open then would be a reason not to believe it.
    steps = ({"raw": frame, "times": 2}, {"await_answer": "twice"}, ran, deliver(report()), {"await_eof": True})
    row = await estate.finished(*steps)
    assert row["outcome"] == "success"
    assert "session_crashed" not in estate.logged.getvalue()
    rows = estate.rows("SELECT verdict, reason FROM tool_calls WHERE tool_use_id = 'toolu_8'")
    # The report comes on their heels: a yes that nobody waited for any more is taken back by a further row.
    told = [row["verdict"] for row in rows if row["reason"] != TOO_LATE]
    assert told in (["allow"], ["allow", "allow"])


async def test_a_call_that_ran_without_a_yes_ends_the_session(estate: Estate) -> None:
    step = {"tool": {"id": "toolu_9", "name": "Bash", "input": {"command": "id"}, "ungated": True}}
    row = await estate.finished(step, {"hang": True})
    assert row["outcome"] == "ungated_call"
    assert estate.rows("SELECT level FROM events WHERE message LIKE '%without the gate%'")[0]["level"] == "critical"


async def test_a_cli_that_grants_itself_more_tools_is_not_talked_to(estate: Estate) -> None:
    init = {"type": "system", "subtype": "init", "permissionMode": "dontAsk", "tools": ["Bash", "Write"]}
    row = await estate.finished({"frame": init}, {"hang": True})
    assert row["outcome"] == "ungated_call"
    assert "Write" in str(estate.rows("SELECT message FROM events")[0]["message"])


async def test_a_secret_reaches_neither_log_nor_stderr_nor_row(estate: Estate) -> None:
    secret = "planted-secret-value"
    document = report(summary=f"the password is {secret} as seen in a log line")
    ending = await estate.run(look(command=f"echo {secret}"), {"stderr": f"{secret}\n"}, deliver(document))
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    written = [path.read_text() for path in (estate.root / "results").iterdir()]
    assert all(secret not in text for text in written)
    assert any("[redacted]" in text for text in written)
    dump = json.dumps([estate.rows(f"SELECT * FROM {table}") for table in ("sessions", "tool_calls")], default=str)  # noqa: S608
    assert secret not in dump
    assert secret not in estate.logged.getvalue()


async def test_the_report_is_asked_for_once_more_in_the_same_process(estate: Estate) -> None:
    row = await estate.finished(look(), {"result": {}}, {"await_user": True}, deliver(report()))
    assert (row["extraction_method"], row["decision_reason"]) == ("structured", "healthy")
    assert "repair_requested" in estate.logged.getvalue()


async def test_a_second_failed_report_is_not_asked_for_a_third_time(estate: Estate) -> None:
    text = {"type": "text", "text": "[EVENT:warning:web] slow"}
    said = {"frame": {"type": "assistant", "message": {"role": "assistant", "content": [text]}}}
    row = await estate.finished(look(), said, {"result": {}}, {"await_user": True}, {"result": {}}, {"await_eof": True})
    assert row["extraction_method"] == "markers"
    assert estate.logged.getvalue().count("repair_requested") == 1


async def test_no_repair_is_asked_for_after_an_error_result(estate: Estate) -> None:
    row = await estate.finished({"result": {"is_error": True, "result": "API Error: 400"}}, {"await_eof": True})
    assert (row["outcome"], row["error_category"]) == ("error", "api")
    assert "repair_requested" not in estate.logged.getvalue()


# --- clocks -------------------------------------------------------------------------------------------


async def test_a_cli_that_never_says_anything_is_a_startup_timeout(estate: Estate) -> None:
    clocks(estate, startup=0.4)
    row = await estate.finished({"hang": True})
    assert (row["outcome"], row["error_category"]) == ("startup_timeout", "timeout")


async def test_a_cli_that_falls_silent_is_stalled(estate: Estate) -> None:
    clocks(estate, startup=50, silence=0.4, session=60)
    with anyio.fail_after(PATIENCE_SECONDS):  # the watch must not sleep on until the start-up time is over
        row = await estate.finished({"line_of": 3}, {"hang": True})
    assert row["outcome"] == "stalled"


async def test_silence_while_a_tool_runs_is_no_stall(estate: Estate) -> None:
    clock = LeapingClock()
    estate.with_context(clock=clock)
    clocks(estate, silence=300, session=320)  # an open call has thirty seconds more than silence
    use = {"type": "tool_use", "id": "toolu_5", "name": "Bash", "input": {}}
    opened = {"frame": {"type": "assistant", "message": {"role": "assistant", "content": [use]}}}
    rows: list[dict[str, object]] = []

    async def run() -> None:
        rows.append(await estate.finished(opened, {"hang": True}))

    def is_open() -> bool:
        log = Path(estate.log_path(1))
        return log.exists() and b"toolu_5" in log.read_bytes()

    with loop_time() as time:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(is_open)
            for seconds in (301, 20):
                await clock.leap(seconds, noticed=False)
                time.leap(seconds)
    assert rows[0]["outcome"] == "timeout"


async def test_a_tool_that_does_not_come_back_is_stalled_however_alive_the_cli_says_it_is(estate: Estate) -> None:
    clocks(estate, silence=1, tool_margin=0.2)
    use = {"type": "tool_use", "id": "toolu_5", "name": "WebFetch", "input": {}}
    opened = {"frame": {"type": "assistant", "message": {"role": "assistant", "content": [use]}}}
    progress = {"frame": {"type": "tool_progress", "tool_use_id": "toolu_5", "tool_name": "WebFetch"}}
    row = await estate.finished(opened, {"repeat": progress, "every": 0.1})
    assert (row["outcome"], row["error"]) == ("stalled", "stalled: a tool call did not come back within its time")


async def test_a_cli_that_says_nothing_but_writes_its_own_transcript_is_alive(estate: Estate) -> None:
    clock, rows = LeapingClock(), list[dict[str, object]]()
    estate.with_context(clock=clock)
    clocks(estate, silence=300, session=3600)
    grown, goes_on = (
        [estate.root / f"grown-{number}" for number in range(3)],
        [estate.root / f"go-{number}" for number in range(3)],
    )
    steps: list[Mapping[str, object]] = []
    for told, awaited in zip(grown, goes_on, strict=True):
        steps += [{"grow": "x" * 100, "every": 0.01, "times": 1}, {"touch": str(told)}, {"await": str(awaited)}]

    async def run() -> None:
        rows.append(await estate.finished(look(), *steps, deliver(report())))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for told, awaited in zip(grown, goes_on, strict=True):
            await until(told.exists)
            await clock.leap(200, noticed=True)
            awaited.touch()
    assert (rows[0]["outcome"], rows[0]["decision_reason"]) == ("success", "healthy")


async def test_a_transcript_that_grew_long_ago_keeps_no_session_alive(estate: Estate) -> None:
    clocks(estate, silence=1)
    row = await estate.finished(look(), {"grow": "x", "every": 0.1, "times": 3}, {"hang": True})
    assert row["outcome"] == "stalled"


async def test_a_cli_that_lives_on_after_its_result_is_stopped_and_stays_a_success(estate: Estate) -> None:
    clocks(estate, result_grace=0.3, stop_grace=1)
    row = await estate.finished({"ignore": ["SIGTERM", "interrupt"]}, look(), deliver(report()), {"hang": True})
    assert (row["outcome"], row["decision_reason"]) == ("success", "healthy")


async def test_a_cli_that_closes_stdout_and_lives_on_is_stopped(estate: Estate) -> None:
    clocks(estate, result_grace=0.3, stop_grace=1)
    row = await estate.finished(look(), deliver(report()), {"close_stdout": True}, {"hang": True})
    assert row["outcome"] == "success"


# --- the stop ladder ----------------------------------------------------------------------------------


async def stop_when_reached(
    estate: Estate, *steps: Mapping[str, object], cause: StopCause, then: Sequence[Mapping[str, object]] = ()
) -> Ending:
    """Run the steps, stop the session once it has touched its mark, and return its ending; ``then`` it goes on."""
    reached = estate.root / "reached"
    control = StopControl()
    estate.script(*steps, {"touch": str(reached)}, *then, {"hang": True})
    await estate.queue()
    session = await estate.claim()
    ending: list[Ending] = []

    async def run() -> None:
        ending.append(await SessionRunner(context=estate.context).run(session, control))

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(reached.exists)
            control.stop(cause)
    return ending[0]


async def test_a_stopped_session_still_says_what_it_cost(estate: Estate) -> None:
    ending = await stop_when_reached(estate, look(), cause=StopCause.CANCELLED)
    assert (ending.outcome, ending.cost_usd) == (Outcome.CANCELLED, 0.01)


async def test_log_of_a_session_that_another_daemon_may_have_does_not_end_by_our_stop(estate: Estate) -> None:
    ending = await stop_when_reached(estate, look(), cause=StopCause.LEASE_OVER)
    assert (ending.outcome, ending.num_turns) == (Outcome.LOST, None)
    assert '"result"' not in Path(estate.log_path(1)).read_text(encoding="utf-8")


async def test_a_cli_that_ignores_every_request_is_killed_within_the_grace(estate: Estate) -> None:
    clocks(estate, stop_grace=0.6)
    ending = await stop_when_reached(estate, {"ignore": ["SIGTERM", "SIGINT", "interrupt"]}, cause=StopCause.CANCELLED)
    assert (ending.outcome, ending.exit_code) == (Outcome.CANCELLED, -9)


async def test_a_call_that_comes_after_the_stop_was_asked_for_does_not_run(estate: Estate) -> None:
    late = ({"await_interrupt": True}, look("toolu_late"))
    await stop_when_reached(estate, look(), {"ignore": ["interrupt"]}, cause=StopCause.CANCELLED, then=late)
    calls = estate.rows("SELECT verdict, reason FROM tool_calls ORDER BY id")
    assert [(row["verdict"], "being stopped" in str(row["reason"])) for row in calls] == [
        ("allow", False),
        ("deny", True),
    ]


async def test_a_process_in_a_session_of_its_own_does_not_survive(estate: Estate) -> None:
    pid_file = estate.root / "stray.pid"
    row = await estate.finished({"stray": str(pid_file)}, look(), deliver(report()))
    assert row["outcome"] == "success"
    assert not runs(int(pid_file.read_text()))
    assert "stray_processes" in estate.logged.getvalue()


async def test_a_cancelled_supervisor_leaves_no_process(estate: Estate) -> None:
    pid_file, reached = estate.root / "stray.pid", estate.root / "reached"
    estate.script({"stray": str(pid_file)}, {"touch": str(reached)}, {"hang": True})
    await estate.queue()
    session = await estate.claim()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(SessionRunner(context=estate.context).run, session, StopControl())
            await until(reached.exists)
            tasks.cancel_scope.cancel()
    assert not runs(int(pid_file.read_text()))


# --- the pipe -----------------------------------------------------------------------------------------


async def test_a_line_of_many_megabytes_is_one_line_of_the_log(estate: Estate) -> None:
    row = await estate.finished({"line_of": 8 * 1024 * 1024}, look(), deliver(report()))
    assert row["outcome"] == "success"
    assert len(str(estate.frames()[0])) > 8 * 1024 * 1024


async def test_a_flood_on_stderr_loses_no_result(estate: Estate) -> None:
    row = await estate.finished({"stderr": "noise " * 50 + "\n", "times": 20_000}, look(), deliver(report()))
    assert row["outcome"] == "success"
    assert len(str(row["stderr_tail"])) <= 8192


async def test_broken_lines_are_counted_and_kept_and_end_nothing(estate: Estate) -> None:
    row = await estate.finished({"raw": "{broken\n", "times": 3}, {"raw": "[1]\n\n"}, look(), deliver(report()))
    assert (row["outcome"], row["malformed_lines"]) == ("success", 3)
    assert Path(estate.log_path(1)).read_text().startswith("{broken\n{broken\n{broken\n[1]\n\n")


async def test_a_result_line_without_its_newline_is_a_result_line(estate: Estate) -> None:
    result = {"type": "result", "subtype": "success", "is_error": False, "structured_output": report()}
    row = await estate.finished(look(), {"raw": json.dumps(result)}, {"exit": 0})
    assert (row["outcome"], row["extraction_method"]) == ("success", "structured")


# --- ways not to start --------------------------------------------------------------------------------


async def test_a_missing_binary_is_an_outcome_not_a_crash(estate: Estate) -> None:
    estate.with_context(binaries={"claude": estate.root / "no-such-cli"})
    row = await estate.finished(look())
    assert row["outcome"] == "spawn_failed"
    assert "no-such-cli" in str(row["error"])


async def test_an_existing_log_is_never_written_over(estate: Estate) -> None:
    Path(estate.log_path(1)).write_text("an earlier session's\n")
    row = await estate.finished(look(), deliver(report()))
    assert row["outcome"] == "spawn_failed"
    assert Path(estate.log_path(1)).read_text() == "an earlier session's\n"


async def test_a_cli_that_refuses_its_flags_is_no_output_with_its_own_words(estate: Estate) -> None:
    row = await estate.finished({"stderr": "error: unknown option '--verbose'\n"}, {"exit": 1})
    assert row["outcome"] == "no_output"
    assert "unknown option" in str(row["stderr_tail"])
    assert row["decision_reason"] == "session_failed"


async def test_a_full_log_disk_stops_the_session_and_says_so(estate: Estate) -> None:
    control = StopControl()
    estate.script(look(), {"hang": True})
    await estate.queue()
    session = replace(await estate.claim(), log_path="/dev/full/session-000001.ndjson")
    ending = await SessionRunner(context=estate.context).run(session, control)
    assert ending.outcome is Outcome.SPAWN_FAILED
    assert ending.extraction.method is ExtractionMethod.NONE


async def test_the_gate_denies_what_the_database_cannot_record(estate: Estate) -> None:
    asked: list[ToolCall] = []

    def judge(call: ToolCall, _workspace: object) -> Verdict:
        asked.append(call)
        return Verdict(kind=VerdictKind.ALLOW, reason="allowed by the policy")

    estate.with_judge(judge)
    estate.with_context(repair_turn=False)
    estate.script(look(), {"result": {}}, {"await_eof": True})
    await estate.queue()
    session = await estate.claim()
    stale = replace(session, attempt=session.attempt + 1)
    ending = await SessionRunner(context=estate.context).run(stale, StopControl())
    assert len(asked) == 1
    assert ending.calls_ran == 0
    assert estate.rows("SELECT * FROM tool_calls") == []
