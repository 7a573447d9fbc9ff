"""Every member of a closed set has its words, and what others wrote breaks no sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.actions import Recheck
from claudeops.domain.alerts.alert import AlertDecision, Silence
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.events import EventLevel
from claudeops.domain.holds import HoldKind
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.schedules.plan import SkipReason
from claudeops.domain.sessions import DecisionReason, Outcome
from claudeops.domain.why import Reason, ReasonTone, Why, WhyKind
from claudeops.structs import replace
from claudeops.wording import why

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def test_no_member_of_a_closed_set_is_without_words() -> None:
    assert set(why.DECISIONS) == set(DecisionReason)
    assert set(why.SKIPS) == set(SkipReason)
    assert set(why.ALERTS) == set(AlertDecision)
    assert {why.action_held("restart", "web", 1, held) for held in Recheck} >= {
        ("The restart of web by session 1 held.", ReasonTone.GOOD)
    }


@pytest.mark.parametrize("reason", DecisionReason)
def test_only_proven_health_is_good_news_of_a_session(reason: DecisionReason) -> None:
    _, tone = why.session_ended("Session 1", Outcome.SUCCESS, reason, None)
    assert (tone is ReasonTone.GOOD) == (reason is DecisionReason.HEALTHY)


def test_a_failed_session_says_its_error_and_a_success_none() -> None:
    failed = why.session_ended("Session 1", Outcome.LOST, DecisionReason.SESSION_FAILED, "its daemon died\nsuddenly")
    assert failed == ("Session 1 ended with lost: the session failed (its daemon died suddenly).", ReasonTone.BAD)
    well = why.session_ended("Session 1", Outcome.SUCCESS, DecisionReason.HEALTHY, "a warning")
    assert well == ("Session 1 ended with success: everything is well, and a look proves it.", ReasonTone.GOOD)


def test_a_fire_whose_reason_is_of_a_later_version_is_shown_as_it_is() -> None:
    assert why.fire("hourly", "eclipse", None) == ("Schedule hourly started nothing: eclipse.", ReasonTone.BAD)
    assert why.fire("hourly", None, None)[0] == "Schedule hourly fired and started a chain that is no longer on record."


def test_texts_of_others_stay_on_one_line_and_within_bounds() -> None:
    text, _ = why.alert("Down\nIgnore it", "web", AlertDecision.INHIBITED, "x" * 5000)
    assert "\n" not in text
    assert len(text) < 700
    text, _ = why.event(EventLevel.CRITICAL, "web", "it is down.\n\nReally.", times=3, over_at=LATER)
    assert text == "web: it is down. Really (critical, 3 times, over at 2026-03-01 13:00 UTC)."


def test_a_silence_says_who_ended_it_before_its_time() -> None:
    plain = Silence(
        id=4, matchers=read_matchers(["service=web"]), starts_at=NOW, ends_at=LATER, created_by="ada", comment="moving."
    )
    assert why.silence(plain)[0] == 'ada silenced service="web" until 2026-03-01 13:00 UTC (silence 4): moving.'
    ended, _ = why.silence(replace(plain, ended_by="bob", comment=""))
    assert ended == 'ada silenced service="web" until 2026-03-01 13:00 UTC when bob ended it (silence 4).'


def test_a_hold_without_an_end_holds_until_it_is_released() -> None:
    text, tone = why.hold(HoldKind.PAUSED, "supper", over_at=None, until=None, by="ada")
    assert (text, tone) == ("No session starts until it is released (paused, by ada): supper.", ReasonTone.NEUTRAL)
    parked, tone = why.hold(HoldKind.PARKED, "the limit.", over_at=None, until=LATER, by=None)
    assert (parked, tone) == ("No session starts until 2026-03-01 13:00 UTC (parked): the limit.", ReasonTone.BAD)


def test_a_question_that_its_session_left_behind_is_no_question_without_an_answer_in_time() -> None:
    left, _ = why.question_expired(3, "Bash: reboot", in_time=LATER, at=NOW)
    late, _ = why.question_expired(3, "Bash: reboot", in_time=LATER, at=LATER)
    assert left == "No answer came to question 3 before its session ended, so the call did not run (Bash: reboot)."
    assert late == ("No answer came to question 3 until 2026-03-01 13:00 UTC, so the call did not run (Bash: reboot).")


def test_a_look_says_who_looked() -> None:
    assert why.seen("web", ServiceStatus.HEALTHY, None, 3) == ("Session 3 found web healthy.", ReasonTone.GOOD)
    assert why.seen("web", ServiceStatus.DOWN, "502", None) == ("The probes found web down: 502.", ReasonTone.BAD)


def test_silence_says_what_is_missing_and_what_came_last() -> None:
    empty = Why(service="web", since=NOW, until=LATER, silent=True)
    assert why.nothing(empty) == (
        "Nothing is on record about web between 2026-03-01 12:00 UTC and 2026-03-01 13:00 UTC: no schedule fired, no "
        "alert came, no probe changed, no session ran. Nothing is on record about web in the 30 days before either."
    )
    fired = Reason(at=NOW, kind=WhyKind.FIRE, text="Schedule hourly started nothing: eclipse.")
    before = Reason(at=NOW - timedelta(days=2), kind=WhyKind.CHECK, text="Session 3 found web healthy.")
    known = Why(service="web", since=NOW, until=LATER, silent=True, reasons=(fired,), before=before)
    assert why.nothing(known).endswith(
        ": no alert came, no probe changed, no session ran. The last before, at 2026-02-27 12:00 UTC: Session 3 found "
        "web healthy."
    )
