"""Who is told, when, how much at once, and when it is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from claudeops.domain.model import Level
from claudeops.domain.notice.model import Notice, Pending, Target, Topic
from claudeops.domain.notice.routing import DEAD_AFTER, WAITS, is_dead, plan, quiet_until, targets_of, wait_seconds
from claudeops.domain.schedule.windows import read_window

AT = datetime(2026, 3, 2, 23, 30, 12, tzinfo=UTC)  # a Monday


def notice(level: Level = Level.WARNING, topic: Topic = Topic.EVENT) -> Notice:
    return Notice(topic=topic, level=level, text="shop is down", key="event:1")


def pending(number: int, level: Level = Level.WARNING, topic: Topic = Topic.EVENT) -> Pending:
    return Pending(id=number, target="phone", notice=notice(level, topic), created_at=AT)


def test_a_target_gets_its_topics_from_its_level_on_and_every_question() -> None:
    phone = Target(name="phone", topics=frozenset({Topic.INCIDENT, Topic.APPROVAL}), min_level=Level.CRITICAL)
    team = Target(name="team")

    assert targets_of(notice(Level.WARNING, Topic.INCIDENT), [phone, team]) == ("team",)
    assert targets_of(notice(Level.CRITICAL, Topic.INCIDENT), [phone, team]) == ("phone", "team")
    assert targets_of(notice(Level.CRITICAL, Topic.EVENT), [phone, team]) == ("team",)
    assert targets_of(notice(Level.INFO, Topic.APPROVAL), [phone, team]) == ("phone", "team")
    assert targets_of(notice(Level.INFO), [phone, team]) == ()
    assert targets_of(notice(), [phone, team], besides="team") == ()


def test_a_hold_that_leaves_incidents_alone_reaches_whoever_wants_either_and_once() -> None:
    own = Target(name="own", topics=frozenset({Topic.SELF}))
    team = Target(name="team", topics=frozenset({Topic.INCIDENT}))
    every, none = Target(name="every"), Target(name="none", topics=frozenset({Topic.DIGEST}))
    told = replace(notice(Level.CRITICAL, Topic.SELF), also=Topic.INCIDENT)

    assert targets_of(told, [own, team, every, none]) == ("own", "team", "every")
    assert targets_of(notice(Level.CRITICAL, Topic.SELF), [own, team]) == ("own",)


def test_quiet_hours_hold_back_what_can_wait_until_they_end() -> None:
    quiet = Target(name="team", quiet_hours=(read_window("22:00-07:00"),), timezone="Europe/Berlin")

    assert quiet_until(quiet, notice(), AT) == datetime(2026, 3, 3, 6, tzinfo=UTC)
    assert quiet_until(quiet, notice(Level.CRITICAL), AT) is None
    assert quiet_until(quiet, notice(topic=Topic.APPROVAL), AT) is None
    assert quiet_until(quiet, notice(), AT + timedelta(hours=12)) is None


def test_quiet_hours_without_an_end_are_not_looked_through_for_ever() -> None:
    always = Target(name="team", quiet_hours=(read_window("00:00-00:00"),))

    assert quiet_until(always, notice(), AT) == AT.replace(second=0) + timedelta(days=7)


def test_without_a_bound_each_notice_is_a_message_and_questions_come_first() -> None:
    waiting = [pending(1), pending(2, Level.CRITICAL), pending(3, topic=Topic.APPROVAL)]

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
    waiting = [pending(1), pending(2, Level.CRITICAL), pending(3, topic=Topic.APPROVAL), pending(4)]

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
