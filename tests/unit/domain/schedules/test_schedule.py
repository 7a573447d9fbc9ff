"""Due times: nothing is due twice, nothing drifts, nothing is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.schedules import Cadence, Cron, Interval, Schedule, fires_at, jitter, latest_due, merged, next_due
from claudeops.errors import ConfigurationError

BERLIN = "Europe/Berlin"
HOURLY = Interval(seconds=3600)


def at(text: str, timezone: str = "UTC", *, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone), fold=fold).astimezone(UTC)


def due_times(cadence: Cadence, after: datetime, count: int) -> list[datetime]:
    found = []
    for _ in range(count):
        after = next_due(cadence, after)
        found.append(after)
    return found


# --- intervals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "after", "expected"),
    [
        pytest.param(3600, "2026-11-21T10:59:59.999999", "2026-11-21T11:00:00", id="just-before"),
        pytest.param(3600, "2026-11-21T11:00:00", "2026-11-21T12:00:00", id="strictly-after"),
        pytest.param(3600, "2026-11-21T11:00:00.000001", "2026-11-21T12:00:00", id="just-after"),
        pytest.param(7 * 86400, "1970-01-01T00:00:00", "1970-01-08T00:00:00", id="counted-from-the-epoch"),
        pytest.param(90, "2026-11-21T00:00:00", "2026-11-21T00:01:30", id="minute-and-a-half"),
        pytest.param(0.25, "2026-11-21T00:00:00.3", "2026-11-21T00:00:00.5", id="below-a-second"),
        pytest.param(3600, "1969-12-31T23:30:00", "1970-01-01T00:00:00", id="before-the-epoch"),
    ],
)
def test_interval_is_anchored_to_the_epoch(seconds: float, after: str, expected: str) -> None:
    assert next_due(Interval(seconds=seconds), at(after)) == at(expected)


def test_interval_that_is_no_binary_fraction_does_not_drift() -> None:
    assert next_due(Interval(seconds=0.1), at("2026-11-21T00:00:00.05")) == at("2026-11-21T00:00:00.1")


@pytest.mark.parametrize("seconds", [0, -1, 0.0001, float("nan"), float("inf"), 367 * 86400])
def test_interval_that_cannot_be_kept_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="interval of"):
        Interval(seconds=seconds)


# --- cron ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "after", "expected"),
    [
        pytest.param("0 6 * * 0", "2026-11-21T12:00", "2026-11-22T06:00", id="0-is-sunday"),
        pytest.param("0 6 * * 7", "2026-11-21T12:00", "2026-11-22T06:00", id="7-is-sunday"),
        pytest.param("0 6 * * 1", "2026-11-21T12:00", "2026-11-23T06:00", id="1-is-monday"),
        pytest.param("0 6 * * 5-7", "2026-11-21T12:00", "2026-11-22T06:00", id="range-up-to-7"),
        pytest.param("0 6 13 * 5", "2026-11-21T12:00", "2026-11-27T06:00", id="either-day-field"),
        pytest.param("*/15 * * * *", "2026-11-21T12:00", "2026-11-21T12:15", id="strictly-after"),
        pytest.param("*/15 * * * *", "2026-11-21T11:59:59.5", "2026-11-21T12:00", id="fraction-of-a-second"),
        pytest.param("@daily", "2026-11-21T12:00", "2026-11-22T00:00", id="nickname"),
        pytest.param("  @Hourly ", "2026-11-21T12:00", "2026-11-21T13:00", id="nickname-as-people-write-it"),
        pytest.param("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00", id="2100-is-no-leap-year"),
    ],
)
def test_cron_follows_crontab(expr: str, after: str, expected: str) -> None:
    assert next_due(Cron(expr=expr), at(after)) == at(expected)


def test_cron_is_read_in_its_time_zone() -> None:
    assert next_due(Cron(expr="0 6 * * *", timezone=BERLIN), at("2026-07-01T00:00")) == at("2026-07-01T04:00")


def test_fixed_time_in_the_gap_runs_once_behind_it() -> None:
    found = due_times(Cron(expr="30 2 * * *", timezone=BERLIN), at("2026-03-28T12:00", BERLIN), 2)
    assert found == [at("2026-03-29T03:00", BERLIN), at("2026-03-30T02:30", BERLIN)]


def test_fixed_time_in_the_hour_that_comes_twice_runs_once() -> None:
    found = due_times(Cron(expr="30 2 * * *", timezone=BERLIN), at("2026-10-24T12:00", BERLIN), 2)
    assert found == [at("2026-10-25T02:30", BERLIN), at("2026-10-26T02:30", BERLIN)]


def test_daemon_started_in_the_second_passing_does_not_look_back() -> None:
    start = at("2026-10-25T02:10", BERLIN, fold=1)
    assert next_due(Cron(expr="30 2 * * *", timezone=BERLIN), start) == at("2026-10-26T02:30", BERLIN)


def test_every_quarter_of_an_hour_goes_on_through_both_passings() -> None:
    found = due_times(Cron(expr="*/15 * * * *", timezone=BERLIN), at("2026-10-25T01:59", BERLIN), 8)
    assert found == [at("2026-10-25T00:00") + timedelta(minutes=15 * n) for n in range(8)]


@pytest.mark.parametrize(
    ("expr", "complaint"),
    [
        pytest.param("", "five fields", id="empty"),
        pytest.param("* * * *", "five fields", id="four-fields"),
        pytest.param("0 * * * * *", "five fields", id="seconds"),
        pytest.param("@reboot", "five fields", id="reboot"),
        pytest.param("61 * * * *", "bad minute", id="range"),
        pytest.param("* * * * 8", "bad day-of-week", id="weekday-8"),
        pytest.param("0 0 30 2 *", "bad day-of-month", id="30-february"),
    ],
)
def test_cron_expression_that_cannot_be_kept_is_refused_by_name(expr: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Cron(expr=expr)


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "Europe", "../../etc/passwd", "a\0b"])
def test_unknown_time_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        Cron(expr="@daily", timezone=zone)


# --- properties ---------------------------------------------------------------------------------------

moments = st.datetimes(
    min_value=datetime(1975, 1, 1),  # noqa: DTZ001 - hypothesis asks for naive bounds
    max_value=datetime(2090, 1, 1),  # noqa: DTZ001 - hypothesis asks for naive bounds
    timezones=st.just(UTC),
)
cadences: st.SearchStrategy[Cadence] = st.one_of(
    st.floats(min_value=0.5, max_value=10 * 86400).map(lambda seconds: Interval(seconds=seconds)),
    st.builds(
        lambda expr, zone: Cron(expr=expr, timezone=zone),
        st.sampled_from(["*/7 * * * *", "30 2 * * *", "0,30 2,3 * * *", "15 */2 * * 1", "0 0 1,31 * *", "* 1 * * *"]),
        st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    ),
)


@given(cadence=cadences, after=moments)
def test_next_due_time_lies_strictly_ahead(cadence: Cadence, after: datetime) -> None:
    first, second, third = due_times(cadence, after, 3)
    assert after < first < second < third
    assert first.tzinfo is UTC


@given(cadence=cadences, after=moments, span=st.timedeltas(timedelta(0), timedelta(days=400)))
def test_latest_due_time_has_no_later_one_before_the_end(cadence: Cadence, after: datetime, span: timedelta) -> None:
    until = after + span
    due = latest_due(cadence, after=after, until=until)
    if due is None:
        assert next_due(cadence, after) > until
    else:
        assert after < due <= until < next_due(cadence, due)
        assert next_due(cadence, due - timedelta(microseconds=1)) == due


@given(name=st.text(), due=moments, most=st.floats(min_value=1e-6, max_value=86400), site=st.text())
def test_jitter_stays_below_its_bound_and_never_changes(name: str, due: datetime, most: float, site: str) -> None:
    found = jitter(name, due, most, site)
    assert 0 <= found < most
    assert found == jitter(name, due.astimezone(ZoneInfo(BERLIN)), most, site)


# --- jitter and missed fires --------------------------------------------------------------------------


def test_no_jitter_means_none() -> None:
    assert jitter("watch", at("2026-11-21T11:00"), 0) == 0.0


def test_sites_and_due_times_are_spread() -> None:
    found = {jitter("watch", at(f"2026-11-21T{hour}:00"), 600, site) for hour in range(10, 20) for site in ("a", "b")}
    assert len(found) == 20


@pytest.mark.parametrize("seconds", [-1, float("nan"), 86401])
def test_jitter_that_cannot_be_kept_is_refused_by_name(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="'watch'"):
        Schedule(name="watch", cadence=HOURLY, jitter_seconds=seconds)


def test_fire_comes_at_the_due_time_plus_its_jitter() -> None:
    schedule = Schedule(name="watch", cadence=HOURLY, jitter_seconds=600, site="north")
    due = at("2026-11-21T11:00")
    assert fires_at(schedule, due) == due + timedelta(seconds=jitter("watch", due, 600, "north"))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param("2026-11-21T09:00", "2026-11-21T10:00", id="clock-set-back"),
        pytest.param("2026-11-21T10:00", "2026-11-21T10:00", id="on-time"),
        pytest.param("2026-11-21T10:59:59", "2026-11-21T10:00", id="late"),
        pytest.param("2026-11-21T14:20", "2026-11-21T14:00", id="slept-for-hours"),
        pytest.param("2082-11-21T14:20", "2082-11-21T14:00", id="clock-set-forward-by-a-lifetime"),
    ],
)
@pytest.mark.parametrize(
    "cadence", [pytest.param(HOURLY, id="interval"), pytest.param(Cron(expr="0 * * * *"), id="cron")]
)
def test_missed_fires_become_one(cadence: Cadence, now: str, expected: str) -> None:
    schedule = Schedule(name="watch", cadence=cadence)
    assert merged(schedule, at("2026-11-21T10:00"), at(now)) == at(expected)


def test_fire_whose_jitter_has_not_passed_is_not_merged_away() -> None:
    schedule = Schedule(name="watch", cadence=HOURLY, jitter_seconds=1800)
    later = at("2026-11-21T14:00")
    just_before = fires_at(schedule, later) - timedelta(microseconds=1)
    assert merged(schedule, at("2026-11-21T10:00"), just_before) == at("2026-11-21T13:00")
    assert merged(schedule, at("2026-11-21T10:00"), fires_at(schedule, later)) == later
