"""How a session ended: what we did, what its result line says and what its exit status says, in that order."""

from __future__ import annotations

from typing import Any

import pytest

from claudeops.domain.chains.outcome import NO_RESULT_WARNING, ExitReason, ProcessExit, StopCause
from claudeops.domain.sessions import ErrorCategory, FailureKind, Outcome
from claudeops.formats.stream import Transcript
from support.streams import INIT, called, failed, judged, read, result, said, transcript_of

WAITS = said("still waiting on the agent")
LAUNCH = called("t1", "Task", {"prompt": "x", "run_in_background": True})
TIMED_OUT = {StopCause.TIMEOUT, StopCause.STARTUP_TIMEOUT, StopCause.STALLED, StopCause.TOOL_STALLED}


# --- the result line's subtype ------------------------------------------------------------------------

SUBTYPES = [
    ("success", Outcome.SUCCESS, Outcome.ERROR),
    ("max_turns", Outcome.MAX_TURNS, Outcome.MAX_TURNS),
    ("error_max_turns", Outcome.MAX_TURNS, Outcome.MAX_TURNS),
    ("budget_exceeded", Outcome.BUDGET_EXCEEDED, Outcome.BUDGET_EXCEEDED),
    ("error_max_budget_usd", Outcome.BUDGET_EXCEEDED, Outcome.BUDGET_EXCEEDED),
    ("max_tokens", Outcome.MAX_TOKENS, Outcome.MAX_TOKENS),
    ("cancelled", Outcome.CANCELLED, Outcome.CANCELLED),
    ("error", Outcome.ERROR, Outcome.ERROR),
    ("error_during_execution", Outcome.ERROR, Outcome.ERROR),
    ("error_max_structured_output_retries", Outcome.ERROR, Outcome.ERROR),
    ("error_of_next_year", Outcome.SUCCESS, Outcome.ERROR),
    (None, Outcome.SUCCESS, Outcome.ERROR),
]


@pytest.mark.parametrize(("subtype", "outcome", "outcome_of_error"), SUBTYPES)
def test_subtype_names_the_outcome_and_is_error_the_category(
    subtype: str | None, outcome: Outcome, outcome_of_error: Outcome
) -> None:
    judgement = judged(transcript_of(said("a"), result(subtype=subtype)))
    assert (judgement.outcome, judgement.category, judgement.error) == (outcome, None, None)
    assert (judgement.failure_kind is None) == (outcome is Outcome.SUCCESS)
    judgement = judged(transcript_of(said("a"), failed(subtype=subtype)))
    assert (judgement.outcome, judgement.category) == (outcome_of_error, ErrorCategory.API)
    assert not judgement.clean


def test_later_success_does_not_hide_what_the_first_error_was() -> None:
    transcript = transcript_of(said("a"), failed(subtype="error_max_budget_usd", errors=["budget"]), result())
    judgement = judged(transcript)
    assert (judgement.outcome, judgement.error) == (Outcome.BUDGET_EXCEEDED, "budget")


def test_calibans_older_error_has_a_text_and_no_category() -> None:
    judgement = judged(
        transcript_of({"type": "result", "subtype": "error", "error": "no"}), ProcessExit(code=1, stderr_tail="x\n")
    )
    assert (judgement.outcome, judgement.error, judgement.category) == (Outcome.ERROR, "no", None)
    assert not judged(transcript_of(said("a"), {"type": "result", "subtype": "error", "error": "no"})).clean
    assert judgement.warnings == ("x",)


def test_cap_without_is_error_is_no_error_whatever_it_lists() -> None:
    judgement = judged(transcript_of(said("a"), result(subtype="error_max_turns", errors=["Reached maximum"])))
    assert (judgement.outcome, judgement.error, judgement.clean) == (Outcome.MAX_TURNS, None, True)


# --- nothing ran, nothing came ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "has_report", "outcome"),
    [
        ([result(num_turns=0)], False, Outcome.BLOCKED),
        ([said(" \n"), result(num_turns=0)], False, Outcome.BLOCKED),
        ([said("a"), result(num_turns=0)], False, Outcome.SUCCESS),
        ([result(num_turns=0, structured_output={})], False, Outcome.SUCCESS),
        ([result(num_turns=0)], True, Outcome.SUCCESS),
        ([result(num_turns=None)], False, Outcome.SUCCESS),
        ([failed(num_turns=0)], False, Outcome.ERROR),
        ([result(num_turns=0, subtype="max_turns")], False, Outcome.MAX_TURNS),
    ],
)
def test_blocked_is_no_turn_and_no_word(lines: list[dict[str, Any]], has_report: bool, outcome: Outcome) -> None:
    assert judged(transcript_of(*lines), has_report=has_report).outcome is outcome


