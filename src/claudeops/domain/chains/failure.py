"""Failures as a stream reports them: clauditor's error category, and what a supervisor should do.

The category follows clauditor to the letter (plain substrings, in its order) wherever the stream has no
structured status. The failure kind is ours: it parks and stops sessions, so it matches whole words.

Two ways in which a session looks finished and is not, by clauditor's rules: it asked a question that nobody
answers, or it started subagents in the background and did not wait for them. Both are guesses: they yield a
category and a warning, never an error.
"""

from __future__ import annotations

from typing import Final

import msgspec

from claudeops.domain.report.report import Escalation, Report
from claudeops.domain.sessions import ErrorCategory, FailureKind, Session
from claudeops.domain.stream.transcript import Transcript, says_it_waits
from claudeops.text import one_line, regex

ERROR_CHARS: Final = 4096
"""Longest error text, in characters; clauditor's number."""

_CUT: Final = " ... (truncated)"

# Labels of the CLI's ``assistant`` frames and api_retry lines (its own list, 2.1.329). Those that are missing here
# (``unknown``, ``max_output_tokens``) say nothing, so the words decide.
_LABEL_CATEGORIES: Final = {
    "rate_limit": ErrorCategory.RATE_LIMIT,
    "authentication_failed": ErrorCategory.AUTH,
    "oauth_org_not_allowed": ErrorCategory.AUTH,
    "cloud_credential_error": ErrorCategory.AUTH,
    "billing_error": ErrorCategory.API,
    "account_on_hold": ErrorCategory.API,
    "verification_required": ErrorCategory.API,
    "overloaded": ErrorCategory.API,
    "server_error": ErrorCategory.API,
    "invalid_request": ErrorCategory.API,
    "model_not_found": ErrorCategory.API,
    "refusal": ErrorCategory.API,
}
_LABEL_KINDS: Final = {
    "rate_limit": FailureKind.RATE_LIMIT,
    "overloaded": FailureKind.OVERLOADED,
    "authentication_failed": FailureKind.AUTH,
    "oauth_org_not_allowed": FailureKind.AUTH,
    "cloud_credential_error": FailureKind.AUTH,
    "billing_error": FailureKind.BILLING,
    "account_on_hold": FailureKind.BILLING,
    "refusal": FailureKind.REFUSAL,
}
_STATUS_CATEGORIES: Final = {
    429: ErrorCategory.RATE_LIMIT,
    401: ErrorCategory.AUTH,
    403: ErrorCategory.AUTH,
}
_STATUS_KINDS: Final = {
    429: FailureKind.RATE_LIMIT,
    503: FailureKind.OVERLOADED,
    529: FailureKind.OVERLOADED,
    401: FailureKind.AUTH,
    403: FailureKind.AUTH,
    402: FailureKind.BILLING,
}
_RATE_LIMIT_WORDS: Final = ("429", "rate limit", "rate-limit")
_AUTH_WORDS: Final = ("401", "403", "unauthorized", "authentication", "auth error", "anthropic_api_key")
_KIND_WORDS: Final = (
    (FailureKind.BILLING, regex.Pattern(r"\b402\b|credit balance|billing")),
    (
        FailureKind.RATE_LIMIT,
        regex.Pattern(
            r"\b429\b|rate[-_ ]limit|\bquota\b|(usage|session|weekly|hour) limit reached|hit your usage limit"
        ),
    ),
    (FailureKind.OVERLOADED, regex.Pattern(r"\b(529|503)\b|overloaded")),
    (FailureKind.AUTH, regex.Pattern(r"\b(401|403)\b|unauthori[sz]ed|authenticat|not logged in|invalid api key")),
    # Older versions of the CLI say it in words alone.
    (FailureKind.REFUSAL, regex.Pattern(r"safeguards flagged this message|appears to violate our usage policy")),
)


def cut(text: str) -> str:
    """Return ``text``, cut to `ERROR_CHARS` characters with a note that it was cut."""
    return text if len(text) <= ERROR_CHARS else text[:ERROR_CHARS] + _CUT


