"""The completion of a session: what it left, reduced to one `Ending`, which is then written to the database and logged.

The result waits for as long as the database is away. What the database refuses for good is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import anyio
import msgspec

from claudeops.domain.calls import CliRefusal, ToolCall, ToolEnd, Verdict, VerdictKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.outcome import Judgement, ProcessExit, StopCause, judge
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL, Extraction, ExtractionMethod
from claudeops.domain.sessions import DecisionReason, Ending, Finished, Outcome, Session, Trigger
from claudeops.domain.spending.budget import from_stream
from claudeops.domain.spending.tokens import CallState
from claudeops.domain.stream.transcript import ObservedCall, abridged
from claudeops.engine.session.context import CompletionRules
from claudeops.engine.session.files import apply_handoff
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError, StoreError
from claudeops.formats.report.extraction import extract
from claudeops.formats.report.markers import Handoff, HandoffError
from claudeops.formats.stream import Transcript
from claudeops.harness.protocol import Harness
from claudeops.logs import LogEvent, Logger
from claudeops.store.queue import Queue
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble

_Written = TypeVar("_Written")

_BY_OPERATORS: Final = frozenset({StopCause.PAUSED, StopCause.STOPPED})
_NO_REPORT: Final = Extraction(method=ExtractionMethod.NONE, report=None)

RETRY_FIRST_SECONDS: Final = 0.25
RETRY_LONGEST_SECONDS: Final = 10.0


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation leaves behind."""

    harness: Harness
    transcript: Transcript
    exit_code: int | None  # None: the process could not be reaped
    stop: StopCause | None  # why we stopped it, if we did
    allowed: frozenset[str]  # tool_use_ids that the gate allowed and the CLI did not refuse itself
    tool_ends: tuple[ToolEnd, ...]
    events: tuple[NewEvent, ...]
    stderr_tail: str
    unbooked: tuple[CallState, ...] = ()  # model calls that the database did not take
    metered: bool = False  # the meter counted its model calls
    stop_detail: str | None = None  # what exactly it was stopped for
    refusals: tuple[CliRefusal, ...] = ()
    handoff: Handoff | HandoffError | None = None  # what the session left for the next tier, if anything
    looks: tuple[EvidenceLook, ...] = ()

    @property
    def ran(self) -> frozenset[str]:
        """The ids of calls that ran, without the one that delivers the report.

        With a gate: calls that the gate allowed and that have a result. Without one there is only the CLI's word: calls
        that have a result in the transcript, and that the CLI does not list as refused by its own rules.
        """
        ran = {end.tool_use_id for end in self.tool_ends}
        if self.harness.capabilities.gate:
            ran &= self.allowed
        else:
            ran -= {denial.tool_use_id for denial in self.transcript.permission_denials}
        calls = self.transcript.tool_calls.items()
        return frozenset(ran - {key for key, call in calls if call.name == STRUCTURED_OUTPUT_TOOL})

    @property
    def succeeded(self) -> tuple[ObservedCall, ...]:
        """The calls that ran and did not fail."""
        calls = (self.transcript.tool_calls.get(key) for key in self.ran)
        return tuple(call for call in calls if call is not None and call.ended and not call.is_error)

    @property
    def succeeded_in_log(self) -> tuple[ObservedCall, ...]:
        """Those of them whose inputs are not held, because they are too many: `files.LoggedInputs` reads them."""
        return tuple(call for call in self.succeeded if call.line is not None)


def calls_that_ran(gathered: Gathered) -> tuple[ToolCall, ...]:
    """Return the calls that ran and did not fail, as the log has them; without those whose inputs only the log has.

    They are judged once more, so that the result is the same for a running session and for a log that is read again.
    """
    return tuple(
        ToolCall(tool_use_id=call.tool_use_id, tool_name=call.name, input=call.input or {})
        for call in gathered.succeeded
        if call.line is None
    )


def looked(gathered: Gathered, verdicts: Mapping[str, Verdict]) -> Gathered:
    """Return ``gathered`` with the looks of `calls_that_ran`, given their verdicts by the ids of the calls."""
    looks = [
        replace(verdict.look, results_before=gathered.transcript.tool_calls[key].results_before, tool_use_id=key)
        for key, verdict in verdicts.items()
        if verdict.look is not None and verdict.kind is not VerdictKind.DENY and not verdict.actions
    ]
    return replace(gathered, looks=tuple(sorted(looks, key=lambda look: look.results_before)))


def never_started(session: Session, why: str, *, at: datetime, ms: int) -> Ending:
    """Return the ending of a session whose process never ran; ``ms``: how long the attempt took."""
    return Ending(
        session_id=session.id,
        attempt=session.attempt,
        outcome=Outcome.SPAWN_FAILED,
        error=why,
        extraction=_NO_REPORT,
        ended_at=at,
        duration_ms=ms,
        calls_ran=0,
    )


