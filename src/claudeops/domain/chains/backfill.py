"""Backfill: what the log of a session adds late to a row that had already ended, or why nothing is added.

Pure: the store asks here and writes the answer. Settled here:

- A report is taken once: a row that has one keeps it, whatever the log says by now. With the report come its
  events, memories and checks, so none of them can be counted twice.
- A decision stays as it was. A late report that asks for the next tier leaves a warning in the row, no session.
- Later findings of others outrank late ones: a memory that was confirmed after the session's end is not contradicted
  by it, and no time moves back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.actions import NO_RESULT_SEEN, PastAction
from claudeops.domain.chains.consequences import proof_of, recordable_checks, settle, stated_events
from claudeops.domain.events import NewEvent
from claudeops.domain.memories.learning import LearningResult, OnShelf, learn
from claudeops.domain.memories.memory import ChangeKind, MemoryChange
from claudeops.domain.report.evidence import Background
from claudeops.domain.report.report import ExtractionMethod, ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Ending, Outcome, Session, Status
from claudeops.domain.spending.prices import known_usd
from claudeops.errors import StaleAttemptError
from claudeops.text import clip, json_text

_IGNORED_ESCALATION: Final = (
    "the report asks for the next tier; it was found after the session had ended, so nothing followed"
)

_AGAINST: Final = frozenset({ChangeKind.CONTRADICTED, ChangeKind.SUPERSEDED})

_NO_REPORT: Final = frozenset({None, ExtractionMethod.NONE})


class RejectionReason(StrEnum):
    """Why nothing is taken over from a session's log."""

    UNKNOWN_SESSION = "unknown_session"  # there is no such row
    NOT_ENDED = "not_ended"  # queued or running: its own end is still to be written
    UNKNOWN_HARNESS = "unknown_harness"  # no harness here can read its CLI's output
    NO_LOG = "no_log"  # it was never claimed, so its row names no log
    LOG_MISSING = "log_missing"
    LOG_UNREADABLE = "log_unreadable"  # no permission, not a regular file, a failing disk
    LOG_UNDIGESTED = "log_undigested"  # our own reader failed on its content
    LOG_EMPTY = "log_empty"
    LOG_UNINTELLIGIBLE = "log_unintelligible"  # it holds something, but not one frame
    UNNAMED_SESSION = "unnamed_session"  # no frame names its session
    OTHER_SESSION = "other_session"  # some frame belongs to a session with another id


class BackfillPart(StrEnum):
    """What a backfill wrote."""

    FACTS = "facts"  # columns of the session's row
    REPORT = "report"  # the report with its events, memories and checks
    COST = "cost"  # the cost, and the spend that is settled with it
    TOOL_ENDS = "tool_ends"  # results of tool calls, and of the actions they carried