def test_blocked_is_never_clean() -> None:
    judgement = judged(transcript_of(result(num_turns=0)))
    assert (judgement.succeeded, judgement.clean, judgement.failure_kind) == (False, False, FailureKind.OTHER)


@pytest.mark.parametrize(
    ("lines", "code", "outcome", "reason"),
    [
        ([], 0, Outcome.NO_OUTPUT, None),
        ([], 1, Outcome.NO_OUTPUT, None),
        (["", "  "], 0, Outcome.NO_OUTPUT, None),
        (["Error: what?"], 1, Outcome.NO_RESULT, None),
        ([INIT], 0, Outcome.NO_RESULT, None),
        ([INIT], -15, Outcome.NO_RESULT, None),
        ([INIT], 143, Outcome.NO_RESULT, None),
        ([INIT], None, Outcome.NO_RESULT, None),
        ([INIT], -9, Outcome.NO_RESULT, ExitReason.KILLED),
        ([], 137, Outcome.NO_RESULT, ExitReason.KILLED),
        ([], 64, Outcome.NO_RESULT, ExitReason.USAGE),
        ([], 66, Outcome.NO_RESULT, ExitReason.INPUT),
        ([INIT], 78, Outcome.NO_RESULT, ExitReason.CONFIG),
    ],
)
def test_missing_result_is_never_clean(
    lines: list[Any], code: int | None, outcome: Outcome, reason: ExitReason | None
) -> None:
    judgement = judged(read(*lines).transcript, ProcessExit(code=code))
    assert (judgement.outcome, judgement.exit_reason) == (outcome, reason)
    assert (judgement.succeeded, judgement.clean, judgement.failure_kind) == (False, False, FailureKind.OTHER)
    assert judgement.warnings[-1] == NO_RESULT_WARNING


def test_missing_result_is_not_clean_although_it_said_much_and_left_with_zero() -> None:
    judgement = judged(transcript_of(said("all is well")), has_report=True)
    assert (judgement.outcome, judgement.clean) == (Outcome.NO_RESULT, False)


def test_refused_flag_is_told_by_stderr() -> None:
    judgement = judged(Transcript(), ProcessExit(code=1, stderr_tail="error: unknown option '--x'\n"))
    assert (judgement.outcome, judgement.error) == (Outcome.NO_OUTPUT, "error: unknown option '--x'\n")
    assert judgement.category is None


@pytest.mark.parametrize("code", [64, 66, 78])
def test_wrong_command_is_not_tried_again(code: int) -> None:
    reason = judged(Transcript(), ProcessExit(code=code)).exit_reason
    assert reason is not None
    assert not reason.retryable
    assert ExitReason.KILLED.retryable


# --- exit status and stderr ---------------------------------------------------------------------------


def test_result_line_outranks_the_exit_status() -> None:
    judgement = judged(transcript_of(said("a"), result()), ProcessExit(code=137))
    assert (judgement.outcome, judgement.error) == (Outcome.SUCCESS, None)
    assert judgement.warnings == ("exit-code-mismatch: 137",)
    assert not judgement.succeeded


def test_exit_zero_after_an_interrupt_proves_nothing() -> None:
    line = failed(subtype="error_during_execution", terminal_reason="aborted_tools")
    assert judged(transcript_of(said("a"), line), ProcessExit(code=0)).outcome is Outcome.ERROR


def test_unknown_exit_status_of_a_whole_log_costs_nothing() -> None:
    assert judged(transcript_of(said("a"), result()), ProcessExit()).clean


def test_blank_stderr_is_no_error() -> None:
    assert judged(transcript_of(said("a"), result()), ProcessExit(code=2, stderr_tail=" \n")).error is None