# Longer than forty lines, but flat: one line for each field.
def conclude(session: Session, gathered: Gathered, rules: CompletionRules, *, at: datetime, ms: int) -> Ending:
    """Return the ending of a session that ran for ``ms`` milliseconds and ended at ``at``."""
    transcript = gathered.transcript
    extracted = extract(transcript, rules.schema, legacy_markers=rules.legacy_markers)
    extraction, about_handoff = apply_handoff(extracted, gathered.handoff)
    judgement = _judged(gathered, rules, has_report=extraction.report is not None)
    ending = Ending(
        session_id=session.id,
        attempt=session.attempt,
        outcome=judgement.outcome,
        extraction=extraction,
        ended_at=at,
        duration_ms=ms,
        calls_ran=len(gathered.ran),
        looks=gathered.looks,
        exit_code=gathered.exit_code,
        error_category=judgement.category,
        failure_kind=judgement.failure_kind,
        error=_detailed(judgement.error, gathered),
        limit_resets_at=transcript.rate_limit_resets_at,
        cli_session_id=transcript.session_id,
        api_key_source=transcript.api_key_source,
        num_turns=transcript.num_turns,
        input_tokens=transcript.input_tokens if transcript.result_seen else None,
        output_tokens=transcript.output_tokens if transcript.result_seen else None,
        cost_usd=transcript.cost_usd,
        response=transcript.text or None,
        tool_calls_seen=transcript.tool_calls_seen,
        malformed_lines=transcript.malformed_lines,
        permission_mode=transcript.permission_mode,
        stop_reason=transcript.stop_reason,
        cli_duration_ms=transcript.duration_ms,
        cached_input_tokens=transcript.cached_input_tokens,
        reasoning_output_tokens=transcript.reasoning_output_tokens,
        tool_errors=transcript.tool_errors,
        api_retries=transcript.api_retries,
        unknown_frames=transcript.unknown_frames,
        last_assistant_text=abridged(transcript.last_assistant_text or "") or None,
        warnings=judgement.warnings,
        stderr_tail=gathered.stderr_tail or None,
        tool_ends=gathered.tool_ends,
        unbooked=gathered.unbooked,
        refusals=gathered.refusals,
        stopped_for=DecisionReason.PAUSED if gathered.stop in _BY_OPERATORS else None,
        events=(*gathered.events, *about_handoff, *_degradations(extraction)),
    )
    return ending if gathered.metered else from_stream(ending, transcript.messages_used)


async def commit_result(ending: Ending, *, queue: Queue, rules: EscalationRules, log: Logger) -> Finished | None:
    """Write the end of a session; while the database is away, the result waits for it.

    If the database refuses the end for good, a bare one is written, which says so; the log still has everything.
    Returns ``None`` if the row belongs to another daemon by now, or if not even the bare end could be written.
    """
    try:
        return await until_written(partial(queue.finish, ending, rules=rules), log=log)
    except StaleAttemptError as error:
        log.error(LogEvent.STALE_ATTEMPT, error=str(error))
        return None
    except StoreError as error:
        log.critical(LogEvent.SESSION_END_REFUSED, error=str(error))
        refused = str(error)
    try:
        return await until_written(partial(queue.finish, _bare(ending, refused), rules=rules), log=log)
    except StoreError as error:
        log.critical(LogEvent.SESSION_END_REFUSED, error=str(error))
        return None


def log_result(ending: Ending, finished: Finished, log: Logger) -> None:
    """Log how a session ended and what follows."""
    log.info(
        LogEvent.SESSION_ENDED,
        outcome=ending.outcome.value,
        error_category=ending.error_category,
        extraction_method=ending.extraction.method.value,
        duration_ms=ending.duration_ms,
        cost_usd=ending.cost_usd,
        calls_ran=ending.calls_ran,
        # Logged, because the log is out of the database's reach: `claudeops audit verify --log` compares the two.
        audit_head=finished.audit_head,
        audit_results=finished.audit_results,
    )
    log.info(LogEvent.DECISION_MADE, reason=finished.decision.reason.value)
    if finished.decision.next is not None:
        escalated = finished.decision.next.trigger is Trigger.ESCALATION
        log.info(
            LogEvent.ESCALATION_QUEUED if escalated else LogEvent.RETRY_QUEUED,
            next_session_id=finished.next_session_id,
            next_tier=finished.decision.next.tier,
        )


def _detailed(error: str | None, gathered: Gathered) -> str | None:
    if error is None or gathered.stop_detail is None or gathered.stop is not StopCause.BUDGET_EXCEEDED:
        return error
    return f"{error}: {gathered.stop_detail}"


def _judged(gathered: Gathered, rules: CompletionRules, *, has_report: bool) -> Judgement:
    return judge(
        gathered.transcript,
        ProcessExit(
            code=gathered.exit_code,
            stop=gathered.stop,
            stderr_tail=gathered.stderr_tail,
            stderr_is_noted=gathered.harness.stderr_is_noted,
            stderr_notes=gathered.harness.stderr_notes(gathered.stderr_tail),
        ),
        heuristics=rules.hang_heuristics,
        has_report=has_report,
        background_tasks_disabled=rules.background_tasks_off,
    )


def _degradations(extraction: Extraction) -> tuple[NewEvent, ...]:
    return tuple(
        NewEvent(level=EventLevel.WARNING, message=f"Report {warning}", fingerprint="report_degraded")
        for warning in extraction.warnings
        if warning.startswith("degraded:")
    )


async def until_written(write: Callable[[], Awaitable[_Written]], *, log: Logger) -> _Written:
    """Write what comes of a session's end, and return what that returns; waits for a database that is away."""
    delay, trouble = RETRY_FIRST_SECONDS, DatabaseTrouble(log, "finish")
    while True:
        try:
            done = await write()
        except DatabaseUnavailableError as error:
            trouble.failed(error)
        else:
            trouble.over()
            return done
        await anyio.sleep(delay)
        delay = min(delay * 2, RETRY_LONGEST_SECONDS)


def _bare(ending: Ending, refused: str) -> Ending:
    """Return the same end without anything that a model or a CLI wrote; its costs are kept."""
    return replace(
        ending,
        outcome=Outcome.ERROR,
        error=f"the end of this session could not be written as it was: {refused}",
        extraction=Extraction(method=ExtractionMethod.NONE, report=None),
        api_key_source=None,
        response=None,
        last_assistant_text=None,
        warnings=(),
        stderr_tail=None,
        tool_ends=(),
        events=(),
    )
