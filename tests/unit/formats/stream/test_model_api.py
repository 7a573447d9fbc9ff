"""What a stream tells of the model API: calls repeated, limits hit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from claudeops.formats.stream import ApiRetried, RateLimited
from support.streams import read, result, said


def test_retry_stands_until_something_follows() -> None:
    line = {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": 529, "error_category": "overloaded"}
    retry = ApiRetried(attempt=1, status=529, error="overloaded")
    reading = read(line)
    assert reading.events == (retry,)
    assert reading.transcript.last_retry == retry
    assert read(line, said("a")).transcript.last_retry is None
    assert read(line, result()).transcript.last_retry is None


def limit(status: str, **info: object) -> dict[str, Any]:
    return {"type": "rate_limit_event", "rate_limit_info": {"status": status, **info}}


def test_rejected_limit_tells_when_it_resets() -> None:
    reading = read(limit("rejected", resetsAt=1795250649, rateLimitType="five_hour"))
    moment = datetime(2026, 11, 21, 8, 44, 9, tzinfo=UTC)
    assert reading.events == (RateLimited(rejected=True, status="rejected", window="five_hour", resets_at=moment),)
    assert (reading.transcript.rate_limited, reading.transcript.rate_limit_resets_at) == (True, moment)


def test_notice_of_a_limit_is_no_limit() -> None:
    assert not read(limit("allowed_warning", resetsAt=1795250649)).transcript.rate_limited
    assert not read(limit("rejected"), limit("allowed")).transcript.rate_limited


@pytest.mark.parametrize(
    ("resets_at", "moment"),
    [
        (1795250649000, datetime(2026, 11, 21, 8, 44, 9, tzinfo=UTC)),  # milliseconds
        (1795250649.7, datetime(2026, 11, 21, 8, 44, 9, tzinfo=UTC)),
        *[(value, None) for value in (0, -5, "soon", None, True, 10**18, 10**30)],
    ],
)
def test_reset_time_that_is_none_is_unknown(resets_at: object, moment: datetime | None) -> None:
    assert read(limit("rejected", resetsAt=resets_at)).transcript.rate_limit_resets_at == moment
