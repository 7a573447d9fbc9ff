"""Who is told, when, how much at once, and when it is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import Notice, Pending, Target, Topic
from claudeops.domain.notices.routing import (
    DEAD_AFTER,
    WAITS,
    is_dead,
    plan,
    quiet_end,
    quiet_until,
    targets_of,
    wait_seconds,
)
from claudeops.domain.schedules.windows import DAYS, open_at, read_window
from claudeops.structs import replace

AT = datetime(2026, 3, 2, 23, 30, 12, tzinfo=UTC)  # a Monday


def notice(level: EventLevel = EventLevel.WARNING, topic: Topic = Topic.EVENT) -> Notice:
    return Notice(topic=topic, level=level, text="shop is down", key="event:1")


def pending(number: int, level: EventLevel = EventLevel.WARNING, topic: Topic = Topic.EVENT) -> Pending:
    return Pending(id=number, target="phone", notice=notice(level, topic), created_at=AT)


def test_a_target_gets_its_topics_from_its_level_on_and_every_question() -> None:
    phone = Target(name="phone", topics=frozenset({Topic.INCIDENT, Topic.APPROVAL}), min_level=EventLevel.CRITICAL)
    team = Target(name="team")

    assert targets_of(notice(EventLevel.WARNING, Topic.INCIDENT), [phone, team]) == ("team",)
    assert targets_of(notice(EventLevel.CRITICAL, Topic.INCIDENT), [phone, team]) == ("phone", "team")
    assert targets_of(notice(EventLevel.CRITICAL, Topic.EVENT), [phone, team]) == ("team",)
    assert targets_of(notice(EventLevel.INFO, Topic.APPROVAL), [phone, team]) == ("phone", "team")
    assert targets_of(notice(EventLevel.INFO), [phone, team]) == ()
    assert targets_of(notice(), [phone, team], besides="team") == ()


def test_a_hold_that_leaves_incidents_alone_reaches_whoever_wants_either_and_once() -> None:
    own = Target(name="own", topics=frozenset({Topic.SELF}))
    team = Target(name="team", topics=frozenset({Topic.INCIDENT}))
    every, none = Target(name="every"), Target(name="none", topics=frozenset({Topic.DIGEST}))
    told = replace(notice(EventLevel.CRITICAL, Topic.SELF), also=Topic.INCIDENT)

    assert targets_of(told, [own, team, every, none]) == ("own", "team", "every")
    assert targets_of(notice(EventLevel.CRITICAL, Topic.SELF), [own, team]) == ("own",)


def test_quiet_hours_hold_back_what_can_wait_until_they_end() -> None:
    quiet = Target(name="team", quiet_hours=(read_window("22:00-07:00"),), timezone="Europe/Berlin")

    assert quiet_until(quiet, notice(), AT) == datetime(2026, 3, 3, 6, tzinfo=UTC)
    assert quiet_until(quiet, notice(EventLevel.CRITICAL), AT) is None
    assert quiet_until(quiet, notice(topic=Topic.APPROVAL), AT) is None
    assert quiet_until(quiet, notice(), AT + timedelta(hours=12)) is None


def test_quiet_hours_without_an_end_are_not_looked_through_for_ever() -> None:
    always = Target(name="team", quiet_hours=(read_window("00:00-00:00"),))

    assert quiet_until(always, notice(), AT) == AT.replace(second=0) + timedelta(days=7)


def test_without_a_bound_each_notice_is_a_message_and_questions_come_first() -> None:
    waiting = [pending(1), pending(2, EventLevel.CRITICAL), pending(3, topic=Topic.APPROVAL)]

    planned = plan(Target(name="phone"), waiting, sent=[], now=AT)

    assert [[each.id for each in group] for group in planned.messages] == [[3], [2], [1]]


def test_what_exceeds_the_hour_is_told_in_its_last_message() -> None:
    phone = Target(name="phone", max_per_hour=3)

    planned = plan(phone, [pending(number) for number in range(10)], sent=[AT - timedelta(minutes=9)], now=AT)

    assert [len(group) for group in planned.messages] == [1, 9]
    assert planned.waiting == ()


def test_when_the_hour_is_spent_all_but_questions_wait_until_there_is_room() -> None:
    phone = Target(name="phone", max_per_hour=2)
    sent = [AT - timedelta(minutes=50), AT - timedelta(minutes=10), AT - timedelta(hours=2)]

    planned = plan(phone, [pending(1), pending(2, topic=Topic.APPROVAL)], sent=sent, now=AT)

    assert [[each.id for each in group] for group in planned.messages] == [[2]]
    assert [each.id for each in planned.waiting] == [1]
    assert planned.until == AT + timedelta(minutes=10)


def test_a_question_is_never_folded_into_another_message() -> None:
    phone = Target(name="phone", max_per_hour=2)
    waiting = [pending(1), pending(2, EventLevel.CRITICAL), pending(3, topic=Topic.APPROVAL), pending(4)]

    planned = plan(phone, waiting, sent=[], now=AT)

    assert [[each.id for each in group] for group in planned.messages] == [[3], [2, 1, 4]]


@given(count=st.integers(0, 60), most=st.integers(1, 20), ages=st.lists(st.integers(0, 7200), max_size=30))
def test_nothing_is_lost_and_no_hour_gets_too_much(count: int, most: int, ages: list[int]) -> None:
    sent = [AT - timedelta(seconds=age) for age in ages]
    recent = sum(age < 3600 for age in ages)

    planned = plan(Target(name="phone", max_per_hour=most), [pending(n) for n in range(count)], sent=sent, now=AT)

    told = [each.id for group in planned.messages for each in group]
    assert sorted([*told, *(each.id for each in planned.waiting)]) == list(range(count))
    assert len(planned.messages) <= max(0, most - recent)
    assert (planned.until is None) == (not planned.waiting)
    assert planned.until is None or planned.until > AT


@given(
    topics=st.lists(st.sampled_from([Topic.APPROVAL, Topic.EVENT]), max_size=30),
    most=st.integers(1, 10),
    recent=st.integers(0, 12),
)
def test_every_question_is_told_alone_and_at_once_whatever_the_bound(
    topics: list[Topic], most: int, recent: int
) -> None:
    waiting = [pending(number, topic=topic) for number, topic in enumerate(topics)]

    planned = plan(Target(name="phone", max_per_hour=most), waiting, sent=[AT - timedelta(minutes=1)] * recent, now=AT)

    told = [each.id for group in planned.messages for each in group]
    assert sorted([*told, *(each.id for each in planned.waiting)]) == list(range(len(topics)))
    questions = {each.id for each in waiting if each.notice.topic is Topic.APPROVAL}
    assert questions <= {group[0].id for group in planned.messages if len(group) == 1}
    assert (planned.until is None) == (not planned.waiting)
    assert planned.until is None or planned.until > AT


def test_a_target_that_fails_is_left_alone_for_longer_each_time() -> None:
    assert [wait_seconds(failures) for failures in range(1, 8)] == [*WAITS, WAITS[-1], WAITS[-1]]


def test_a_notice_is_tried_for_a_day() -> None:
    assert not is_dead(pending(1), AT + DEAD_AFTER - timedelta(seconds=1))
    assert is_dead(pending(1), AT + DEAD_AFTER)


def test_a_question_is_never_told_together_with_others_and_takes_its_place_in_the_hour() -> None:
    phone = Target(name="phone", max_per_hour=3)
    sent = [AT - timedelta(minutes=50)]
    waiting = [*(pending(number) for number in range(4)), pending(9, topic=Topic.APPROVAL)]

    planned = plan(phone, waiting, sent=sent, now=AT)
    crowded = plan(
        phone, [*waiting, pending(10, topic=Topic.APPROVAL), pending(11, topic=Topic.APPROVAL)], sent=sent, now=AT
    )

    assert [[each.id for each in group] for group in planned.messages] == [[9], [0, 1, 2, 3]]
    assert [[each.id for each in group] for group in crowded.messages] == [[9], [10], [11]]
    assert [each.id for each in crowded.waiting] == [0, 1, 2, 3]
    assert crowded.until == AT + timedelta(minutes=10)


# --- an hour that is spent, and what keeps failing ------------------------------------------------------------


@given(
    levels=st.lists(st.sampled_from(list(EventLevel)), max_size=30),
    topics=st.lists(st.sampled_from([Topic.APPROVAL, Topic.EVENT, Topic.SELF]), min_size=30, max_size=30),
    most=st.integers(1, 6),
    recent=st.integers(0, 9),
)
def test_a_critical_notice_never_waits_for_the_next_hour(
    levels: list[EventLevel], topics: list[Topic], most: int, recent: int
) -> None:
    waiting = [pending(number, level, topics[number]) for number, level in enumerate(levels)]

    planned = plan(Target(name="phone", max_per_hour=most), waiting, sent=[AT - timedelta(minutes=1)] * recent, now=AT)

    told = [each.id for group in planned.messages for each in group]
    assert sorted([*told, *(each.id for each in planned.waiting)]) == list(range(len(levels)))
    assert not [each for each in planned.waiting if each.notice.level is EventLevel.CRITICAL]
    assert (planned.until is None) == (not planned.waiting)
    assert planned.until is None or planned.until > AT


def test_critical_notices_of_an_hour_that_is_spent_are_one_message_and_not_a_flood() -> None:
    phone, sent = Target(name="phone", max_per_hour=2), [AT - timedelta(minutes=30)] * 2
    waiting = [
        pending(1),
        *(pending(number, EventLevel.CRITICAL) for number in range(2, 40)),
        pending(40, topic=Topic.SELF),
    ]

    planned = plan(phone, waiting, sent=sent, now=AT)

    assert [[each.id for each in group] for group in planned.messages] == [[*range(2, 40)]]
    assert [each.id for each in planned.waiting] == [1, 40]
    assert planned.until == AT + timedelta(minutes=30)


def test_what_has_failed_stands_behind_what_was_not_tried_however_severe_it_is() -> None:
    def tried(number: int, attempts: int, topic: Topic = Topic.EVENT) -> Pending:
        return replace(pending(number, EventLevel.CRITICAL, topic), attempts=attempts)

    question = Topic.APPROVAL
    waiting = [
        *(tried(1, 3), tried(2, 1), tried(3, 1, question), tried(4, 7, question), pending(5)),
        *(pending(6, EventLevel.CRITICAL), pending(7, topic=question)),
    ]

    for most in (None, 20):
        planned = plan(Target(name="phone", max_per_hour=most), waiting, sent=[], now=AT)
        # A question that was tried once may have arrived, and its second try decides; after that it is like all else.
        assert [each.id for (each,) in planned.messages] == [7, 3, 6, 5, 2, 1, 4]


@pytest.mark.parametrize(
    ("refusals", "room", "messages", "waiting"),
    [
        (1, 2, [[8], [9]], [0, 1, 2, 3, 4, 5, 6]),
        (1, 5, [[8], [9], [0, 1, 2], [3, 4, 5], [6]], []),
        (2, 3, [[8], [9], [0]], [1, 2, 3, 4, 5, 6]),
        (9, 1, [[8, 9]], [0, 1, 2, 3, 4, 5, 6]),
        (1, 0, [], [8, 9, 0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_what_was_refused_together_is_halved_and_not_told_with_anything_else(
    refusals: int, room: int, messages: list[list[int]], waiting: list[int]
) -> None:
    refused = [replace(pending(number), attempts=refusals, refusals=refusals) for number in range(7)]
    phone, sent = Target(name="phone", max_per_hour=6), [AT - timedelta(minutes=1)] * (6 - room)

    planned = plan(phone, [*refused, pending(8), pending(9)], sent=sent, now=AT)

    assert [[each.id for each in group] for group in planned.messages] == messages
    assert [each.id for each in planned.waiting] == waiting
    assert (planned.until is None) is (not waiting)


def test_critical_notices_that_were_refused_wait_for_no_hour_either_and_stand_alone() -> None:
    refused = [replace(pending(n, EventLevel.CRITICAL), attempts=1, refusals=1) for n in range(4)]
    phone, sent = Target(name="phone", max_per_hour=1), [AT - timedelta(minutes=1)]

    planned = plan(phone, [*refused, pending(5, EventLevel.CRITICAL), pending(6)], sent=sent, now=AT)

    assert [[each.id for each in group] for group in planned.messages] == [[5], [0], [1], [2], [3]]
    assert [each.id for each in planned.waiting] == [6]


# --- quiet hours of several days ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("windows", "timezone", "at", "ends"),
    [
        (("22:00-24:00", "00:00-07:00"), "UTC", "2026-03-02T23:30", "2026-03-03T07:00"),
        (("fri 18:00-24:00", "sat-sun 00:00-24:00", "mon 00:00-08:00"), "UTC", "2026-03-06T19:00", "2026-03-09T08:00"),
        (("21:00-06:00", "05:00-07:30", "07:30-09:00"), "UTC", "2026-03-02T23:30", "2026-03-03T09:00"),
        (("21:00-06:00", "06:01-09:00"), "UTC", "2026-03-02T23:30", "2026-03-03T06:00"),
        (("22:00-07:00",), "Europe/Berlin", "2026-03-28T23:00", "2026-03-29T05:00"),  # an hour is left out
        (("22:00-07:00",), "Europe/Berlin", "2026-10-24T23:00", "2026-10-25T06:00"),  # an hour comes twice
        (("22:00-07:00",), "Asia/Kathmandu", "2026-03-02T17:00", "2026-03-03T01:15"),
        (("22:00-07:00", "12:00-13:00"), "UTC", "2026-03-02T13:00", None),  # the end is outside
        ((), "UTC", "2026-03-02T13:00", None),
    ],
)
def test_quiet_hours_end_with_the_last_of_the_windows_that_touch(
    windows: tuple[str, ...], timezone: str, at: str, ends: str | None
) -> None:
    quiet = Target(name="team", quiet_hours=tuple(map(read_window, windows)), timezone=timezone)
    now = datetime.fromisoformat(at).replace(tzinfo=UTC)

    assert quiet_end(quiet, now) == (None if ends is None else datetime.fromisoformat(ends).replace(tzinfo=UTC))


@given(
    windows=st.lists(
        st.tuples(st.sampled_from(DAYS), st.integers(0, 23), st.integers(0, 23), st.sampled_from([0, 30])), max_size=8
    ),
    minutes=st.integers(0, 60 * 24 * 14),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]),
)
def test_quiet_hours_end_where_a_walk_by_minutes_ends(
    windows: list[tuple[str, int, int, int]], minutes: int, timezone: str
) -> None:
    texts = [f"{day} {start:02}:{minute:02}-{end:02}:{minute:02}" for day, start, end, minute in windows]
    quiet = Target(name="team", quiet_hours=tuple(map(read_window, texts)), timezone=timezone)
    now = datetime(2026, 3, 23, tzinfo=UTC) + timedelta(minutes=minutes)  # the clock changes within these days

    end = quiet_end(quiet, now)

    if end is None:
        assert open_at(quiet.quiet_hours, now, timezone) is None
    else:
        steps = [now + timedelta(minutes=30) * number for number in range((end - now) // timedelta(minutes=30) + 1)]
        assert all(open_at(quiet.quiet_hours, at, timezone) for at in (*steps, end - timedelta(minutes=1)) if at < end)
        assert open_at(quiet.quiet_hours, end, timezone) is None or end == now + timedelta(days=7)


def test_a_thousand_windows_cost_no_walk_through_the_week() -> None:
    always = tuple(
        read_window(f"{at // 60:02}:{at % 60:02}-{(at + 1) // 60 % 24:02}:{(at + 1) % 60:02}") for at in range(1440)
    )

    assert quiet_end(Target(name="team", quiet_hours=always), AT) == AT.replace(second=0) + timedelta(days=7)
