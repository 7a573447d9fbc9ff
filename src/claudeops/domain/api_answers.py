"""What an answer of the model API says about all sessions: a refusal, and when the API serves again.

https://docs.anthropic.com/en/api/errors and https://docs.anthropic.com/en/api/rate-limits name types and headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from claudeops.domain.model import FailureKind
from claudeops.domain.outcome.failure import kind_of_call
from claudeops.domain.refusals import REFUSALS, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from claudeops.domain.usage import ApiError

_KINDS: Final = {
    "rate_limit_error": FailureKind.RATE_LIMIT,
    "overloaded_error": FailureKind.OVERLOADED,
    "authentication_error": FailureKind.AUTH,
    "billing_error": FailureKind.BILLING,
}
_NO_CREDIT: Final = "credit balance"  # an account without money is told by a 400: "Your credit balance is too low …"
_TRIED_AGAIN: Final = frozenset({FailureKind.RATE_LIMIT, FailureKind.OVERLOADED})
_LIMITS: Final = ("requests", "tokens", "input-tokens", "output-tokens")
_PREFIX: Final = "anthropic-ratelimit-"
_PLAN_RESET: Final = f"{_PREFIX}unified-reset"  # of a subscription: seconds since the epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiAnswer:
    """How one call was answered."""

    status: int
    headers: Mapping[str, str]  # lower-case names
    error: ApiError | None = None  # also one that came in the middle of a stream


def refusal(answer: ApiAnswer, *, session_id: int, now: datetime) -> Refusal | None:
    """Return the refusal that an answer is, if it is one that concerns all sessions."""
    kind = _kind(answer)
    if kind not in REFUSALS:
        return None
    return Refusal(
        kind=kind,
        message=answer.error.message if answer.error else f"HTTP {answer.status}",
        resets_at=resets_at(answer.headers, now),
        session_id=session_id,
        trying=kind in _TRIED_AGAIN and answer.headers.get("x-should-retry") != "false",
    )


def resets_at(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """Return when the API says that it serves again: ``retry-after``, else the last of the limits that are used up."""
    return _retry_after(headers.get("retry-after", ""), now) or max(_resets(headers), default=None)


def _kind(answer: ApiAnswer) -> FailureKind:
    if answer.error is not None:
        if answer.error.type in _KINDS:
            return _KINDS[answer.error.type]
        if _NO_CREDIT in answer.error.message.lower():
            return FailureKind.BILLING
    return kind_of_call(label=None, status=answer.status)


def _retry_after(text: str, now: datetime) -> datetime | None:
    """Return the time of a ``retry-after``, which is seconds or a date (RFC 9110, 10.2.3)."""
    try:
        return now + timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        pass
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _resets(headers: Mapping[str, str]) -> Iterator[datetime]:
    for limit in _LIMITS:
        if headers.get(f"{_PREFIX}{limit}-remaining") == "0":
            try:
                yield datetime.fromisoformat(headers.get(f"{_PREFIX}{limit}-reset", "")).astimezone(UTC)
            except (ValueError, OverflowError):
                continue
    try:
        yield datetime.fromtimestamp(float(headers.get(_PLAN_RESET, "")), UTC)
    except (ValueError, OverflowError, OSError):
        return