def category_of(transcript: Transcript, error: str) -> ErrorCategory:
    """Return the category of a result line that is an error: status first, then label, then words of ``error``."""
    status = transcript.api_error_status
    if status is not None:
        return _STATUS_CATEGORIES.get(status, ErrorCategory.API)
    label = _LABEL_CATEGORIES.get(transcript.error_label or "")
    if label is not None:
        return label
    words = error.lower()
    if any(word in words for word in _RATE_LIMIT_WORDS):
        return ErrorCategory.RATE_LIMIT
    if any(word in words for word in _AUTH_WORDS):
        return ErrorCategory.AUTH
    return ErrorCategory.API


def kind_of(transcript: Transcript, error: str | None) -> FailureKind:
    """Return what to do about a failed session; ``error`` is its whole error text.

    A label outranks a status (exhausted credit is a 400), and both outrank words; so does a refusal. If the CLI was
    repeating a model call when it ended, that call's failure is the last thing known, and so the cause.
    """
    retry = transcript.last_retry
    label = retry.error if retry else transcript.error_label
    status = retry.status if retry else transcript.api_error_status
    kind = kind_of_call(label=label, status=status)
    if kind is not FailureKind.OTHER:
        return kind
    if transcript.refused and retry is None:
        return FailureKind.REFUSAL
    if transcript.rate_limited:
        return FailureKind.RATE_LIMIT
    words = (error or "").lower()
    return next((kind for kind, pattern in _KIND_WORDS if pattern.search(words)), FailureKind.OTHER)


def kind_of_call(*, label: str | None, status: int | None) -> FailureKind:
    """Return what kind of failure one model call was; a label outranks a status."""
    return _LABEL_KINDS.get(label or "") or _STATUS_KINDS.get(status or 0) or FailureKind.OTHER


# --- sessions that look finished and are not ----------------------------------------------------------


_HANG: Final = "interactive-hang: the session may have asked for input, and nobody answers (heuristic)"
_BACKGROUND: Final = "background-task: subagents were started in the background and not waited for (heuristic)"


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """What the heuristics suspect."""

    category: ErrorCategory | None = None
    warnings: tuple[str, ...] = ()


NOTHING_SUSPECTED: Final = Suspicion()


def suspect(transcript: Transcript, *, has_report: bool, background_tasks_disabled: bool) -> Suspicion:
    """Return what is suspicious about a session that ended without an error.

    A validated report may well end in a question mark. So where there is a report, only too few turns for the
    launches cause a warning, without a category.
    """
    if has_report:
        warned = not background_tasks_disabled and _too_few_turns(transcript)
        return Suspicion(warnings=(_BACKGROUND,)) if warned else NOTHING_SUSPECTED
    if _asks(transcript):
        return Suspicion(category=ErrorCategory.INTERACTIVE, warnings=(_HANG,))
    if not background_tasks_disabled and _waits(transcript):
        return Suspicion(category=ErrorCategory.BACKGROUND_TASK, warnings=(_BACKGROUND,))
    return NOTHING_SUSPECTED


def _asks(transcript: Transcript) -> bool:
    if transcript.num_turns != 1 or transcript.stop_reason != "end_turn":
        return False
    return transcript.ask_user_question or transcript.text.strip().endswith("?")


def _waits(transcript: Transcript) -> bool:
    """Say whether background work was abandoned; the phrase counts without a result line too."""
    if transcript.background_launches == 0:
        return False
    return transcript.says_it_waits or says_it_waits(transcript.text) or _too_few_turns(transcript)


def _too_few_turns(transcript: Transcript) -> bool:
    """Say whether there were too few turns for one look at each launch and a conclusion."""
    launches, turns = transcript.background_launches, transcript.num_turns
    return launches > 0 and turns is not None and turns < launches + 2


# --- a model that refuses -----------------------------------------------------------------------------


def wish_after_refusal(session: Session, error: str | None) -> Report:
    """Return what asks for the next tier in the name of a session whose model has refused: it says nothing itself."""
    before, said = session.context, f": {one_line(error)}" if error else ""
    wish = Escalation(
        needed=True,
        reason=f"the model {session.model} of tier {session.tier} refused{said}",
        context=before.findings if before else "Nothing was looked at: the tier before left its own task to this one.",
        failed_checks=before.failed_checks if before else (),
    )
    checks = before.service_status if before else ()
    return Report(summary=wish.reason or "", escalation=wish, services_checked=checks)