def test_stderr_beside_a_suspicion_is_a_warning() -> None:
    judgement = judged(transcript_of(LAUNCH, WAITS, result(num_turns=9)), ProcessExit(code=1, stderr_tail="noise\n"))
    assert (judgement.error, judgement.category) == (None, ErrorCategory.BACKGROUND_TASK)
    assert judgement.warnings[-1] == "noise"


@pytest.mark.parametrize("length", [4096, 4097])
def test_error_is_cut_by_characters(length: int) -> None:
    text = "é" * length
    cut = text if length == 4096 else "é" * 4096 + " ... (truncated)"
    assert judged(transcript_of(failed(result=text))).error == cut
    assert judged(transcript_of(result()), ProcessExit(code=1, stderr_tail=text)).error == cut
    assert judged(Transcript(), ProcessExit(spawn_error=text)).error == cut


def test_word_behind_the_cut_is_not_seen() -> None:
    assert judged(transcript_of(failed(result="z" * 4096 + "429"))).category is ErrorCategory.API


# --- what we did ourselves ----------------------------------------------------------------------------

STOPS = [
    (StopCause.TIMEOUT, Outcome.TIMEOUT, ErrorCategory.TIMEOUT, FailureKind.OTHER),
    (StopCause.STARTUP_TIMEOUT, Outcome.STARTUP_TIMEOUT, ErrorCategory.TIMEOUT, FailureKind.OTHER),
    (StopCause.STALLED, Outcome.STALLED, ErrorCategory.TIMEOUT, FailureKind.OTHER),
    (StopCause.TOOL_STALLED, Outcome.STALLED, ErrorCategory.TIMEOUT, FailureKind.OTHER),
    (StopCause.CANCELLED, Outcome.CANCELLED, None, FailureKind.OTHER),
    (StopCause.UNGATED_CALL, Outcome.UNGATED_CALL, None, FailureKind.OTHER),
    (StopCause.OUT_OF_MEMORY, Outcome.OUT_OF_MEMORY, None, FailureKind.OTHER),
    (StopCause.OUT_OF_PROCESSES, Outcome.OUT_OF_PROCESSES, None, FailureKind.OTHER),
    (StopCause.OUT_OF_DISK, Outcome.OUT_OF_DISK, None, FailureKind.OTHER),
    (StopCause.FILE_TOO_LARGE, Outcome.FILE_TOO_LARGE, None, FailureKind.OTHER),
    (StopCause.DISK_LOW, Outcome.OUT_OF_DISK, None, FailureKind.OTHER),
    (StopCause.AUTH_REFUSED, Outcome.ERROR, ErrorCategory.AUTH, FailureKind.AUTH),
    (StopCause.BUDGET_EXCEEDED, Outcome.BUDGET_EXCEEDED, None, FailureKind.OTHER),
    (StopCause.DISK_FULL, Outcome.ERROR, None, FailureKind.OTHER),
    (StopCause.SERVERS_AWAY, Outcome.ERROR, None, FailureKind.OTHER),
    (StopCause.REPETITION, Outcome.ERROR, None, FailureKind.OTHER),
    (StopCause.PAUSED, Outcome.CANCELLED, None, FailureKind.OTHER),
    (StopCause.STOPPED, Outcome.CANCELLED, None, FailureKind.OTHER),
]


@pytest.mark.parametrize(("stop", "outcome", "category", "kind"), STOPS)
@pytest.mark.parametrize(
    "lines",
    [[], [said("a")], [said("a"), result()], [said("a"), failed(subtype="error_during_execution", result="401")]],
    ids=["silence", "no result", "success", "an error of our own making"],
)
def test_our_reason_outranks_the_result_line(
    stop: StopCause, outcome: Outcome, category: ErrorCategory | None, kind: FailureKind, lines: list[dict[str, Any]]
) -> None:
    judgement = judged(read(*lines).transcript, ProcessExit(code=-15, stop=stop), has_report=True)
    assert (judgement.outcome, judgement.category, judgement.failure_kind) == (outcome, category, kind)
    assert judgement.error
    assert (judgement.succeeded, judgement.clean, judgement.warnings) == (False, False, ())


def test_every_stop_cause_is_judged() -> None:
    assert {stop for stop, *_ in STOPS} | {StopCause.RESULT_GRACE, StopCause.LEASE_OVER} == set(StopCause)


