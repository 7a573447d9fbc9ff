"""What an answer of the model API means for all sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.holds import ApiAnswer, ApiError, refusal, resets_at
from claudeops.domain.sessions import FailureKind

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=90)
TOKENS = "anthropic-ratelimit-tokens"


def answer(status: int, kind: str = "", message: str = "no", **headers: str) -> ApiAnswer:
    error = ApiError(type=kind, message=message) if kind else None
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ApiAnswer(status=status, headers=named, error=error)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (answer(429, "rate_limit_error"), FailureKind.RATE_LIMIT),
        (answer(429), FailureKind.RATE_LIMIT),
        (answer(529, "overloaded_error"), FailureKind.OVERLOADED),
        (answer(200, "overloaded_error"), FailureKind.OVERLOADED),  # in the middle of a stream
        (answer(503), FailureKind.OVERLOADED),
        (answer(401, "authentication_error"), FailureKind.AUTH),
        (answer(403, "permission_error"), FailureKind.AUTH),
        (answer(402, "billing_error"), FailureKind.BILLING),
        (answer(400, "invalid_request_error", "Your credit balance is too low"), FailureKind.BILLING),
    ],
)
def test_refusals_that_concern_everybody(given: ApiAnswer, kind: FailureKind) -> None:
    found = refusal(given, session_id=7, now=NOW)
    assert found is not None
    assert (found.kind, found.session_id) == (kind, 7)


@pytest.mark.parametrize(
    "given",
    [answer(200), answer(400, "invalid_request_error"), answer(404, "not_found_error"), answer(500, "api_error")],
)
def test_other_answers_concern_one_call(given: ApiAnswer) -> None:
    assert refusal(given, session_id=7, now=NOW) is None


def test_only_what_the_cli_repeats_by_itself_is_being_tried() -> None:
    tried = [answer(429), answer(429, x_should_retry="false"), answer(529), answer(401), answer(402)]
    found = [refusal(given, session_id=7, now=NOW) for given in tried]
    assert [given and given.trying for given in found] == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "90"}, LATER),
        ({"retry-after": "Sun, 01 Mar 2026 12:01:30 GMT"}, LATER),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e400"}, None),
        ({f"{TOKENS}-remaining": "0", f"{TOKENS}-reset": "2026-03-01T12:01:30Z"}, LATER),
        ({f"{TOKENS}-remaining": "5", f"{TOKENS}-reset": "2026-03-01T12:01:30Z"}, None),
        ({f"{TOKENS}-remaining": "0", f"{TOKENS}-reset": "whenever"}, None),
        ({"anthropic-ratelimit-unified-reset": str(int(LATER.timestamp()))}, LATER),
        ({"anthropic-ratelimit-unified-reset": "1e300"}, None),
        ({"retry-after": "90", "anthropic-ratelimit-unified-reset": "1"}, LATER),
    ],
)
def test_when_the_api_serves_again(headers: dict[str, str], expected: datetime | None) -> None:
    assert resets_at(headers, NOW) == expected


def test_the_last_of_the_used_up_limits_counts() -> None:
    both = {
        f"{TOKENS}-remaining": "0",
        f"{TOKENS}-reset": "2026-03-01T12:00:30Z",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-03-01T12:01:30Z",
    }
    assert resets_at(both, NOW) == LATER