class BackfillRejected(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was written."""

    reason: RejectionReason
    message: str  # one sentence for the operator


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """What was written; no parts mean that nothing was missing."""

    session: Session  # as it is now
    parts: frozenset[BackfillPart]


class BackfillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored facts that matter for a backfill."""

    session: Session
    warnings: tuple[str, ...]
    shelf: OnShelf  # what is stored of memories
    spend_settled: bool
    unseen_ends: Sequence[PastAction]  # actions that were settled without a result
    reservations: Sequence[PastAction]  # every action of this session
    before: Background  # what earlier sessions of its chain left


class DatedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A memory's change, with the time for its row."""

    change: MemoryChange
    at: datetime


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """Everything to write beside the ends of tool calls."""

    at: datetime  # when the session reported it
    parts: frozenset[BackfillPart]
    values: dict[str, object]  # columns of the session's row
    spend: float | None = None  # US dollars to settle
    events: tuple[NewEvent, ...] = ()  # each fingerprint once
    checks: tuple[ServiceCheck, ...] = ()  # each service once
    healthy_services: tuple[str, ...] = ()  # services whose earlier open events are resolved
    memories: tuple[DatedChange, ...] = ()
    settlements: tuple[PastAction, ...] = ()


def backfillable(session: Session | None, ending: Ending) -> Session | BackfillRejected:
    """Return the session, or why nothing may be written for ``ending``.

    Raises `StaleAttemptError` when the row was ended as another attempt.
    """
    number = ending.session_id
    if session is None:
        return BackfillRejected(reason=RejectionReason.UNKNOWN_SESSION, message=f"Session {number} does not exist.")
    if session.status is not Status.ENDED:
        message = f"Session {number} is {session.status.value}: wait until it has ended."
        return BackfillRejected(reason=RejectionReason.NOT_ENDED, message=message)
    if session.cli_session_id is None or session.cli_session_id != clip(ending.cli_session_id or ""):
        message = (
            f"What was read is of the CLI session {ending.cli_session_id or '(unnamed)'}, "
            f"but session {number} is {session.cli_session_id or 'none'}."
        )
        return BackfillRejected(reason=RejectionReason.OTHER_SESSION, message=message)
    if session.attempt != ending.attempt:
        raise StaleAttemptError(f"session {number} was ended as attempt {session.attempt}, not {ending.attempt}.")
    return session


def backfill_of(ending: Ending, known: BackfillRecord) -> Backfill:
    """Return what the row lacks."""
    session = known.session
    at = min(ending.ended_at, session.ended_at or ending.ended_at)
    settlements = tuple(_settled(known.unseen_ends, ending))
    ends = {BackfillPart.TOOL_ENDS} if settlements else set()
    report = ending.extraction.report is not None and session.extraction_method in _NO_REPORT
    cost = known_usd(ending.cost_usd) is not None and session.cost_usd is None
    if not (report or cost or session.extraction_method is None):
        return Backfill(at=at, parts=frozenset(ends), values={}, settlements=settlements)
    proof = proof_of(ending, known.reservations, known.before, other_names={})
    checks, unproven = recordable_checks(ending, proof) if report else ((), ())
    learnt = (
        learn(session, ending, known.shelf, proof=proof, before=known.before, at=at) if report else LearningResult()
    )
    parts = {
        BackfillPart.FACTS,
        *({BackfillPart.REPORT} if report else ()),
        *({BackfillPart.COST} if cost else ()),
        *ends,
    }
    return Backfill(
        at=at,
        parts=frozenset(parts),
        values=_values(ending, known, unproven=(*unproven, *learnt.warnings), report=report, cost=cost),
        spend=ending.cost_usd if cost and not known.spend_settled else None,
        events=stated_events(ending, learnt.events) if report else (),
        checks=checks,
        healthy_services=tuple(check.service for check in checks if check.status is ServiceStatus.HEALTHY),
        memories=tuple(_dated(learnt, known, at)),
        settlements=settlements,
    )


def stream_values(ending: Ending, *, warnings: Sequence[str]) -> dict[str, object]:
    """Return the columns that only the stream can fill, without the report and the cost."""
    return {
        "api_key_source": ending.api_key_source,
        "num_turns": ending.num_turns,
        "input_tokens": ending.input_tokens,
        "output_tokens": ending.output_tokens,
        "response": ending.response,
        "tool_calls_seen": ending.tool_calls_seen,
        "calls_ran": ending.calls_ran,
        "malformed_lines": ending.malformed_lines,
        "permission_mode": ending.permission_mode,
        "stop_reason": ending.stop_reason,
        "cli_duration_ms": ending.cli_duration_ms,
        "cached_input_tokens": ending.cached_input_tokens,
        "reasoning_output_tokens": ending.reasoning_output_tokens,
        "tool_errors": ending.tool_errors,
        "api_retries": ending.api_retries,
        "unknown_frames": ending.unknown_frames,
        "last_assistant_text": ending.last_assistant_text,
        "warnings": json_text(list(warnings)),
    }


def report_summary(ending: Ending) -> str | None:
    """Return the summary of an ending's report."""
    report = ending.extraction.report
    return report.summary if report else None


def _values(
    ending: Ending, known: BackfillRecord, *, unproven: tuple[str, ...], report: bool, cost: bool
) -> dict[str, object]:
    """Return the columns to fill; columns about which the log says nothing stay as they are."""
    session = known.session
    warnings = [*ending.extraction.warnings, *ending.warnings, *unproven]
    if report and ending.extraction.report is not None and ending.extraction.report.escalation.needed:
        warnings.append(_IGNORED_ESCALATION)
    if session.outcome is not Outcome.LOST or session.extraction_method not in _NO_REPORT:
        warnings = [*known.warnings, *(warning for warning in warnings if warning not in known.warnings)]
    values = {name: value for name, value in stream_values(ending, warnings=warnings).items() if value is not None}
    if report or session.extraction_method is None:
        values["extraction_method"] = ending.extraction.method.value
    if report:
        values["summary"] = report_summary(ending)
    if cost:
        values["cost_usd"] = ending.cost_usd
    return values


def _dated(learnt: LearningResult, known: BackfillRecord, at: datetime) -> Iterable[DatedChange]:
    confirmed = {old.id: old.updated_at for old in known.shelf.memories}
    for change in learnt.changes:
        latest = at if change.id is None else max(at, confirmed[change.id])
        if change.kind not in _AGAINST or latest == at:
            yield DatedChange(change=change, at=latest)


def _settled(reservations: Iterable[PastAction], ending: Ending) -> Iterable[PastAction]:
    return (settled for settled in settle(reservations, ending.tool_ends) if settled.error != NO_RESULT_SEEN)
