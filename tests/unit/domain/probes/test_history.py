"""Buckets of looks: they add up in any order, and their quantiles are nearly those of the looks."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.probes.history import (
    HOUR,
    RELATIVE_ERROR,
    Bucket,
    bucket_of,
    decoded,
    merged,
    rolled_up,
    start_of,
)
from claudeops.domain.probes.probe import Observation
from support.probes import NOON, saw

LATENCIES = st.floats(0.25, 65_000.0)
LOOKS = st.lists(
    st.builds(
        lambda letter, latency: saw(letter, latency_ms=latency),
        st.sampled_from("UDF?"),
        st.none() | st.floats(allow_nan=True, allow_infinity=True),
    )
)


def bucket(looks: list[Observation]) -> Bucket:
    *_, last = accumulate(looks, Bucket.with_look, initial=Bucket())
    return last


def same(one: Bucket, other: Bucket) -> bool:
    return (one.checks, one.failures, one.encoded()) == (other.checks, other.failures, other.encoded())


@given(one=LOOKS, two=LOOKS, three=LOOKS)
def test_merging_is_the_same_in_any_order_and_grouping(
    one: list[Observation], two: list[Observation], three: list[Observation]
) -> None:
    a, b, c = bucket(one), bucket(two), bucket(three)
    whole = bucket([*one, *two, *three])

    assert same(merged((merged((a, b)), c)), whole)
    assert same(merged((a, merged((b, c)))), whole)
    assert same(merged((c, b, a)), whole)
    assert same(merged((a, Bucket())), a)


@given(latencies=st.lists(LATENCIES, min_size=1, max_size=200), share=st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_off_by_a_tenth_at_most(latencies: list[float], share: float) -> None:
    found = bucket([saw("U", latency_ms=latency) for latency in latencies]).quantile_ms(share)
    exact = sorted(latencies)[math.ceil(share * len(latencies)) - 1]

    assert found is not None
    assert exact / (1 + RELATIVE_ERROR) <= found * (1 + 1e-9)
    assert found <= exact * (1 + RELATIVE_ERROR) * (1 + 1e-9)
    assert RELATIVE_ERROR < 0.091


@given(looks=LOOKS)
def test_a_bucket_survives_its_row(looks: list[Observation]) -> None:
    before = bucket(looks)

    assert same(decoded(before.checks, before.failures, before.encoded()), before)


@pytest.mark.parametrize("text", ["", "x", "1:2,", "1:2;3:4", "-1:2", "1:" + "9" * 400, "999:1", "\u0661:\u0662"])
def test_a_histogram_that_cannot_be_read_costs_no_more_than_itself(text: str) -> None:
    found = decoded(7, 2, text)

    assert (found.checks, found.failures, found.p50_ms) == (7, 2, None)


def test_a_look_that_could_not_look_is_none() -> None:
    assert bucket_of(saw("?", latency_ms=3.0)) == Bucket()


def test_failures_are_counted_and_their_latency_is_not() -> None:
    found = bucket([saw("U", latency_ms=100.0), saw("F", latency_ms=9000.0), saw("D", latency_ms=100.0)])

    assert (found.checks, found.failures) == (3, 1)
    assert found.p99_ms == pytest.approx(100.0, rel=RELATIVE_ERROR)


@pytest.mark.parametrize("latency", [0.0, -5.0, 1e-9, math.nan])
def test_what_is_below_the_histogram_counts_as_its_lowest(latency: float) -> None:
    assert bucket_of(saw("U", latency_ms=latency)).encoded() == "0:1"


@pytest.mark.parametrize("latency", [65_536.0, 1e12, 4.5e307, math.inf])
def test_what_is_above_the_histogram_counts_as_its_highest(latency: float) -> None:
    assert bucket_of(saw("U", latency_ms=latency)).encoded() == "71:1"


def test_a_bucket_begins_at_five_minutes_whatever_the_time_zone() -> None:
    at = datetime(2026, 3, 1, 12, 4, 59, 999_999, tzinfo=UTC)

    assert start_of(at) == NOON
    assert start_of(at + timedelta(microseconds=1)) == NOON + timedelta(minutes=5)
    assert start_of(at.astimezone(ZoneInfo("Asia/Kathmandu")), HOUR) == NOON
    assert start_of(at.astimezone(ZoneInfo("Asia/Kathmandu"))).tzinfo is UTC


def test_an_hour_is_its_twelve_buckets() -> None:
    buckets = {NOON + timedelta(minutes=5 * count): bucket_of(saw("U", latency_ms=9.0)) for count in range(-3, 15)}
    hours = rolled_up(buckets)

    assert {start: hour.checks for start, hour in hours.items()} == {
        NOON - HOUR: 3,
        NOON: 12,
        NOON + HOUR: 3,
    }
    assert hours[NOON].encoded() == "20:12"
