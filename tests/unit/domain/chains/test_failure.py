"""What kind of failure it was: the contract's category, and what a supervisor should do about it."""

from __future__ import annotations

from typing import Any

import pytest

from claudeops.domain.chains.outcome import ProcessExit, StopCause
from claudeops.domain.sessions import ErrorCategory, FailureKind
from claudeops.formats.stream import Transcript
from support.streams import failed, judged, result, said, transcript_of


def retry(status: int | None, error: str | None = None) -> dict[str, Any]:
    return {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": status, "error": error}


# --- category: status, then label, then words ---------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "label", "text", "category"),
    [
        (429, "authentication_failed", "401", ErrorCategory.RATE_LIMIT),
        (401, "rate_limit", "429", ErrorCategory.AUTH),
        (403, None, "", ErrorCategory.AUTH),
        (500, "rate_limit", "429", ErrorCategory.API),
        (None, "rate_limit", "401", ErrorCategory.RATE_LIMIT),
        (None, "authentication_failed", "429", ErrorCategory.AUTH),
        (None, "billing_error", "429", ErrorCategory.API),
        (None, "unknown", "429", ErrorCategory.RATE_LIMIT),
        ("429", None, "unauthorized", ErrorCategory.AUTH),
        (None, None, "Rate Limit reached, 401", ErrorCategory.RATE_LIMIT),
        (None, None, "RATE-LIMIT", ErrorCategory.RATE_LIMIT),
        (None, None, "rate_limit", ErrorCategory.API),  # the contract's words have no underscore
        (None, None, "port 4012 is closed", ErrorCategory.AUTH),  # plain substrings, by contract
        (None, None, "req 14290", ErrorCategory.RATE_LIMIT),
        (None, None, "Auth Error", ErrorCategory.AUTH),
        (None, None, "HTTP 500", ErrorCategory.API),
    ],
)
def test_category(status: object, label: str | None, text: str, category: ErrorCategory) -> None:
    transcript = transcript_of(said("a", error=label), failed(api_error_status=status, result=text))
    assert judged(transcript).category is category


# --- failure kind -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "label", "text", "kind"),
    [
        (429, None, "", FailureKind.RATE_LIMIT),
        (529, None, "", FailureKind.OVERLOADED),
        (503, None, "", FailureKind.OVERLOADED),
        (401, None, "", FailureKind.AUTH),
        (403, None, "", FailureKind.AUTH),
        (402, None, "", FailureKind.BILLING),
        (400, "billing_error", "", FailureKind.BILLING),
        (400, None, "Credit balance is too low", FailureKind.BILLING),
        (500, None, "Internal server error", FailureKind.OTHER),
        (None, "overloaded", "", FailureKind.OVERLOADED),
        (None, "rate_limit", "", FailureKind.RATE_LIMIT),
        (None, "authentication_failed", "", FailureKind.AUTH),
        (None, None, "API Error: 529 overloaded", FailureKind.OVERLOADED),
        (None, None, "Not logged in · Please run /login", FailureKind.AUTH),
        (None, None, "Claude AI usage limit reached|1795250649", FailureKind.RATE_LIMIT),
        (None, None, "429 Too Many Requests", FailureKind.RATE_LIMIT),
        (None, None, "port 4012 is closed, req 14290", FailureKind.OTHER),  # words, not substrings: this one parks
        (None, None, "hook denied: Bash", FailureKind.OTHER),
    ],
)
def test_failure_kind(status: int | None, label: str | None, text: str, kind: FailureKind) -> None:
    transcript = transcript_of(said("a", error=label), failed(api_error_status=status, result=text))
    assert judged(transcript).failure_kind is kind


@pytest.mark.parametrize("subtype", ["error_max_structured_output_retries", "error_max_turns", "error_max_budget_usd"])
def test_cap_whose_text_speaks_of_authentication_does_not_stop_all_sessions(subtype: str) -> None:
    errors = ["must have required property 'authentication', reached 429"]
    for lines in ([failed(subtype=subtype, errors=errors)], [result(subtype=subtype, errors=errors)]):
        assert judged(transcript_of(*lines)).failure_kind is FailureKind.OTHER
        assert judged(transcript_of(failed(subtype=subtype, errors=errors), *lines)).failure_kind is FailureKind.OTHER


def test_schema_failure_before_a_success_does_not_stop_all_sessions() -> None:
    line = failed(subtype="error_max_structured_output_retries", errors=["no property 'authentication'"])
    assert judged(transcript_of(line, said("a"), result())).failure_kind is FailureKind.OTHER


def test_refused_credentials_may_be_an_unpaid_bill() -> None:
    exited = ProcessExit(code=-15, stop=StopCause.AUTH_REFUSED)
    assert judged(transcript_of(retry(403, "billing_error")), exited).failure_kind is FailureKind.BILLING


@pytest.mark.parametrize("stop", [None, StopCause.TIMEOUT, StopCause.STALLED, StopCause.CANCELLED])
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (retry(429), FailureKind.RATE_LIMIT),
        (retry(529, "overloaded"), FailureKind.OVERLOADED),
        (retry(None, "authentication_failed"), FailureKind.AUTH),
        (retry(None, None), FailureKind.OTHER),
    ],
)
def test_session_that_died_repeating_a_call_died_of_that(
    stop: StopCause | None, line: dict[str, Any], kind: FailureKind
) -> None:
    assert judged(transcript_of(said("a"), line), ProcessExit(code=-15, stop=stop)).failure_kind is kind


def test_repair_turn_that_died_repeating_a_call_died_of_that() -> None:
    transcript = transcript_of(said("a"), failed(api_error_status=500), retry(429))
    assert judged(transcript, ProcessExit(code=-15, stop=StopCause.TIMEOUT)).failure_kind is FailureKind.RATE_LIMIT


def test_retry_that_was_overcome_is_forgotten() -> None:
    assert judged(transcript_of(retry(429), said("a")), ProcessExit(code=1)).failure_kind is FailureKind.OTHER
    assert judged(transcript_of(retry(429), said("a"), result())).failure_kind is None


def test_hit_plan_limit_parks() -> None:
    line = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1795250649}}
    assert judged(transcript_of(line, failed(result="see you later"))).failure_kind is FailureKind.RATE_LIMIT


def test_key_that_is_refused_stops_all_although_no_frame_said_so() -> None:
    judgement = judged(Transcript(), ProcessExit(code=1, stderr_tail="Invalid API key · Please run /login\n"))
    assert judgement.failure_kind is FailureKind.AUTH
