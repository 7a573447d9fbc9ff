"""How a session's end is told in the words of the envelope: stop reason, error, exit status."""

from __future__ import annotations

from typing import Final

from claudeops.cli import reply
from claudeops.cli.reply import ErrorKind, Exit, StopReason
from claudeops.domain.sessions import DecisionReason, ErrorCategory, Outcome, Session

TIMEOUTS: Final = frozenset({Outcome.TIMEOUT, Outcome.STARTUP_TIMEOUT, Outcome.STALLED})

_KILLED: Final = frozenset({-9, 137})  # exit statuses of a process that was not asked any more
_FOR_NOW: Final = frozenset({DecisionReason.PAUSED, DecisionReason.BUDGET})  # reasons why no chain starts
_STOPPED: Final = TIMEOUTS | {Outcome.CANCELLED}
_LOG: Final = "`claudeops load-session {id}` has what is on record, its log the rest."
_BOUNDS: Final = "Raise the bound that the message names, or give the session less to do."

_OF_CATEGORIES: Final = {
    ErrorCategory.AUTH: (ErrorKind.AUTH, False, "provider.call", "`claudeops doctor` tries the credentials."),
    ErrorCategory.RATE_LIMIT: (ErrorKind.RUNTIME, True, "provider.call", "Wait until the limit is over."),
    ErrorCategory.API: (ErrorKind.RUNTIME, True, "provider.call", "Try again later; the log has the API's answer."),
    ErrorCategory.INTERACTIVE: (ErrorKind.SESSION, False, "session", "Say in the prompt what to do without an answer."),
    ErrorCategory.BACKGROUND_TASK: (ErrorKind.SESSION, False, "session", "Have it wait for its own work."),
}
_OF_OUTCOMES: Final = {
    Outcome.MAX_TURNS: (ErrorKind.POLICY, False, "session", _BOUNDS),
    Outcome.BUDGET_EXCEEDED: (ErrorKind.POLICY, False, "session", _BOUNDS),
    Outcome.UNGATED_CALL: (ErrorKind.POLICY, False, "session", _LOG),
    Outcome.SPAWN_FAILED: (ErrorKind.FILESYSTEM, False, "spawn", "`claudeops doctor` looks for the CLI."),
    Outcome.CANCELLED: (ErrorKind.RUNTIME, True, "session", "Run it again."),
    Outcome.TIMEOUT: (ErrorKind.RUNTIME, True, "session", _BOUNDS),
    Outcome.STARTUP_TIMEOUT: (ErrorKind.RUNTIME, True, "session", "See what keeps this machine busy, and try again."),
    Outcome.STALLED: (ErrorKind.RUNTIME, True, "session", _LOG),
    Outcome.LOST: (ErrorKind.RUNTIME, True, "session", "Run it again."),
}


def stop_reason(outcome: Outcome | None) -> StopReason:
    """Return how a session's turn ended."""
    match outcome:
        case Outcome.MAX_TURNS:
            return StopReason.MAX_TURNS_REACHED
        case Outcome.BUDGET_EXCEEDED:
            return StopReason.MAX_BUDGET_REACHED
        case Outcome.CANCELLED:
            return StopReason.CANCELLED
        case _ if outcome in TIMEOUTS:
            return StopReason.TIMEOUT
        case _:
            return StopReason.COMPLETED


def cancel_observed(session: Session) -> bool:
    """Return whether a session that was stopped ended by itself when it was asked to, and was not killed."""
    return session.outcome in _STOPPED and session.exit_code is not None and session.exit_code not in _KILLED


def turn(session: Session, prompt: str) -> dict[str, object]:
    """Return a session as the turn of an envelope."""
    return {
        "prompt": prompt,
        "output": session.summary or session.error or "",
        "stop_reason": stop_reason(session.outcome).value,
        "cancel_observed": cancel_observed(session),
    }


def exit_of(session: Session) -> Exit:
    """Return the exit status of a command that ran this session alone, in text mode."""
    match session.outcome:
        case Outcome.SUCCESS:
            return Exit.OK
        case Outcome.MAX_TURNS:
            return Exit.TRY_LATER
        case Outcome.BUDGET_EXCEEDED:
            return Exit.BUDGET
        case _ if session.outcome in _STOPPED:
            return Exit.CANCELLED
        case _:
            return Exit.UNRESOLVED


def exit_of_refusal(reason: DecisionReason) -> Exit:
    """Return the exit status of a command whose chain was not started: what only holds for now is to be tried later."""
    return Exit.TRY_LATER if reason in _FOR_NOW else Exit.UNRESOLVED


def error_of(session: Session, target: str) -> dict[str, object]:
    """Return the error part of a document for a session that did not succeed."""
    unknown = (ErrorKind.SESSION, False, "session", _LOG)
    by_outcome = _OF_OUTCOMES.get(session.outcome, unknown) if session.outcome is not None else unknown
    by_category = _OF_CATEGORIES.get(session.error_category) if session.error_category is not None else None
    kind, retryable, operation, hint = by_outcome if session.outcome in _OF_OUTCOMES else by_category or by_outcome
    return reply.error_body(
        kind=kind,
        operation=operation,
        target=target,
        retryable=retryable,
        message=session.error or f"The session ended with {session.outcome or session.status}.",
        hint=hint.format(id=session.id),
    )
