"""At which times a film shows its lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from claudeops.web.pages.film import FOLD, frames_of
from claudeops.wording.stream import ShownKind, ShownLine

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def line(number: int, seconds: float | None) -> ShownLine:
    at = None if seconds is None else NOON + timedelta(seconds=seconds)
    return ShownLine(line=number, at=at, kind=ShownKind.TEXT, title="x")


def test_lines_come_when_they_came_and_long_waits_are_folded() -> None:
    frames = frames_of([line(1, 0), line(2, 1.5), line(3, 601.5), line(4, 602)])
    assert [frame.at_ms for frame in frames] == [0, 1500, 4500, 5000]
    assert [frame.waited_s for frame in frames] == [0, 0, 600, 0]


def test_a_line_whose_time_is_not_known_comes_with_the_one_before() -> None:
    frames = frames_of([line(1, 0), line(2, None), line(3, 2)])
    assert [frame.at_ms for frame in frames] == [0, 0, 2000]


@given(st.lists(st.none() | st.floats(min_value=-1e6, max_value=1e6), max_size=30))
def test_whatever_clocks_say_a_film_never_goes_back_and_waits_for_nothing_long(times: list[float | None]) -> None:
    frames = frames_of([line(number, seconds) for number, seconds in enumerate(times, start=1)])
    steps = [after.at_ms - before.at_ms for before, after in pairwise(frames)]
    assert all(0 <= step <= FOLD.total_seconds() * 1000 + 1 for step in steps)
    assert len(frames) == len(times)
