"""One alert, message by message: late, twice, out of order, with and without times."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from claudeops.domain.alerts.alert import Alert, AlertState, AlertStatus
from claudeops.domain.alerts.machine import LATE, AlertTurn, flaps, gone_stale, is_stale, is_upheld, step, upheld
from claudeops.domain.alerts.rules import FlapRules
from claudeops.domain.events import EventLevel
from claudeops.structs import replace
from support.alerts import NOON, alert, minutes, over

RULES = FlapRules()


def at(minute: float | None) -> datetime | None:
    return None if minute is None else NOON + minutes(minute)


def fires(starts: float | None = None, said: float | None = None) -> Alert:
    return alert(
        starts_at=None if starts is None else NOON + minutes(starts),
        reported_at=None if said is None else NOON + minutes(said),
    )


def ends(ends_at: float | None = None, starts: float | None = None, said: float | None = None) -> Alert:
    return over(starts_at=at(starts), ends_at=at(ends_at), reported_at=at(said))


def run(*messages: tuple[float, Alert], rules: FlapRules = RULES) -> tuple[list[AlertTurn], AlertState]:
    """Return what each message was, and what is kept in the end; each comes so many minutes after noon."""
    kept: AlertState | None = None
    turns: list[AlertTurn] = []
    for minute, message in messages:
        made = step(kept, message, source="am", now=NOON + minutes(minute), flapping=rules)
        kept = made.state
        turns.append(made.turn)
    assert kept is not None
    return turns, kept


B, REP, E, L, U = AlertTurn.BEGINS, AlertTurn.REPEATS, AlertTurn.ENDS, AlertTurn.LATE, AlertTurn.ENDS_UNSEEN

TABLE: list[tuple[str, list[tuple[float, Alert]], list[AlertTurn]]] = [
    ("a repetition is none", [(0, fires(0)), (5, fires(0)), (9, fires(0))], [B, REP, REP]),
    ("without times each is believed", [(0, fires()), (1, ends()), (2, fires()), (3, ends())], [B, E, B, E]),
    ("resolved, and never said to fire", [(0, ends(0))], [U]),
    ("resolved twice", [(0, fires(0)), (1, ends(1)), (2, ends(1))], [B, E, L]),
    ("a late node repeats what is resolved", [(0, fires(0)), (5, ends(5, 0)), (6, fires(0))], [B, E, L]),
    ("long after the end it fires again", [(0, fires(0)), (5, ends(5, 0)), (6, fires(6))], [B, E, B]),
    ("a new episode within a moment", [(0, fires(0)), (0.5, ends(0.5, 0)), (1, fires(0.9))], [B, E, B]),
    ("the end of an earlier episode comes late", [(0, fires(10)), (1, ends(5, 0))], [B, L]),
    ("the end before the beginning", [(0, ends(5, 0)), (1, fires(0))], [U, L]),
    ("nodes differ about the beginning", [(0, fires(1)), (1, fires(0)), (2, ends(9, 0))], [B, REP, E]),
    ("the end is known by the later node", [(0, fires(0)), (1, ends(9, 1))], [B, E]),
    ("an episode without the end before it", [(0, fires(0)), (10, fires(9))], [B, B]),
    ("a sender's own order wins", [(0, fires(0, said=5)), (1, ends(4, said=4)), (2, ends(6, said=6))], [B, L, E]),
    ("a firing that was said before the end", [(0, ends(6, said=6)), (1, fires(0, said=5))], [U, L]),
    ("reopened, with the old beginning", [(0, fires(0, 0)), (1, ends(1, 0, 1)), (2, fires(0, 2))], [B, E, B]),
    ("said twice at one moment", [(0, fires(0, 0)), (1, fires(0, 0))], [B, REP]),
    ("an end with its problem's time", [(0, fires(0, 0)), (2, ends(None, 0, 0))], [B, E]),
    ("an end with that time, said twice", [(0, fires(0, 0)), (2, ends(0, 0, 0)), (3, ends(0, 0, 0))], [B, E, L]),
    ("a problem with the time of the end", [(0, fires(0, 0)), (2, ends(2, 0, 2)), (3, fires(2, 2))], [B, E, B]),
    ("the end of a moment", [(0, fires(0)), (1, ends(0, 0))], [B, E]),
    ("the earlier beginning counts", [(0, fires(1)), (1, fires(0)), (2, ends(0.5))], [B, REP, E]),
    ("an end without times", [(0, fires(0)), (1, ends())], [B, E]),
    ("a sender ten minutes ahead", [(0, fires(10)), (5, ends(15, 10)), (9, fires(19))], [B, E, B]),
    ("a sender ten minutes behind", [(0, fires(-10)), (5, ends(-5, -10)), (9, fires(-1))], [B, E, B]),
]


@pytest.mark.parametrize(("messages", "turns"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_each_message_is_put_in_its_place(messages: list[tuple[float, Alert]], turns: list[AlertTurn]) -> None:
    assert run(*messages)[0] == turns


def test_the_same_body_a_thousand_times_is_one_alert_with_a_count() -> None:
    _, kept = run(*((n / 60, fires(0)) for n in range(1000)))
    assert (kept.count, kept.flips, kept.status) == (1000, 1, AlertStatus.FIRING)


def test_a_contested_alert_fires_after_all_when_nobody_says_that_it_is_over() -> None:
    _, kept = run((0, fires(0)), (5, ends(5, 0)), (6, fires(0)))
    assert kept.status is AlertStatus.RESOLVED
    assert not is_upheld(kept, NOON + minutes(6))
    late = NOON + minutes(6) + LATE
    assert is_upheld(kept, late)
    assert upheld(kept, late, RULES).fires


def test_a_node_that_repeats_itself_does_not_put_off_the_answer() -> None:
    _, kept = run((0, fires(0)), (5, ends(5, 0)), *((6 + n, fires(0)) for n in range(5)))
    assert is_upheld(kept, NOON + minutes(6) + LATE)


def test_the_end_said_once_more_settles_a_contested_alert() -> None:
    _, kept = run((0, fires(0)), (5, ends(5, 0)), (6, fires(0)), (7, ends(5, 0)))
    assert not is_upheld(kept, NOON + timedelta(days=1))


def test_a_contested_alert_is_decided_even_if_the_clock_is_set_back() -> None:
    _, kept = run((0, fires(0)), (5, ends(5, 0)), (6, fires(0)))
    assert is_upheld(kept, NOON - timedelta(days=1))


# --- flapping ---------------------------------------------------------------------------------------------


def flap(*when: float, rules: FlapRules = RULES) -> AlertState:
    """Return what is kept of an alert that changes at these minutes."""
    return run(*((minute, ends() if n % 2 else fires()) for n, minute in enumerate(when)), rules=rules)[1]


def test_four_changes_within_an_hour_are_flapping_until_it_is_quiet() -> None:
    assert not flap(0, 1, 2).flapping
    kept = flap(0, 1, 2, 3)
    assert flaps(kept, NOON + minutes(3), RULES)
    assert flaps(kept, NOON + minutes(17.9), RULES)
    assert not flaps(kept, NOON + minutes(18), RULES)


def test_a_flap_survives_the_resolve_that_it_is_made_of() -> None:
    kept = flap(0, 1, 2, 3)
    assert kept.status is AlertStatus.RESOLVED
    again = step(kept, fires(), source="am", now=NOON + minutes(10), flapping=RULES).state
    assert flaps(again, NOON + minutes(10), RULES)
    assert flaps(again, NOON + minutes(24), RULES)


def test_slow_changes_are_no_flapping() -> None:
    kept = flap(*range(0, 400, 21))
    assert not flaps(kept, NOON + minutes(400), RULES)


def test_a_flap_whose_end_was_never_sent_is_seen_all_the_same() -> None:
    _, kept = run((0, fires(0)), (5, fires(4)), (10, fires(9)))
    assert (kept.flips, kept.flapping) == (5, True)


def test_repetitions_and_late_messages_are_no_changes() -> None:
    _, kept = run(*((n, fires(0)) for n in range(9)), *((9 + n, ends(9, 0)) for n in range(9)))
    assert (kept.flips, kept.flapping) == (2, False)


def test_flap_detection_may_be_switched_off_and_set() -> None:
    off = FlapRules(enabled=False)
    assert not flaps(flap(0, 1, 2, 3, 4, 5, rules=off), NOON + minutes(5), off)
    often = FlapRules(changes=6)
    assert not flaps(flap(0, 1, 2, 3, 4, rules=often), NOON + minutes(4), often)
    assert flaps(flap(0, 1, 2, 3, 4, 5, rules=often), NOON + minutes(5), often)


def test_a_clock_that_was_years_ahead_leaves_no_flapping_behind() -> None:
    kept = flap(*(5_000_000 + n for n in range(4)))
    assert not flaps(kept, NOON, RULES)
    assert not flaps(step(kept, fires(), source="am", now=NOON, flapping=RULES).state, NOON, RULES)


# --- silence of the sender --------------------------------------------------------------------------------


def test_an_alert_that_is_not_repeated_gets_stale_and_never_resolved() -> None:
    _, kept = run((0, fires(0)), (60, fires(0)))
    assert not is_stale(kept, NOON + minutes(60 + 59), minutes(60))
    assert is_stale(kept, NOON + minutes(120), minutes(60))
    assert not is_stale(kept, NOON + timedelta(days=9), None)
    stale = gone_stale(kept, NOON + minutes(120))
    assert stale.status is AlertStatus.STALE
    assert stale.flips == kept.flips


def test_a_stale_alert_that_is_repeated_fires_on() -> None:
    _, kept = run((0, fires(0)))
    made = step(gone_stale(kept, NOON + minutes(90)), fires(0), source="am", now=NOON + minutes(91), flapping=RULES)
    assert (made.turn, made.state.fires, made.state.flips) == (AlertTurn.REPEATS, True, 1)


def test_the_newest_words_are_kept_and_the_highest_severity_at_the_end() -> None:
    worse = replace(fires(0), severity=EventLevel.CRITICAL, annotations={"summary": "worse"})
    mild = replace(fires(0), severity=EventLevel.WARNING, annotations={"summary": "mild"})
    _, kept = run((0, mild), (1, worse))
    assert (kept.severity, kept.annotations["summary"]) == (EventLevel.CRITICAL, "worse")
    _, ended = run((0, worse), (1, replace(ends(1, 0), severity=EventLevel.WARNING)))
    assert ended.severity is EventLevel.CRITICAL
