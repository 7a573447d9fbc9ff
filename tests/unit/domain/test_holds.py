"""What the model API's refusals mean for everybody."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.holds import (
    LONGEST_PARKING,
    REFUSALS,
    Admission,
    ApiRefusal,
    Changes,
    Hold,
    HoldKind,
    admission,
    after_refusal,
    refusal_of,
    when_answered,
    when_ended,
    when_lost,
    when_refused,
    when_started,
)
from claudeops.domain.sessions import Ending, FailureKind, Outcome
from claudeops.structs import replace
from support.store_values import NOW, after, ending, report, running

SLACK = timedelta(seconds=30)  # the longest jitter


def refused(kind: FailureKind = FailureKind.RATE_LIMIT, **changes: object) -> ApiRefusal:
    return ApiRefusal(kind=kind, session_id=7, **changes)  # type: ignore[arg-type]  # a test names its fields


def failed(kind: FailureKind | None, session_id: int = 7, **changes: object) -> Ending:
    given = {"session_id": session_id, "outcome": Outcome.ERROR, "failure_kind": kind, **changes}
    return replace(ending(running()), **given)  # type: ignore[arg-type]  # as above


def kept(changes: Changes, kind: HoldKind) -> Hold:
    hold = changes[kind]
    assert hold is not None
    return hold


def first_hold(kind: FailureKind = FailureKind.RATE_LIMIT) -> Hold:
    return after_refusal(None, refused(kind), NOW)


def probe(hold: Hold, session_id: int) -> Hold:
    return replace(hold, trial=session_id, until=after(hours=2))


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_holds_everybody_and_says_why(kind: FailureKind) -> None:
    hold = after_refusal(None, refused(kind, message="credit  balance\ntoo low"), NOW)

    assert hold.kind is REFUSALS[kind]
    assert hold.since == NOW
    assert "(credit balance too low)" in hold.reason
    assert hold.until is not None
    assert hold.until > NOW
    assert admission([hold], NOW) is Admission.CLOSED
    assert admission([hold], hold.until) is Admission.TRIAL


def test_a_given_reset_time_is_waited_for_and_hardly_longer() -> None:
    hold = after_refusal(None, refused(resets_at=after(hours=5)), NOW)

    assert hold.until is not None
    assert after(hours=5) <= hold.until <= after(hours=5) + SLACK


@pytest.mark.parametrize("given_at", [after(minutes=-1), NOW, NOW + LONGEST_PARKING + timedelta(seconds=1)])
def test_a_reset_time_that_is_none_is_not_waited_for(given_at: datetime) -> None:
    assert after_refusal(None, refused(resets_at=given_at), NOW) == first_hold()


@pytest.mark.parametrize("kind", REFUSALS)
def test_waits_grow_with_every_probe_that_is_refused_up_to_a_bound(kind: FailureKind) -> None:
    hold, waits = after_refusal(None, refused(kind), NOW), []
    for number in range(100):
        assert hold.until is not None
        waits.append(hold.until - NOW)
        hold = after_refusal(probe(hold, number), replace(refused(kind), session_id=number), NOW)

    assert all(later >= earlier * 1.6 for earlier, later in pairwise(waits[:4]))
    assert max(waits) <= timedelta(hours=1) + SLACK
    assert hold.since == NOW


def test_the_same_circumstances_give_the_same_wait_and_others_another() -> None:
    here = after_refusal(None, refused(), NOW)
    there = after_refusal(None, refused(), after(minutes=1))

    assert here == after_refusal(None, refused(), NOW)
    assert here.until is not None
    assert there.until is not None
    assert here.until - NOW != there.until - after(minutes=1)


def test_a_session_whose_cli_goes_on_trying_is_the_probe_and_its_answer_opens_the_queue() -> None:
    hold = after_refusal(None, refused(trying=True), NOW)

    assert (hold.trial, hold.failures) == (7, 0)
    assert admission([hold], after(hours=1)) is Admission.CLOSED
    assert when_refused([hold], refused(trying=True), after(minutes=1)) == {}
    assert when_answered([hold], 8) == {}
    assert when_answered([hold], 7) == {HoldKind.PARKED: None}


def test_a_session_that_tried_in_vain_parks_the_others_as_any_refused_one() -> None:
    trying = after_refusal(None, refused(trying=True), NOW)

    changed = when_ended([trying], failed(FailureKind.RATE_LIMIT), NOW)

    assert changed == {HoldKind.PARKED: replace(first_hold(), reason=kept(changed, HoldKind.PARKED).reason)}


def test_sessions_that_ran_already_when_the_hold_began_do_not_lengthen_the_wait() -> None:
    hold = first_hold()

    assert when_refused([hold], replace(refused(), session_id=8), after(minutes=0.5)) == {}
    assert when_ended([hold], failed(FailureKind.RATE_LIMIT, 9), after(minutes=0.5)) == {}
    later = when_refused([hold], replace(refused(resets_at=after(hours=3)), session_id=8), after(minutes=0.5))
    until = kept(later, HoldKind.PARKED).until
    assert until is not None
    assert until >= after(hours=3)


def test_anothers_refusal_does_not_take_the_probes_place() -> None:
    hold = probe(first_hold(), 8)

    assert when_refused([hold], refused(), after(minutes=5)) == {}
    assert when_refused([hold], refused(trying=True), after(minutes=5)) == {}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_served_probe_releases_and_a_refused_one_waits_longer(kind: FailureKind) -> None:
    hold = probe(first_hold(kind), 9)
    served = replace(ending(running(), report()), session_id=9)

    assert when_ended([hold], served, NOW) == {hold.kind: None}
    left = kept(when_ended([hold], failed(kind, 9), NOW), hold.kind)
    assert (left.trial, left.failures) == (None, 2)


def test_a_probe_that_never_reached_the_api_proves_nothing() -> None:
    hold = probe(first_hold(FailureKind.AUTH), 9)

    left = kept(when_ended([hold], failed(FailureKind.OTHER, 9, outcome=Outcome.SPAWN_FAILED), NOW), HoldKind.BREAKER)

    assert (left.trial, left.failures) == (None, 2)
    assert left.until is not None
    assert left.until > NOW


def test_a_probe_that_failed_over_something_else_after_an_answer_releases() -> None:
    hold = probe(first_hold(FailureKind.AUTH), 9)

    answered = failed(FailureKind.OTHER, 9, outcome=Outcome.MAX_TURNS, output_tokens=12)

    assert when_ended([hold], answered, NOW) == {HoldKind.BREAKER: None}


def test_a_probe_may_open_another_hold_than_its_own() -> None:
    hold = probe(first_hold(FailureKind.OVERLOADED), 9)

    changed = when_ended([hold], failed(FailureKind.BILLING, 9), NOW)

    assert set(changed) == {HoldKind.PARKED, HoldKind.BREAKER}
    assert kept(changed, HoldKind.BREAKER).failures == 1
    assert kept(changed, HoldKind.PARKED).trial is None


def test_the_end_of_an_ordinary_session_changes_no_hold() -> None:
    paused = Hold(kind=HoldKind.PAUSED, reason="by hand.", since=NOW)

    assert when_ended([paused, first_hold()], replace(ending(running(), report()), session_id=3), NOW) == {}
    assert when_ended([], failed(FailureKind.OTHER), NOW) == {}
    assert when_ended([], failed(None), NOW) == {}


def test_a_lost_probe_is_forgotten_and_a_new_daemon_tries_its_credentials_at_once() -> None:
    breaker = first_hold(FailureKind.AUTH)
    parked = after_refusal(None, refused(resets_at=after(hours=5)), NOW)

    assert when_lost([probe(parked, 7)], 7, NOW) == {HoldKind.PARKED: replace(parked, until=NOW)}
    assert when_lost([probe(parked, 7)], 8, NOW) == {}
    assert when_started([breaker, parked], NOW) == {HoldKind.BREAKER: replace(breaker, until=NOW)}
    assert when_started([probe(breaker, 7)], NOW) == {}


def test_a_clock_that_was_set_back_starts_the_wait_anew() -> None:
    ahead = after(days=4000)
    hold = after_refusal(None, refused(), ahead)

    moved = after_refusal(hold, refused(resets_at=after(hours=1)), NOW)

    assert moved.until is not None
    assert moved.until <= after(hours=1) + SLACK
    assert moved.since == NOW


@pytest.mark.parametrize("kind", [None, FailureKind.OTHER])
def test_other_failures_are_no_refusal(kind: FailureKind | None) -> None:
    assert refusal_of(failed(kind)) is None


@given(st.text(), st.sampled_from(sorted(REFUSALS)), st.integers(min_value=0, max_value=10_000))
def test_no_refusal_breaks_anything(message: str, kind: FailureKind, failures: int) -> None:
    standing = replace(first_hold(kind), failures=failures, trial=7)

    hold = after_refusal(standing, refused(kind, message=message), NOW)

    assert hold.until is not None
    assert NOW < hold.until <= NOW + timedelta(hours=1) + SLACK
    assert len(hold.reason) < 500
