"""What a list shows: moments and ids as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Reference, duration, levels_from, moment, reference

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW - timedelta(hours=2)),
        ("30m", NOW - timedelta(minutes=30)),
        ("7d", NOW - timedelta(days=7)),
        ("1H30m", NOW - timedelta(minutes=90)),
        (" 1.5h ", NOW - timedelta(minutes=90)),
        ("2026-06-30", datetime(2026, 6, 30, tzinfo=UTC)),
        ("2026-06-30T14:30", datetime(2026, 6, 30, 14, 30, tzinfo=UTC)),
        ("2026-06-30T14:30Z", datetime(2026, 6, 30, 14, 30, tzinfo=UTC)),
        ("2026-06-30T14:30+02:00", datetime(2026, 6, 30, 12, 30, tzinfo=UTC)),
    ],
)
def test_a_moment_is_an_age_or_a_time(text: str, expected: datetime) -> None:
    assert moment(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "2", "h", "2x", "2h3", "..h", "yesterday", "9999999999d", "\uff12h", "2026-13-01"]
)
def test_what_is_no_moment_is_refused_with_what_may_be_written(text: str) -> None:
    with pytest.raises(ValueError, match="write an age"):
        moment(text, NOW)


def test_a_length_of_time_is_no_date() -> None:
    assert duration("90s") == timedelta(seconds=90)
    with pytest.raises(ValueError, match="no length of time"):
        duration("2026-07-01")


def test_a_level_stands_for_itself_and_what_is_worse() -> None:
    assert levels_from(EventLevel.WARNING) == (EventLevel.WARNING, EventLevel.CRITICAL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", Reference(number=12, prefix=None)),
        ("#12", Reference(number=12, prefix=None)),
        ("s12", Reference(number=12, prefix=None)),
        ("1234", Reference(number=1234, prefix="1234")),
        ("7F3A-", Reference(number=None, prefix="7f3a-")),
        ("99999999999", Reference(number=None, prefix="99999999999")),
    ],
)
def test_a_session_is_named_by_its_number_or_by_the_beginning_of_its_clis_id(text: str, expected: Reference) -> None:
    assert reference(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-3", "abc", "jellyfin", "12 13"])
def test_what_names_no_session_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no session's id"):
        reference(text)
