"""How a session ended: from transcript and exit to an outcome, an error category and a failure kind.

The *category* and the *outcome* are two different axes: the category follows clauditor's contract, the outcome follows
the result line's subtype. What the daemon did itself outranks the result line, and the result line outranks the exit
status. The exit status alone proves nothing: the CLI exits 0 after SIGINT, with and without a result line.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.chains.failure import NOTHING_SUSPECTED, Suspicion, category_of, cut, kind_of, suspect
from claudeops.domain.sessions import ErrorCategory, FailureKind, Outcome
from claudeops.domain.stream.transcript import Transcript

NO_RESULT_WARNING: Final = "stream-json ended without a 'result' message; token usage unavailable"

REFUSED: Final = "the model refused to answer"

NO_RESULT_FRAME: Final = "no-result-frame: the exit status alone says that the turns were used up"
_TURNS_USED_UP: Final = 75  # caliban's exit status

_SUBTYPES: Final = {
    "max_turns": Outcome.MAX_TURNS,
    "error_max_turns": Outcome.MAX_TURNS,
    "budget_exceeded": Outcome.BUDGET_EXCEEDED,
    "error_max_budget_usd": Outcome.BUDGET_EXCEEDED,
    "max_tokens": Outcome.MAX_TOKENS,
    "cancelled": Outcome.CANCELLED,
    "error": Outcome.ERROR,
    "error_during_execution": Outcome.ERROR,
    "error_max_structured_output_retries": Outcome.ERROR,
}

_MAY_BE_THE_API: Final = frozenset({Outcome.ERROR, Outcome.NO_RESULT, Outcome.NO_OUTPUT})


class StopCause(StrEnum):
    """Why the daemon ended a process that had not ended by itself."""

    TIMEOUT = "timeout"  # the wall clock ran out
    STARTUP_TIMEOUT = "startup_timeout"  # no first frame in time
    STALLED = "stalled"  # frames stopped coming
    TOOL_STALLED = "tool_stalled"  # a tool call did not come back in its time
    CANCELLED = "cancelled"  # an operator or the daemon's shutdown
    RESULT_GRACE = "result_grace"  # it had printed its result and did not exit
    UNGATED_CALL = "ungated_call"  # a tool ran without the gate's yes
    OUT_OF_MEMORY = "out_of_memory"  # its process tree outgrew its limit
    OUT_OF_PROCESSES = "out_of_processes"  # its process tree reached its limit
    OUT_OF_DISK = "out_of_disk"  # its files outgrew its limit
    FILE_TOO_LARGE = "file_too_large"  # one of its files reached the limit
    DISK_LOW = "disk_low"  # the machine's disk is nearly full, whoever filled it
    AUTH_REFUSED = "auth_refused"  # the model API refuses the credentials; the CLI would retry for minutes
    BUDGET_EXCEEDED = "budget_exceeded"  # a model call was refused because a budget is spent
    DISK_FULL = "disk_full"  # its log cannot be written
    SERVERS_AWAY = "servers_away"  # MCP servers are not connected; a retry may find them
    REPETITION = "repetition"  # it kept repeating calls that had failed
    PAUSED = "paused"  # an operator paused the daemon and asked for running sessions to be stopped
    STOPPED = "stopped"  # an operator stopped this session, or its chain
    LEASE_OVER = "lease_over"  # its daemon could not show that it lives: another may have taken the session over


class ExitReason(StrEnum):
    """What an exit status means where there is no result line."""

    USAGE = "usage"
    INPUT = "input"
    CONFIG = "config"
    KILLED = "killed"

    @property
    def retryable(self) -> bool:
        """Say whether the same command may succeed another time."""
        return self is ExitReason.KILLED


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a child process ended, as its supervisor saw it."""

    code: int | None = None  # exit status; negative: a signal; None: never started, or not known
    stop: StopCause | None = None  # None: it ended by itself
    spawn_error: str | None = None  # why it never started
    stderr_tail: str = ""  # redacted
    stderr_is_noted: bool = False  # stderr is a warning after a success too
    stderr_notes: tuple[str, ...] = ()  # warnings that the harness reads in stderr


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended, as its row will say."""

    outcome: Outcome
    category: ErrorCategory | None
    failure_kind: FailureKind | None  # None exactly for a success
    error: str | None
    warnings: tuple[str, ...]  # the transcript's, then those about the end
    succeeded: bool  # clauditor: exit 0 and some text; here with a result line as well
    clean: bool  # clauditor: succeeded, no error, no category, no warning of a heuristic
    exit_reason: ExitReason | None = None  # set only where no result line came


_EXIT_REASONS: Final = {
    64: ExitReason.USAGE,
    66: ExitReason.INPUT,
    78: ExitReason.CONFIG,
    137: ExitReason.KILLED,  # as a shell or a container reports SIGKILL; caliban's budget code has a result line
    -9: ExitReason.KILLED,
}

_STOPS: Final[dict[StopCause, tuple[Outcome, ErrorCategory | None, str]]] = {
    StopCause.TIMEOUT: (Outcome.TIMEOUT, ErrorCategory.TIMEOUT, "timeout"),
    StopCause.STARTUP_TIMEOUT: (
        Outcome.STARTUP_TIMEOUT,
        ErrorCategory.TIMEOUT,
        "startup timeout: the CLI printed nothing in time",
    ),
    StopCause.STALLED: (Outcome.STALLED, ErrorCategory.TIMEOUT, "stalled: the CLI fell silent for too long"),
    StopCause.TOOL_STALLED: (
        Outcome.STALLED,
        ErrorCategory.TIMEOUT,
        "stalled: a tool call did not come back within its time",
    ),
    StopCause.CANCELLED: (Outcome.CANCELLED, None, "cancelled"),
    StopCause.UNGATED_CALL: (Outcome.UNGATED_CALL, None, "ended: a tool ran without the gate's yes"),
    StopCause.OUT_OF_MEMORY: (Outcome.OUT_OF_MEMORY, None, "ended: the session outgrew its memory limit"),
    StopCause.OUT_OF_PROCESSES: (Outcome.OUT_OF_PROCESSES, None, "ended: the session reached its limit of processes"),
    StopCause.OUT_OF_DISK: (Outcome.OUT_OF_DISK, None, "ended: the session outgrew its limit of disk space"),
    StopCause.FILE_TOO_LARGE: (Outcome.FILE_TOO_LARGE, None, "ended: a file of the session reached its limit of size"),
    StopCause.DISK_LOW: (Outcome.OUT_OF_DISK, None, "ended: the disk of this machine is nearly full"),
    StopCause.AUTH_REFUSED: (Outcome.ERROR, ErrorCategory.AUTH, "ended: the model API refuses the credentials"),
    StopCause.BUDGET_EXCEEDED: (
        Outcome.BUDGET_EXCEEDED,
        None,
        "ended: a model call was refused because a budget is spent",
    ),
    StopCause.SERVERS_AWAY: (Outcome.ERROR, None, "ended: an MCP server of its tier is not connected"),
    StopCause.REPETITION: (Outcome.ERROR, None, "ended: it repeated what had failed again and again"),
    StopCause.PAUSED: (Outcome.CANCELLED, None, "cancelled: the daemon was paused"),
    StopCause.STOPPED: (Outcome.CANCELLED, None, "cancelled: an operator stopped it"),
    StopCause.DISK_FULL: (Outcome.ERROR, None, "ended: the session's log cannot be written, the disk is full"),
    StopCause.LEASE_OVER: (
        Outcome.LOST,
        None,
        "ended: its daemon could not show in time that it lives, so another one may have taken the session over",
    ),
}


def judge(
    transcript: Transcript,
    exited: ProcessExit,
    *,
    heuristics: bool,
    has_report: bool,
    background_tasks_disabled: bool,
) -> Judgement:
    """Return how a session ended.

    ``heuristics`` switches on clauditor's two hang heuristics. ``has_report`` says that a report was validated,
    which counts as text and silences both but for the count of launches. ``background_tasks_disabled`` says that
    the child ran with ``CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1``.
    """
    if exited.spawn_error is not None:
        return _failed(transcript, Outcome.SPAWN_FAILED, error=exited.spawn_error, kind=FailureKind.OTHER)
    if exited.stop is not None and not _keeps_its_result(exited.stop, transcript):
        return _stopped(transcript, exited, exited.stop)
    suspicion = NOTHING_SUSPECTED
    if heuristics and not transcript.is_error:
        suspicion = suspect(transcript, has_report=has_report, background_tasks_disabled=background_tasks_disabled)
    return _exited(transcript, exited, suspicion, has_report=has_report)


def _keeps_its_result(stop: StopCause, transcript: Transcript) -> bool:
    """Say whether a stop says nothing about the session: it had ended by then, as whoever reads its log will see."""
    return stop is StopCause.RESULT_GRACE or (stop is StopCause.LEASE_OVER and transcript.result_seen)


def _failed(
    transcript: Transcript,
    outcome: Outcome,
    *,
    error: str,
    kind: FailureKind,
    category: ErrorCategory | None = None,
    extra_warnings: tuple[str, ...] = (),
) -> Judgement:
    return Judgement(
        outcome=outcome,
        category=category,
        failure_kind=kind,
        error=cut(error),
        warnings=(*transcript.warnings, *extra_warnings),
        succeeded=False,
        clean=False,
    )


def _stopped(transcript: Transcript, exited: ProcessExit, stop: StopCause) -> Judgement:
    """Judge a session that the daemon ended: that reason counts, whatever error the CLI printed because of it."""
    outcome, category, error = _STOPS[stop]
    # The refusal that ends a session without money is our own, although it looks like one of the API's.
    kind = FailureKind.OTHER if stop is StopCause.BUDGET_EXCEEDED else kind_of(transcript, None)
    if stop is StopCause.AUTH_REFUSED and kind is FailureKind.OTHER:
        kind = FailureKind.AUTH
    extra_warnings = (*_stderr_warning(exited.stderr_tail), *exited.stderr_notes)
    return _failed(transcript, outcome, error=error, kind=kind, category=category, extra_warnings=extra_warnings)


def _exited(transcript: Transcript, exited: ProcessExit, suspicion: Suspicion, *, has_report: bool) -> Judgement:
    # The exit status of a process that did not exit after its result is our own doing.
    code = exited.code if exited.stop is None else None
    outcome, exit_reason = _outcome(transcript, code, has_report=has_report)
    error, category = _stream_error(transcript, outcome)
    category = category or suspicion.category
    warnings = [*transcript.warnings, *_disagreements(transcript, outcome, code), *suspicion.warnings]
    if error is not None or category is not None:
        warnings += _stderr_warning(exited.stderr_tail)  # never instead of what the stream says
    elif code and exited.stderr_tail.strip():
        error = cut(exited.stderr_tail)
    elif exited.stderr_is_noted:
        warnings += _stderr_warning(exited.stderr_tail)
    warnings += exited.stderr_notes
    has_words = bool(transcript.text.strip()) or has_report
    succeeded = transcript.result_seen and not code and has_words
    return Judgement(
        outcome=outcome,
        category=category,
        failure_kind=_failure_kind(transcript, outcome, error),
        error=error,
        warnings=tuple(warnings),
        succeeded=succeeded,
        clean=succeeded and error is None and category is None and not suspicion.warnings,
        exit_reason=exit_reason,
    )


def _outcome(transcript: Transcript, code: int | None, *, has_report: bool) -> tuple[Outcome, ExitReason | None]:
    if not transcript.result_seen:
        if code == _TURNS_USED_UP:
            return Outcome.MAX_TURNS, None
        # An exit status with a meaning says more than silence.
        reason = _EXIT_REASONS.get(code or 0)
        silent = transcript.silent and reason is None
        return Outcome.NO_OUTPUT if silent else Outcome.NO_RESULT, reason
    outcome = _SUBTYPES.get(_subtype(transcript))
    if outcome is not None:
        return outcome, None
    if transcript.is_error or _is_refused(transcript, has_report=has_report):
        return Outcome.ERROR, None
    return Outcome.BLOCKED if _nothing_ran(transcript, has_report=has_report) else Outcome.SUCCESS, None


def _subtype(transcript: Transcript) -> str:
    """Return the subtype that counts: a later success does not hide an error."""
    return (transcript.error_subtype if transcript.is_error else transcript.subtype) or ""


def _is_refused(transcript: Transcript, *, has_report: bool) -> bool:
    """Say whether the model declined; a refusal comes as an answer like any other, and need not be called an error.

    Only a report that was delivered outweighs it: one in the texts may be what the model has quoted or begun.
    """
    is_delivered = has_report and bool(transcript.structured_outputs or transcript.structured_calls)
    return transcript.refused and not is_delivered


def _nothing_ran(transcript: Transcript, *, has_report: bool) -> bool:
    """Say whether a hook or a rule stopped the session before its first turn; erk's rule."""
    has_output = transcript.text.strip() or transcript.structured_outputs or has_report
    return transcript.num_turns == 0 and not has_output


