"""Windows of the week: past midnight, through both passings of daylight saving, and as operators write them."""

from __future__ import annotations

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from claudeops.domain.estate.estate import MaintenanceWindow
from claudeops.domain.schedules.windows import EVERY_DAY, Window, is_open, open_at, read_window

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN, *, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


@pytest.mark.parametrize(
    ("window", "moment", "lies_in"),
    [
        ("22:00-06:00", "2026-03-04 21:59:59", False),
        ("22:00-06:00", "2026-03-04 22:00", True),
        ("22:00-06:00", "2026-03-05 05:59:59", True),
        ("22:00-06:00", "2026-03-05 06:00", False),
        ("sun 22:00-06:00", "2026-03-01 23:00", True),  # a Sunday
        ("sun 22:00-06:00", "2026-03-02 05:00", True),  # it has begun on Sunday
        ("sun 22:00-06:00", "2026-03-01 05:00", False),  # Saturday's would be another one
        ("mon-fri 09:00-17:00", "2026-03-06 12:00", True),
        ("mon-fri 09:00-17:00", "2026-03-07 12:00", False),
        ("sat,sun 00:00-24:00", "2026-03-08 23:59:59", True),
        ("sat,sun 00:00-24:00", "2026-03-09 00:00", False),
        ("fri-mon 10:00-11:00", "2026-03-08 10:30", True),
        ("fri-mon 10:00-11:00", "2026-03-10 10:30", False),
        ("12:00-12:00", "2026-03-08 11:59", True),  # a whole day, again and again
    ],
)
def test_a_window_holds_its_begin_and_not_its_end(window: str, moment: str, lies_in: bool) -> None:
    assert is_open(read_window(window), at(moment), BERLIN) is lies_in


@pytest.mark.parametrize(
    ("window", "moment", "lies_in"),
    [
        # 2026-03-29: two becomes three
        ("02:15-02:45", "2026-03-29T00:59:59+00:00", False),
        ("02:15-02:45", "2026-03-29T01:15:00+00:00", True),  # 03:15, behind the gap
        ("02:15-02:45", "2026-03-29T01:44:59+00:00", True),
        ("02:15-02:45", "2026-03-29T01:45:00+00:00", False),
        ("01:30-02:30", "2026-03-29T01:29:59+00:00", True),  # an hour long, as on every day
        ("01:30-02:30", "2026-03-29T01:30:00+00:00", False),
        ("22:00-06:00", "2026-03-29T03:59:59+00:00", True),
        ("22:00-06:00", "2026-03-29T04:00:00+00:00", False),
        # 2026-10-25: three becomes two
        ("02:15-02:45", "2026-10-25T00:14:59+00:00", False),
        ("02:15-02:45", "2026-10-25T00:15:00+00:00", True),  # the first 02:15
        ("02:15-02:45", "2026-10-25T01:44:59+00:00", True),  # the second 02:44
        ("02:15-02:45", "2026-10-25T01:45:00+00:00", False),
        ("22:00-06:00", "2026-10-25T04:59:59+00:00", True),
        ("22:00-06:00", "2026-10-25T05:00:00+00:00", False),
    ],
)
def test_a_window_lasts_through_the_passings_of_daylight_saving(window: str, moment: str, lies_in: bool) -> None:
    assert is_open(read_window(window), datetime.fromisoformat(moment), BERLIN) is lies_in


def test_a_window_is_read_in_its_time_zone() -> None:
    window = read_window("22:00-06:00")
    moment = datetime(2026, 3, 4, 21, 30, tzinfo=UTC)
    assert is_open(window, moment, BERLIN)
    assert not is_open(window, moment, "UTC")
    assert not is_open(window, moment, "America/New_York")


def test_a_maintenance_window_of_a_manifest_is_a_window_too() -> None:
    window = MaintenanceWindow(days=frozenset({6}), start=time(2), end=time(4), text="Sun 02:00-04:00")
    assert open_at([window], at("2026-03-01 03:00"), BERLIN) is window
    assert open_at([window], at("2026-03-02 03:00"), BERLIN) is None


def test_a_window_keeps_what_was_written() -> None:
    expected = Window(days=EVERY_DAY, start=time(22), end=time(6), text="22:00-06:00")
    assert read_window(" 22:00-06:00 ") == expected


@pytest.mark.parametrize(
    "text", ["", "22-06", "24:00-06:00", "22:00-25:00", "22:60-23:00", "someday 22:00-23:00", "mon tue 22:00-23:00"]
)
def test_what_is_no_window_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="is not a window: write it as 22:00-06:00"):
        read_window(text)
