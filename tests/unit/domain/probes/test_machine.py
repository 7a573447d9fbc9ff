"""What looks make of a probe: each table reads from left to right, a look and the state after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.probes.probe import JobRun, Pings, PingVerb, ProbeState, Saw, Standing
from claudeops.domain.probes.state_machine import TURNS, ProbeChange, ProbeChangeKind, due, heard, step, wavers
from claudeops.structs import replace
from support.probes import NOON, after, looked, probe, saw, seconds

SHORT = {"unknown": "-", "up": "up", "degraded": "poor", "down": "DOWN", "flapping": "flap", "silenced": "mute"}


def states(looks: str, **changes: object) -> str:
    """Return the states after each of the looks, in the short forms of the tables."""
    return " ".join(SHORT[each.standing.state] for each in looked(looks, **changes))  # type: ignore[arg-type]


def changes(looks: str, **others: object) -> list[ProbeChange]:
    return [each.change for each in looked(looks, **others) if each.change is not None]  # type: ignore[arg-type]


# --- up, degraded, down -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        # U saw it up, D degraded, F failed, ? could not look; down after three, up again after two
        ("U", "up"),
        ("F F F", "- - DOWN"),
        ("D D D", "- - poor"),
        ("U F F U U", "up up up up up"),
        ("U F F F F", "up up up DOWN DOWN"),
        ("U F F F U U", "up up up DOWN DOWN up"),
        ("F F F U F U U", "- - DOWN DOWN DOWN DOWN up"),
        # degraded is not down, and what fails after it is
        ("U D D D U U", "up up up poor poor up"),
        ("U D D D F F F", "up up up poor poor poor DOWN"),
        ("U F F D", "up up up poor"),
        ("U F F F D D", "up up up DOWN DOWN poor"),
        ("U F F F D D U U", "up up up DOWN DOWN poor poor up"),
        ("U F F F U D U U", "up up up DOWN DOWN poor poor up"),
        # one good look between failures makes none of them good
        ("U F U F U F U F", "up up up up up DOWN DOWN DOWN"),
        ("U F U U F U U F U U", "up up up up up up up up up up"),
        ("F U", "- -"),
        ("F U U", "- - up"),
    ],
)
def test_a_state_takes_as_many_looks_as_the_probe_says(looks: str, expected: str) -> None:
    assert states(looks) == expected


def test_one_failure_is_enough_where_the_probe_says_so() -> None:
    assert states("U F U F", about=probe(failures=1, successes=1)) == "up DOWN up DOWN"


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ("?", "-"),
        ("? ? ? ?", "- - - -"),
        ("U ? ? U", "up up up up"),
        ("U ? ? ?", "up up up -"),
        ("U ? ? ? U", "up up up - up"),
        ("U F F ? F", "up up up up DOWN"),  # it counts neither way
        ("U F F F ? ? ?", "up up up DOWN DOWN DOWN -"),
        ("U F F F ? ? ? U", "up up up DOWN DOWN DOWN - up"),
        ("U ? ? ? F F F", "up up up - - - DOWN"),
        ("U ? F ? F ? ?", "up up up up up up up"),
    ],
)
def test_a_look_that_is_impossible_makes_nothing_down(looks: str, expected: str) -> None:
    assert states(looks) == expected


def test_an_unknown_probe_says_why() -> None:
    (_, blind) = changes("U ? ? ?")

    assert (blind.turn, blind.after, blind.detail) == (ProbeChangeKind.BLIND, ProbeState.UNKNOWN, "saw ?")


def test_the_next_look_comes_sooner_until_the_looks_agree() -> None:
    waits = [each.wait_seconds for each in looked("U F F F F U U U ? ? ? ? D D D U U")]

    assert waits == [30, 5, 5, 30, 30, 5, 30, 30, 5, 5, 30, 30, 5, 5, 30, 5, 30]


def test_a_retry_never_waits_longer_than_the_interval() -> None:
    (made,) = looked("F", probe(interval=2.0, retry_interval=5.0))

    assert made.wait_seconds == 2
    assert made.due_at == NOON + seconds(2)


def test_what_a_service_answered_stays_bounded() -> None:
    made = step(Standing(), saw("F", detail="x" * 10_000), probe())

    assert len(made.standing.detail) == 500


# --- what is news -------------------------------------------------------------------------------------


def test_every_way_from_one_state_to_another_has_its_place_in_the_table() -> None:
    assert set(TURNS) == set(ProbeState)
    assert {(one, one) for one in ProbeState} & {(one, other) for one, row in TURNS.items() for other in row} == set()
    assert [row for row in TURNS.values() if ProbeState.SILENCED in row] == []


def test_a_change_says_how_long_the_state_before_it_lasted() -> None:
    first, down, up = changes("U F F F U U")

    assert (first.before, first.after, first.turn) == (ProbeState.UNKNOWN, ProbeState.UP, ProbeChangeKind.BETTER)
    assert first.lasted_seconds is None
    assert (down.before, down.after, down.turn, down.lasted_seconds) == (
        ProbeState.UP,
        ProbeState.DOWN,
        ProbeChangeKind.WORSE,
        90,
    )
    assert (up.before, up.after, up.turn, up.lasted_seconds) == (
        ProbeState.DOWN,
        ProbeState.UP,
        ProbeChangeKind.BETTER,
        60,
    )
    assert down.detail == "saw F"


def test_a_state_that_lasts_is_no_news() -> None:
    assert len(changes("U U U F F F F F F F D D D D U U U U")) == 4


def test_the_mark_of_an_incident_lasts_until_the_probe_is_up() -> None:
    marked = replace(after("U F F F"), incident="probe:1")

    assert after("F F", start=marked).incident == "probe:1"
    assert after("? ? ? F F F", start=marked).incident == "probe:1"
    assert after("D D", start=marked).incident == "probe:1"
    assert after("U U", start=marked).incident == ""
    (over,) = changes("U U", start=marked)
    assert over.incident == "probe:1"


def test_down_is_a_new_failure_for_what_was_only_degraded() -> None:
    marked = replace(after("U D D D"), incident="probe:1")

    assert after("F F", start=marked).incident == "probe:1"
    assert after("F F F", start=marked).incident == ""


# --- flapping -----------------------------------------------------------------------------------------


UP_AND_DOWN = "FFFUU"


def test_six_changes_within_the_hour_are_flapping() -> None:
    steps = [*looked("U" + 3 * UP_AND_DOWN)]

    assert [each.standing.state for each in steps].index(ProbeState.FLAPPING) == 15  # the sixth change
    last = [each.change for each in steps if each.change is not None][-1]
    assert (last.before, last.after, last.turn) == (ProbeState.DOWN, ProbeState.FLAPPING, ProbeChangeKind.WORSE)


def test_six_changes_over_a_day_are_six_changes() -> None:
    assert "flap" not in states("U" + 6 * UP_AND_DOWN, apart=600.0)


def test_a_probe_that_flaps_makes_no_news_until_it_was_quiet() -> None:
    flapping = after("U" + 3 * UP_AND_DOWN)
    start = flapping.last_checked_at
    assert start is not None

    assert changes(4 * UP_AND_DOWN, start=flapping, at=start) == []
    (left,) = changes("U" * 40, start=flapping, at=start + seconds(30))
    assert (left.before, left.after, left.turn) == (ProbeState.FLAPPING, ProbeState.UP, ProbeChangeKind.BETTER)
    assert left.at - flapping.changes[-1] == timedelta(minutes=15)


def test_a_probe_that_settles_on_down_is_news_again() -> None:
    marked = replace(after("U" + 3 * UP_AND_DOWN), incident="probe:1")
    (left,) = changes("F" * 60, start=marked, at=NOON + seconds(500))

    assert (left.before, left.after, left.turn) == (ProbeState.FLAPPING, ProbeState.DOWN, ProbeChangeKind.WORSE)
    assert after("F" * 60, start=marked, at=NOON + seconds(500)).incident == ""


def test_it_takes_as_many_changes_again_to_flap_again() -> None:
    quiet = after("U" * 40, start=after("U" + 3 * UP_AND_DOWN), at=NOON + seconds(500))
    assert quiet.state is ProbeState.UP

    assert "flap" not in states(2 * UP_AND_DOWN, start=quiet, at=NOON + seconds(1800))
    assert "flap" in states(3 * UP_AND_DOWN, start=quiet, at=NOON + seconds(1800))


def test_the_memory_of_changes_is_in_the_standing_and_bounded() -> None:
    before_restart = after("U" + 2 * UP_AND_DOWN + "FFF")
    assert len(before_restart.changes) == 5

    assert states("UU", start=replace(before_restart), at=NOON + seconds(600)) == "DOWN flap"
    assert len(after("U" + 50 * UP_AND_DOWN, apart=1.0).changes) == 6


# --- silence ------------------------------------------------------------------------------------------


def test_silence_keeps_looking_and_makes_no_news() -> None:
    silenced = probe(silenced=True)

    assert states("U F F F U U", about=silenced) == "mute mute mute mute mute mute"
    assert changes("U F F F U U", about=silenced) == []
    assert after("U F F F", silenced).beneath is ProbeState.DOWN


def test_what_a_silence_hid_is_told_when_it_is_over() -> None:
    hidden = after("U F F F", probe(silenced=True))
    (told,) = changes("F", start=hidden, at=NOON + seconds(600))

    assert (told.before, told.after, told.turn) == (ProbeState.SILENCED, ProbeState.DOWN, ProbeChangeKind.WORSE)


def test_a_failure_that_was_over_within_the_silence_leaves_no_incident() -> None:
    marked = replace(after("U F F F"), incident="probe:1")

    assert after("U U", probe(silenced=True), start=marked).incident == ""


# --- what explains a failure --------------------------------------------------------------------------


def test_an_explained_failure_is_down_and_says_what_explains_it() -> None:
    down = changes("U F F F", explained_by="db")[-1]

    assert (down.after, down.explained_by) == (ProbeState.DOWN, "db")
    assert after("U F F F", explained_by="db").explained_by == "db"
    assert after("U", explained_by="db").explained_by == ""


def test_a_failure_whose_explanation_is_over_is_counted_anew_before_it_is_news() -> None:
    explained = after("U F F F F F", explained_by="db")
    steps = [*looked("F F F F", start=explained, at=NOON + seconds(300))]

    assert [each.standing.state for each in steps] == [ProbeState.DOWN] * 4
    assert [each.standing.explained_by for each in steps] == ["db", "db", "", ""]
    assert [each.change is not None for each in steps] == [False, False, True, False]
    assert steps[2].change is not None
    assert (steps[2].change.before, steps[2].change.after) == (ProbeState.DOWN, ProbeState.DOWN)


def test_a_service_that_recovers_with_what_it_needs_is_no_news_but_the_recovery() -> None:
    explained = after("U F F F", explained_by="db")

    assert states("F U U", start=explained) == "DOWN DOWN up"
    assert [change.turn for change in changes("F U U", start=explained)] == [ProbeChangeKind.BETTER]


# --- clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [timedelta(hours=-5), timedelta(days=-9000), timedelta(days=9000)])
def test_a_clock_that_jumps_changes_no_state(jump: timedelta) -> None:
    for looks, state in (("U F F F", ProbeState.DOWN), ("U U", ProbeState.UP), ("D D D", ProbeState.DEGRADED)):
        before = after(looks)
        made = step(before, saw(looks[-1], NOON + jump), probe())
        assert made.standing.state is state
        assert made.change is None
        assert made.wait_seconds == 30


@pytest.mark.parametrize("jump", [timedelta(hours=-5), timedelta(days=9000)])
def test_a_clock_that_jumps_keeps_no_probe_flapping(jump: timedelta) -> None:
    flapping = after("U" + 3 * UP_AND_DOWN)

    assert after("U", start=flapping, at=NOON + jump).state is not ProbeState.FLAPPING
    assert after("U" + 3 * UP_AND_DOWN, start=flapping, at=NOON + jump).state is ProbeState.FLAPPING


def test_a_row_without_the_newer_columns_still_works() -> None:
    old = Standing(state=ProbeState.DOWN, since=NOON, failures=3)

    assert states("F U U", start=old) == "DOWN DOWN up"
    assert states("U", start=replace(old, failures=0)) == "DOWN"


def test_rules_that_changed_while_the_daemon_was_away_harm_nothing() -> None:
    down = after("U F F F")

    assert states("F F F U U", about=probe(failures=9), start=down) == "DOWN DOWN DOWN DOWN up"
    assert states("F U", about=probe(failures=1, successes=1), start=down) == "DOWN up"


def test_a_probe_wavers_while_its_looks_disagree() -> None:
    assert [wavers(each.standing, probe()) for each in looked("U F F F U U")] == [False, True, True, False, True, False]


# --- heartbeats ---------------------------------------------------------------------------------------


HOUR = 3600.0


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.mark.parametrize(
    ("pings", "now", "expected"),
    [
        # every hour, ten minutes of grace
        (Pings(), minutes(0), Saw.NOTHING),
        (Pings(success=minutes(0)), minutes(1), Saw.UP),
        (Pings(success=minutes(0)), minutes(70), Saw.UP),
        (Pings(success=minutes(0)), minutes(71), Saw.DOWN),
        (Pings(fail=minutes(0)), minutes(1), Saw.DOWN),
        (Pings(success=minutes(0), fail=minutes(5)), minutes(6), Saw.DOWN),
        (Pings(success=minutes(9), fail=minutes(5)), minutes(10), Saw.UP),
        (Pings(start=minutes(0)), minutes(9), Saw.UP),
        (Pings(start=minutes(0)), minutes(11), Saw.DOWN),
        (Pings(success=minutes(0), start=minutes(20)), minutes(29), Saw.UP),
        (Pings(success=minutes(0), start=minutes(20)), minutes(31), Saw.DOWN),
        (Pings(success=minutes(25), start=minutes(20)), minutes(31), Saw.UP),
        (Pings(fail=minutes(5), start=minutes(20)), minutes(21), Saw.DOWN),
        # the clock was set: back by hours, or it had been years ahead
        (Pings(success=minutes(0)), minutes(-0.5), Saw.UP),
        (Pings(success=minutes(0)), minutes(-300), Saw.NOTHING),
        (Pings(success=minutes(0), fail=datetime(2099, 1, 1, tzinfo=UTC)), minutes(1), Saw.UP),
    ],
)
def test_silence_is_the_failure(pings: Pings, now: datetime, expected: Saw) -> None:
    seen = due(pings, every=HOUR, grace=600.0, now=now)

    assert seen.saw is expected
    assert seen.at == now
    assert bool(seen.detail) is (expected is not Saw.UP)


def test_the_end_of_one_run_hides_no_other_that_hangs() -> None:
    known = heard(Pings(success=NOON), PingVerb.START, minutes(10), run="a")
    known = heard(known, PingVerb.START, minutes(12), run="b")
    known = heard(known, PingVerb.START, minutes(13), run="b")  # said twice
    known = heard(known, PingVerb.SUCCESS, minutes(15), run="a")

    assert known.runs == (JobRun(id="b", at=minutes(12)),)
    assert due(known, every=HOUR, grace=600.0, now=minutes(21)).saw is Saw.UP
    seen = due(known, every=HOUR, grace=600.0, now=minutes(23))
    assert (seen.saw, seen.detail) == (
        Saw.DOWN,
        "its run b started at 2026-03-01 12:12:00 UTC and never ended",
    )
    again = heard(known, PingVerb.SUCCESS, minutes(30), run="c")
    assert due(again, every=HOUR, grace=600.0, now=minutes(31)).saw is Saw.UP
    assert (
        due(heard(known, PingVerb.FAIL, minutes(30), run="b"), every=HOUR, grace=600.0, now=minutes(31)).saw is Saw.DOWN
    )


def test_a_job_that_only_begins_fills_no_memory() -> None:
    known = Pings()
    for number in range(200):
        known = heard(known, PingVerb.START, minutes(number), run=str(number))

    assert len(known.runs) == 50
    assert known.runs[-1].id == "199"


def test_without_a_grace_time_a_start_has_as_long_as_a_beat() -> None:
    started = Pings(start=NOON)

    assert due(started, every=HOUR, grace=0.0, now=minutes(59)).saw is Saw.UP
    assert due(started, every=HOUR, grace=0.0, now=minutes(61)).saw is Saw.DOWN


def test_silence_while_nobody_listened_proves_nothing() -> None:
    last = Pings(success=NOON)

    def seen(now: datetime) -> Saw:
        return due(last, every=60.0, grace=0.0, now=now, listening_since=minutes(600)).saw

    assert seen(minutes(600.5)) is Saw.UP
    assert seen(minutes(602)) is Saw.DOWN


def test_a_quick_heartbeat_is_missed_as_soon_as_one_ping_should_have_been_heard() -> None:
    last = Pings(success=NOON)

    def seen(now: datetime) -> Saw:
        return due(last, every=6.0, grace=3.0, now=now, listening_since=minutes(600)).saw

    assert seen(minutes(600.1)) is Saw.UP
    assert seen(minutes(600.2)) is Saw.DOWN


@pytest.mark.parametrize(
    ("deaf_for", "now", "expected"),
    [
        # every hour, ten minutes of grace; the last success was at 0, and somebody listens again since 120
        (60.0, 121.0, Saw.UP),  # the machine was off when it was due
        (60.0, 189.0, Saw.UP),
        (60.0, 191.0, Saw.DOWN),  # it is back for longer than a beat
        (40.0, 120.1, Saw.DOWN),  # it was overdue before: a restart makes nothing good
        (0.2, 120.1, Saw.DOWN),
    ],
)
def test_what_was_due_while_nobody_was_there_is_waited_for_once_more(
    deaf_for: float, now: float, expected: Saw
) -> None:
    seen = due(
        Pings(success=NOON),
        every=HOUR,
        grace=600.0,
        now=minutes(now),
        listening_since=minutes(120),
        deaf_since=minutes(120 - deaf_for),
    )
    assert seen.saw is expected


def test_a_restart_of_a_moment_hides_no_silence() -> None:
    def seen(now: datetime) -> Saw:
        restarted = {"listening_since": minutes(70.2), "deaf_since": minutes(69.9)}
        return due(Pings(success=NOON), every=HOUR, grace=600.0, now=now, **restarted).saw

    assert (seen(minutes(71)), seen(minutes(72))) == (Saw.UP, Saw.DOWN)


def test_a_job_that_starts_again_and_again_and_never_ends_is_not_well() -> None:
    pings = Pings()
    for hour in range(5):
        pings = heard(pings, PingVerb.START, minutes(60 * hour))

    assert due(pings, every=HOUR, grace=600.0, now=minutes(241)).saw is Saw.DOWN
    assert due(heard(pings, PingVerb.SUCCESS, minutes(242)), every=HOUR, grace=600.0, now=minutes(243)).saw is Saw.UP
    assert heard(heard(pings, PingVerb.SUCCESS, minutes(242)), PingVerb.START, minutes(300)).start == minutes(300)


def test_a_start_of_the_future_does_not_last() -> None:
    assert heard(Pings(start=minutes(1e6)), PingVerb.START, NOON).start == NOON