def test_session_that_is_stopped_when_another_daemon_may_have_it_is_lost_unless_it_had_ended() -> None:
    exited = ProcessExit(code=143, stop=StopCause.LEASE_OVER)
    assert judged(transcript_of(said("a")), exited).outcome is Outcome.LOST
    assert judged(Transcript(), exited).outcome is Outcome.LOST
    ended = judged(transcript_of(said("a"), result()), exited)
    assert (ended.outcome, ended.error, ended.clean) == (Outcome.SUCCESS, None, True)
    assert judged(transcript_of(failed(subtype="max_turns")), exited).outcome is Outcome.MAX_TURNS


def test_refusal_for_want_of_money_is_not_taken_for_one_of_the_apis() -> None:
    refused = failed(api_error_status=402, result="API Error: 402 claudeops: the session's budget is spent")
    judgement = judged(transcript_of(refused), ProcessExit(code=1, stop=StopCause.BUDGET_EXCEEDED))
    assert (judgement.outcome, judgement.failure_kind) == (Outcome.BUDGET_EXCEEDED, FailureKind.OTHER)


def test_timeout_is_called_timeout_and_suspects_nothing() -> None:
    exited = ProcessExit(code=-9, stop=StopCause.TIMEOUT, stderr_tail="noise\n")
    judgement = judged(transcript_of(LAUNCH, WAITS), exited)
    assert (judgement.error, judgement.category, judgement.warnings) == ("timeout", ErrorCategory.TIMEOUT, ("noise",))


def test_cancelled_session_keeps_its_cost() -> None:
    transcript = transcript_of(failed(subtype="error_during_execution", total_cost_usd=0.2))
    assert judged(transcript, ProcessExit(code=0, stop=StopCause.CANCELLED)).outcome is Outcome.CANCELLED
    assert transcript.cost_usd == 0.2


@pytest.mark.parametrize("code", [-9, -15, 143, 0])
def test_process_that_would_not_leave_after_its_result_succeeded(code: int) -> None:
    exited = ProcessExit(code=code, stop=StopCause.RESULT_GRACE, stderr_tail="terminated\n")
    judgement = judged(transcript_of(said("a"), result()), exited)
    assert (judgement.outcome, judgement.error, judgement.warnings) == (Outcome.SUCCESS, None, ())
    assert judgement.clean
    assert judged(transcript_of(failed(subtype="max_turns")), exited).outcome is Outcome.MAX_TURNS


def test_process_that_never_started() -> None:
    judgement = judged(Transcript(), ProcessExit(spawn_error="Claude CLI not found: /x"))
    assert (judgement.outcome, judgement.failure_kind) == (Outcome.SPAWN_FAILED, FailureKind.OTHER)
    assert (judgement.error, judgement.warnings) == ("Claude CLI not found: /x", ())


# --- heuristics ---------------------------------------------------------------------------------------


def asks(text: str = "Which host?", turns: object = 1) -> Transcript:
    message = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    return transcript_of({"type": "assistant", "message": message}, result(num_turns=turns))


def test_question_with_a_report_is_no_hang() -> None:
    assert judged(asks(), has_report=True).clean
    assert judged(asks()).category is ErrorCategory.INTERACTIVE


def test_statement_is_no_question() -> None:
    assert judged(asks("All is well.")).clean


def test_question_put_by_tool_counts_whatever_came_after() -> None:
    asked = called("t1", "AskUserQuestion", {"questions": []})
    transcript = transcript_of(asked, called("t2"), said("."), result(num_turns=1, stop_reason="end_turn"))
    assert judged(transcript).category is ErrorCategory.INTERACTIVE


@pytest.mark.parametrize("turns", [True, 2, 0, None, "1"])
def test_hang_needs_exactly_one_turn(turns: object) -> None:
    assert judged(asks(turns=turns)).category is None


def test_stop_reason_of_the_result_line_counts() -> None:
    """The real CLI's messages carry none: only its result line has one."""
    transcript = transcript_of(said("Which host?"), result(num_turns=1, stop_reason="end_turn"))
    assert judged(transcript).category is ErrorCategory.INTERACTIVE


def test_launch_without_enough_turns_still_warns_beside_a_report() -> None:
    judgement = judged(transcript_of(LAUNCH, said("done"), result(num_turns=2)), has_report=True)
    assert (judgement.outcome, judgement.category) == (Outcome.SUCCESS, None)
    assert [warning.split(":")[0] for warning in judgement.warnings] == ["background-task"]
    assert judgement.succeeded
    assert not judgement.clean


