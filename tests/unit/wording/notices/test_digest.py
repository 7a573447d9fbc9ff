"""The daily sum: what it says, also of nothing, and when it is due."""

from __future__ import annotations

from datetime import UTC, datetime

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.notice import Target, Topic
from claudeops.domain.notices.routing import wants
from claudeops.domain.schedules import Cron
from claudeops.wording.notices.digest import DigestFigures, NoisiestAlert, digest, due

AT = datetime(2026, 3, 2, 7, tzinfo=UTC)
BEFORE = datetime(2026, 3, 1, 7, tzinfo=UTC)
DAILY = Cron(expr="0 8 * * *", timezone="Europe/Berlin")


def test_of_a_day_everything_is_said() -> None:
    sums = DigestFigures(
        since=BEFORE,
        chains=24,
        sessions=27,
        decisions={"healthy": 23, "escalated": 2, "max_tier": 1},
        verdicts={"allow": 200, "deny": 3},
        actions=2,
        actions_failed=1,
        actions_held={"held": 1},
        booked_usd=4.5,
        memories_gained=2,
        memories_lost=1,
        open_events={"critical": 1},
        notices={"delivered": 9, "failed": 1},
    )

    told = digest(sums, at=AT, daily_budget_usd=25)

    assert told.text == (
        "since 2026-03-01 07:00 UTC: 24 chains (27 sessions); 23 healthy; 2 escalated; 1 max tier; 2 actions (1 held,"
        " 1 failed); 3 calls denied; $4.50 spent, the daily budget is $25.00; memories: 2 gained, 1 lost;"
        " 1 critical events open; 1 notice not delivered."
    )
    assert (told.topic, told.level) == (Topic.DIGEST, EventLevel.INFO)


def test_of_a_bad_day_the_incidents_the_noise_and_our_own_health_are_said() -> None:
    sums = DigestFigures(
        since=BEFORE,
        now=AT,
        chains=6,
        sessions=9,
        decisions={"escalated": 3, "max_tier": 1, "session_failed": 2},
        verdicts={"deny": 1},
        actions=3,
        actions_held={"held": 2, "relapsed": 1},
        booked_usd=25.3,
        open_events={"critical": 2, "warning": 1},
        incidents_opened=3,
        incidents_resolved=2,
        incidents_open=1,
        noisiest=NoisiestAlert(name="DiskFull", service="nas", usd=12.5, decisions=480),
        failed_sessions=2,
        holds=("budget",),
        dead_targets=("phone", "team"),
        unsent_since=AT.replace(hour=4),
        notices={"delivered": 30, "failed": 4, "unknown": 1},
    )

    told = digest(sums, at=AT, daily_budget_usd=25)

    assert told.text == (
        "since 2026-03-01 07:00 UTC: 6 chains (9 sessions); 3 escalated; 1 max tier; 2 session failed;"
        " 3 incidents opened, 2 resolved, 1 open now; the noisiest alert: DiskFull of nas, $12.50 in 480 decisions;"
        " 3 actions (2 held, 1 relapsed); 1 call denied; $25.30 spent, the daily budget is $25.00;"
        " 1 warning events open; 2 critical events open; 5 notices not delivered; 2 sessions failed; held: budget;"
        " could not be told for a day: phone, team; the oldest notice waits for 3 h."
    )


def test_a_daemon_that_is_not_well_is_not_quiet() -> None:
    looked = {"since": BEFORE, "now": AT, "chains": 1, "sessions": 1}
    quiet = [DigestFigures(**looked), DigestFigures(**looked, unsent_since=AT)]  # type: ignore[arg-type]
    loud = [
        DigestFigures(**looked, holds=("disk",)),  # type: ignore[arg-type]
        DigestFigures(**looked, dead_targets=("phone",)),  # type: ignore[arg-type]
        DigestFigures(**looked, incidents_open=1),  # type: ignore[arg-type]
    ]

    assert ["quiet" in digest(each, at=AT, daily_budget_usd=25).text for each in quiet] == [True, True]
    assert ["quiet" in digest(each, at=AT, daily_budget_usd=25).text for each in loud] == [False] * 3


def test_of_a_day_without_anything_that_is_said() -> None:
    told = digest(
        DigestFigures(since=BEFORE, chains=1, sessions=1, decisions={"healthy": 1}), at=AT, daily_budget_usd=25
    )

    assert told.text == (
        "since 2026-03-01 07:00 UTC: quiet: 1 chain (1 session); 1 healthy; $0.00 spent, the daily budget is $25.00."
    )


def test_it_reaches_those_who_want_it_whatever_their_level() -> None:
    told = digest(DigestFigures(since=BEFORE), at=AT, daily_budget_usd=25)

    assert wants(Target(name="team", min_level=EventLevel.CRITICAL), told)
    assert not wants(Target(name="phone", topics=frozenset({Topic.INCIDENT})), told)


def test_it_is_due_at_its_time_and_late_for_some_hours() -> None:
    assert due(DAILY, AT) == (AT, BEFORE)
    assert due(DAILY, AT.replace(hour=12)) == (AT, BEFORE)
    assert due(DAILY, AT.replace(hour=13, minute=1)) is None