def _stream_error(transcript: Transcript, outcome: Outcome) -> tuple[str | None, ErrorCategory | None]:
    """Return the error in the result lines; only a strict ``is_error`` has a category."""
    if transcript.is_error:
        if transcript.error_category is not None:
            return transcript.error_text, transcript.error_category
        error = cut(transcript.error_text or "")
        return error, category_of(transcript, error)
    if outcome is Outcome.ERROR and transcript.stated_error is not None:
        return cut(transcript.stated_error), None  # caliban's older frames have a subtype and no is_error
    if outcome is Outcome.ERROR and transcript.refused:
        return cut(transcript.result_text or REFUSED), None
    return None, None


def _disagreements(transcript: Transcript, outcome: Outcome, code: int | None) -> tuple[str, ...]:
    if not transcript.result_seen:
        return (NO_RESULT_FRAME if outcome is Outcome.MAX_TURNS else NO_RESULT_WARNING,)
    return (f"exit-code-mismatch: {code}",) if code and outcome is Outcome.SUCCESS else ()


def _failure_kind(transcript: Transcript, outcome: Outcome, error: str | None) -> FailureKind | None:
    if outcome is Outcome.SUCCESS:
        return None
    # In other cases the error text is not about the model API: a schema may well have a field ``authentication``.
    about_the_api = outcome in _MAY_BE_THE_API and _subtype(transcript) != "error_max_structured_output_retries"
    return kind_of(transcript, error if about_the_api else None)


def _stderr_warning(stderr: str) -> tuple[str, ...]:
    text = stderr.strip()
    return (cut(text),) if text else ()