def test_waiting_phrase_beside_a_report_means_nothing() -> None:
    assert judged(transcript_of(LAUNCH, WAITS, result(num_turns=9)), has_report=True).clean


@pytest.mark.parametrize("has_report", [True, False])
def test_unknown_turns_are_not_too_few(has_report: bool) -> None:
    judgement = judged(transcript_of(LAUNCH, said("done"), result(num_turns=None)), has_report=has_report)
    assert (judgement.category, judgement.warnings) == (None, ())


def test_each_launch_needs_its_turn() -> None:
    lines = [LAUNCH, LAUNCH, said("done")]  # two blocks are two launches, whatever their ids
    assert judged(transcript_of(*lines, result(num_turns=3))).category is ErrorCategory.BACKGROUND_TASK
    assert judged(transcript_of(*lines, result(num_turns=4))).category is None


@pytest.mark.parametrize(("heuristics", "sync_tasks"), [(False, False), (True, True)])
@pytest.mark.parametrize("has_report", [True, False])
def test_switched_off_heuristics_are_silent(heuristics: bool, sync_tasks: bool, has_report: bool) -> None:
    transcript = transcript_of(LAUNCH, WAITS, result(num_turns=1))
    judgement = judged(transcript, heuristics=heuristics, has_report=has_report, background_tasks_disabled=sync_tasks)
    assert (judgement.category, judgement.warnings) == (None, ())


def test_error_leaves_no_room_for_suspicion() -> None:
    transcript = transcript_of(
        LAUNCH, said("Waiting on it?"), failed(num_turns=1, stop_reason="end_turn", result="500")
    )
    judgement = judged(transcript)
    assert (judgement.category, judgement.warnings) == (ErrorCategory.API, ())


@pytest.mark.parametrize("lines", [[], [INIT], [INIT, said("x1"), called("a")]], ids=["silent", "begun", "at work"])
def test_the_exit_status_of_used_up_turns_counts_where_no_result_frame_came(lines: list[dict[str, Any]]) -> None:
    judgement = judged(read(*lines).transcript, ProcessExit(code=75))

    assert (judgement.outcome, judgement.failure_kind) == (Outcome.MAX_TURNS, FailureKind.OTHER)
    (warning,) = judgement.warnings
    assert warning.startswith("no-result-frame")
    assert not judgement.succeeded


def test_a_result_frame_outranks_that_exit_status() -> None:
    judgement = judged(transcript_of(said("x1"), result(result="x1")), ProcessExit(code=75))
    assert (judgement.outcome, judgement.warnings) == (Outcome.SUCCESS, ("exit-code-mismatch: 75",))


def test_our_own_stop_outranks_that_exit_status() -> None:
    stopped = ProcessExit(code=75, stop=StopCause.TIMEOUT)
    assert judged(transcript_of(said("x1")), stopped).outcome is Outcome.TIMEOUT


# --- a refusal -------------------------------------------------------------------------------------------------


def declined(*lines: dict[str, Any], **of_result: object) -> Transcript:
    frame = said("I can't help with that.")
    frame["message"]["stop_reason"] = "refusal"
    return transcript_of(*lines, frame, result(result="I can't help with that.", stop_reason="refusal", **of_result))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("[EVENT:info:web] looked at the disk", id="a marker"),
        pytest.param('Earlier: {"summary": "All is well."}', id="a report that was quoted"),
    ],
)
def test_a_report_that_only_stands_in_the_texts_outweighs_no_refusal(words: str) -> None:
    judgement = judged(declined(said(words)), has_report=True)
    assert (judgement.outcome, judgement.failure_kind) == (Outcome.ERROR, FailureKind.REFUSAL)


@pytest.mark.parametrize(
    "transcript",
    [
        pytest.param(declined(structured_output={"a": 1}), id="an output"),
        pytest.param(declined(called("so", "StructuredOutput", {"a": 1})), id="a call"),
    ],
)
def test_a_report_that_was_delivered_outweighs_a_refusal(transcript: Transcript) -> None:
    assert judged(transcript, has_report=True).outcome is Outcome.SUCCESS
