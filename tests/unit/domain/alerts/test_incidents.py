"""Incidents: opened once, reopened within the hour, and over only when two say so."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.alerts.alert import Incident, IncidentStatus, Witness, WitnessKind
from claudeops.domain.alerts.incidents import (
    MOST_SERVICES,
    acknowledged,
    acted,
    is_proven,
    lasted,
    may_reopen,
    opened,
    wants_look,
    with_alert,
    witnessed,
)
from claudeops.domain.events import EventLevel
from support.alerts import NOON, World, alert, minutes, over

HOUR = timedelta(hours=1)
SOURCE, PROBE, LOOK, OPERATOR = WitnessKind.SOURCE, WitnessKind.PROBE, WitnessKind.LOOK, WitnessKind.OPERATOR


def incident() -> Incident:
    return opened(1, group_key="g", services=("shop",), severity=EventLevel.WARNING, at=NOON)


def seen(start: Incident, *witnesses: tuple[WitnessKind, float]) -> Incident:
    for kind, at in witnesses:
        start = witnessed(start, Witness(kind=kind, at=NOON + minutes(at), name="x"))
    return start


@pytest.mark.parametrize(
    ("witnesses", "proven"),
    [
        ([(SOURCE, 5)], False),
        ([(PROBE, 5)], False),
        ([(LOOK, 5)], False),
        ([(SOURCE, 5), (PROBE, 6)], False),  # nobody has looked
        ([(SOURCE, 5), (LOOK, 6)], True),
        ([(LOOK, 5), (SOURCE, 6)], True),
        ([(PROBE, 5), (LOOK, 6)], True),
        ([(OPERATOR, 5)], True),
        ([(LOOK, -5), (SOURCE, 6)], False),  # before the alert was heard
        ([(SOURCE, 0), (LOOK, 6)], True),  # it was over at once
    ],
)
def test_the_end_needs_somebody_outside_and_a_look(witnesses: list[tuple[WitnessKind, float]], *, proven: bool) -> None:
    ended = seen(incident(), *witnesses)
    assert (ended.status is IncidentStatus.RESOLVED) is proven
    assert (ended.resolved_at is not None) is proven


def test_a_look_before_the_last_action_proves_nothing() -> None:
    looked = acted(seen(incident(), (LOOK, 5)), NOON + minutes(6))
    assert not seen(looked, (SOURCE, 7)).resolved_at
    assert not seen(looked, (SOURCE, 7), (LOOK, 6)).resolved_at
    assert seen(looked, (SOURCE, 7), (LOOK, 8)).resolved_at == NOON + minutes(8)


def test_an_alert_that_comes_after_the_look_takes_the_proof_away() -> None:
    world = World()
    world.say(alert())
    world.later(minutes(2))
    looked = witnessed(world.incidents[1], Witness(kind=LOOK, at=world.now))
    world.incidents[1] = looked
    world.later(minutes(1))
    world.say(alert())
    world.later(minutes(1))
    world.say(over())
    ended = world.incidents[1]
    assert (ended.is_open, wants_look(ended)) == (True, True)
    assert not witnessed(ended, Witness(kind=LOOK, at=world.now)).is_open


def test_one_of_several_alerts_that_is_green_is_no_end() -> None:
    world = World()
    world.say(alert("Down"), alert("Slow"))
    world.later(minutes(5))
    world.say(over("Down"))
    assert not world.incidents[1].witnesses
    world.say(over("Slow"))
    assert [(witness.kind, witness.name) for witness in world.incidents[1].witnesses] == [(SOURCE, "am")]
    assert wants_look(world.incidents[1])


def resolved_after(world: World, after: timedelta) -> None:
    world.say(alert())
    world.later(after)
    world.say(over())
    world.end_chains()
    world.incidents[1] = witnessed(world.incidents[1], Witness(kind=LOOK, at=world.now))
    assert world.incidents[1].status is IncidentStatus.RESOLVED


def test_what_comes_back_within_the_hour_is_the_same_trouble() -> None:
    world = World()
    resolved_after(world, minutes(10))
    world.later(minutes(59))
    world.say(alert())
    again = world.incidents[1]
    assert (again.status, again.reopened, again.resolved_at, again.witnesses) == (IncidentStatus.OPEN, 1, None, ())
    assert [start.incident for start in world.starts] == [1, 1]


def test_what_comes_back_after_an_hour_is_another_trouble() -> None:
    world = World()
    resolved_after(world, minutes(10))
    world.later(minutes(61))
    world.say(alert())
    assert [start.incident for start in world.starts] == [1, 2]
    assert world.incidents[1].status is IncidentStatus.RESOLVED


def test_of_two_incidents_of_a_service_the_open_one_hears_of_it() -> None:
    world = World()
    ended = seen(opened(2, group_key="storm", services=("shop",), severity=EventLevel.INFO, at=NOON), (OPERATOR, 0))
    world.incidents = {1: incident(), 2: ended}
    (ruling,) = world.say(alert())
    assert ruling.incident == 1
    assert world.incidents[2].resolved_at is not None


def test_a_source_that_says_it_fires_on_contradicts_the_proof() -> None:
    world = World()
    world.say(alert())
    world.end_chains()
    world.later(minutes(5))
    proven = seen(world.incidents[1], (PROBE, 5), (LOOK, 5))
    world.incidents[1] = proven
    assert proven.status is IncidentStatus.RESOLVED
    world.later(minutes(1))
    world.say(alert())
    assert world.incidents[1].reopened == 1


def test_another_alert_of_the_service_belongs_to_the_same_incident_and_raises_its_severity() -> None:
    world = World()
    world.say(alert("Slow", severity=EventLevel.WARNING))
    world.say(alert("Down", "Shop"))
    assert list(world.incidents) == [1]
    assert world.incidents[1].severity is EventLevel.CRITICAL
    assert world.incidents[1].services == ("Shop",)


def test_the_first_who_takes_an_incident_has_it_and_nobody_takes_what_is_over() -> None:
    taken = acknowledged(incident(), by="alice", at=NOON)
    assert acknowledged(taken, by="bob", at=NOON + HOUR).acked_by == "alice"
    over_ = seen(incident(), (OPERATOR, 5))
    assert acknowledged(over_, by="bob", at=NOON + HOUR) == over_


def test_an_acknowledgement_ends_with_the_trouble() -> None:
    state = World()
    state.say(alert())
    taken = acknowledged(state.incidents[1], by="alice", at=NOON)
    again = with_alert(seen(taken, (OPERATOR, 5)), state.state(), NOON + minutes(9))
    assert (again.status, again.acked_by, again.acked_at) == (IncidentStatus.OPEN, "", None)


def test_a_witness_after_the_end_changes_nothing() -> None:
    ended = seen(incident(), (OPERATOR, 5))
    assert seen(ended, (LOOK, 9)) == ended
    assert is_proven(ended)


def test_it_lasts_until_its_end_or_until_now() -> None:
    assert lasted(incident(), NOON + HOUR) == HOUR
    assert lasted(seen(incident(), (OPERATOR, 5)), NOON + HOUR) == minutes(5)
    assert lasted(incident(), NOON - HOUR) == timedelta(0)


def test_a_clock_that_was_set_back_reopens_nothing() -> None:
    assert not may_reopen(seen(incident(), (OPERATOR, 5)), NOON, HOUR)


def test_a_storm_does_not_make_an_endless_list_of_services() -> None:
    many = opened(1, group_key="g", services=[f"s{n}" for n in range(999)], severity=EventLevel.INFO, at=NOON)
    assert len(many.services) == MOST_SERVICES
