"""What is told together, how long it waits, and how many chains a storm starts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.alerts.alert import AlertDecision
from claudeops.domain.alerts.decide import RELEASED
from claudeops.domain.alerts.rules import Grouping, StormRules
from claudeops.domain.events import EventLevel
from claudeops.domain.probes.dependencies import connected
from claudeops.structs import replace
from support.alerts import NOON, SOURCE, World, alert, decisions, minutes, over, rules_of

D = AlertDecision


def test_a_group_waits_and_starts_one_chain_about_all_of_it() -> None:
    grouping = Grouping(by=("team",))
    world = World(rules=rules_of(grouping))
    one = {"labels": {"team": "web"}}
    assert world.told(alert("Slow", "shop", severity=EventLevel.WARNING, **one)) == [D.GROUPED]
    world.later(timedelta(seconds=20))
    assert world.told(alert("Down", "cart", **one), alert("Down", "db", labels={"team": "data"})) == [D.GROUPED] * 2
    (first, second) = world.desk().groups()
    assert (first.key, first.due_at) == ("team=web", NOON + timedelta(seconds=30))
    assert (second.key, second.due_at) == ("team=data", NOON + timedelta(seconds=50))
    assert decisions(world.tick(timedelta(seconds=10))) == [D.STARTED]
    (start,) = world.starts
    assert start.services == ("cart", "shop")  # the most severe first
    assert world.state("Slow", "shop").decision is D.GROUPED
    assert world.state("Slow", "shop").incident == 1


def test_a_warning_waits_where_its_sender_has_grouped_and_a_critical_alert_does_not() -> None:
    world = World(rules=rules_of(Grouping()))
    said = world.told(alert("Disk", "db1", severity=EventLevel.WARNING), alert("Down", "web1"), group_key="g")
    assert said == [D.GROUPED, D.STARTED]
    assert world.tick(timedelta(seconds=29)) == []
    assert decisions(world.tick(timedelta(seconds=1))) == [D.STARTED]
    assert [(start.services, start.incident) for start in world.starts] == [(("web1",), 1), (("db1",), 2)]


@pytest.mark.parametrize(
    ("wait", "lasts", "chains"), [(120, 90, 0), (120, 119, 0), (120, 121, 1), (30, 90, 1), (0, 1, 1)]
)
def test_what_is_over_within_the_wait_starts_nothing_where_its_sender_has_grouped(
    wait: int, lasts: int, chains: int
) -> None:
    world = World(rules=rules_of(Grouping(wait=timedelta(seconds=wait))))
    world.say(alert(severity=EventLevel.WARNING), group_key="g")
    for _ in range(lasts):
        world.tick(timedelta(seconds=1))
    world.say(over(severity=EventLevel.WARNING), group_key="g")
    world.tick(minutes(10))
    assert len(world.starts) == chains


def test_a_critical_alert_of_its_service_ends_the_wait_of_a_warning_and_of_no_other_service() -> None:
    world = World(rules=rules_of(Grouping(wait=minutes(2))))
    warnings = (alert("Slow", "shop", severity=EventLevel.WARNING), alert("Slow", "mail", severity=EventLevel.WARNING))
    assert world.told(*warnings, group_key="g") == [D.GROUPED] * 2
    world.later(minutes(1))
    assert world.told(alert("Down", "shop"), group_key="g") == [D.STARTED]
    assert world.starts[0].alerts == ((SOURCE, "Down@shop"), (SOURCE, "Slow@shop"))
    assert world.state("Slow", "mail").is_waiting


def test_what_becomes_critical_while_it_waits_waits_no_longer() -> None:
    world = World(rules=rules_of(Grouping(wait=minutes(2))))
    world.say(alert(severity=EventLevel.WARNING), group_key="g")
    world.later(minutes(1))
    assert world.told(alert(severity=EventLevel.WARNING), group_key="g") == [D.DUPLICATE]
    assert world.told(alert(), group_key="g") == [D.STARTED]
    assert world.starts[0].severity is EventLevel.CRITICAL


def test_services_that_a_sender_has_put_into_one_group_are_incidents_of_their_own() -> None:
    world = World()
    assert world.told(alert("Disk", "db1"), alert("Memory", "web1"), group_key="g") == [D.STARTED] * 2
    assert [incident.services for incident in world.incidents.values()] == [("db1",), ("web1",)]
    world.end_chains()
    world.later(minutes(6))
    assert world.told(alert("Disk", "db2"), group_key="g") == [D.STARTED]
    assert world.incidents[3].services == ("db2",)


def test_a_group_of_more_services_than_chains_may_start_is_one_trouble_and_one_chain() -> None:
    world = World()
    many = [alert("Down", f"s{number}") for number in range(9)]
    said = world.told(*many, alert("Down", "s0", fingerprint="other"), group_key="g")
    assert sorted(said) == [D.GROUPED] * 9 + [D.STARTED]
    assert len(world.incidents) == 1
    assert world.told(alert("Slow", "s8"), group_key="h") == [D.JOINED]
    world.later(minutes(1))
    assert world.told(alert("Down", "later"), group_key="g") == [D.STARTED]  # not for ever the same trouble
    assert len(world.incidents) == 2


def test_what_does_not_fit_into_the_chain_of_a_great_group_joins_it() -> None:
    world = World(rules=rules_of(Grouping()))
    many = [alert("Down", f"s{number}", severity=EventLevel.WARNING) for number in range(RELEASED + 30)]
    world.say(*many, group_key="g")
    first = decisions(world.tick(timedelta(seconds=30)))
    rest = decisions(world.tick(timedelta(seconds=2)))
    assert (len(world.starts), len(world.starts[0].alerts)) == (1, RELEASED)
    assert (first.count(D.STARTED), rest) == (1, [D.JOINED] * 30)
    assert len(world.incidents) == 1


def test_a_service_of_a_great_group_that_has_an_incident_keeps_it() -> None:
    world = World()
    world.say(alert("Slow", "s3"))
    world.end_chains()
    world.later(minutes(6))
    world.say(*(alert("Down", f"s{number}") for number in range(9)), group_key="g")
    assert world.state("Down", "s3").incident == 1
    assert {world.state("Down", f"s{number}").incident for number in range(9)} == {1, 2}


def test_what_waited_in_a_senders_group_before_an_upgrade_is_told_in_one_chain() -> None:
    world = World(rules=rules_of(Grouping()))
    names = ("shop", "cart")
    world.say(*(alert("Down", name, severity=EventLevel.WARNING) for name in names), group_key="g")
    for name in names:
        state = replace(world.state("Down", name), group_key=f"sender:{SOURCE}:g", sender_group="")
        world.states[state.key] = state
    world.tick(minutes(1))
    assert [start.services for start in world.starts] == [("cart", "shop")]


def test_the_gravest_of_a_group_get_the_chains_that_are_left() -> None:
    world = World(rules=rules_of(Grouping(wait=timedelta(0)), storm=StormRules(sessions=2)))
    world.say(alert("Slow", "a", severity=EventLevel.WARNING), alert("Down", "z"))
    assert world.starts[0].services == ("z",)


def test_what_is_said_twice_in_one_body_is_decided_once() -> None:
    world = World()
    assert sorted(world.told(alert(), alert(), group_key="g")) == [D.DUPLICATE, D.STARTED]
    assert world.state().count == 2


def test_after_a_chain_the_next_one_of_its_group_waits_for_the_interval() -> None:
    world = World(rules=rules_of(Grouping()))
    world.say(alert("Down"), group_key="g")
    world.end_chains()
    world.later(minutes(1))
    assert world.told(alert("Slow"), group_key="g") == [D.GROUPED]
    assert world.tick(minutes(3)) == []
    assert decisions(world.tick(minutes(1))) == [D.STARTED]
    assert [start.incident for start in world.starts] == [1, 1]


def test_what_fires_for_hours_is_told_again() -> None:
    world = World()
    world.say(alert())
    world.end_chains()
    assert world.tick(minutes(239)) == []
    assert decisions(world.tick(minutes(2))) == [D.STARTED]
    assert world.starts[1].incident == 1


def test_nothing_that_waits_is_lost_when_the_daemon_ends() -> None:
    world = World(rules=rules_of(Grouping()))
    world.say(alert())
    world.later(timedelta(days=2))  # nobody asked in between; every question goes to a new desk
    assert decisions(world.tick()) == [D.STARTED]


# --- storms -----------------------------------------------------------------------------------------------


def test_ten_thousand_alerts_below_one_broken_parent_start_one_session_and_are_all_decided() -> None:
    children = {f"s{n:03}": ["db"] for n in range(200)}
    world = World(case={"dependencies": connected({**children, "db": []})})
    messages = [alert(f"A{n}", f"s{n % 200:03}") for n in range(10_000)]
    world.say(*messages[:500], group_key="g0")
    world.say(alert("Down", "db"), group_key="g-db")
    for at in range(500, 10_000, 500):
        world.later(timedelta(seconds=3))
        world.say(*messages[at : at + 500], group_key=f"g{at}")
    world.tick(minutes(1))
    assert len(world.starts) == 1
    assert world.starts[0].services == ("db",)
    assert {ruling.alert for ruling in world.rulings} == set(world.states)
    assert len(world.states) == 10_001


def test_without_known_dependencies_a_storm_starts_five_sessions_and_the_fifth_is_about_the_rest() -> None:
    world = World()
    for at in range(0, 2_000, 100):
        world.say(*(alert(f"A{n}", f"s{n % 200:03}") for n in range(at, at + 100)))
        world.later(timedelta(seconds=3))
        world.tick()
    assert len(world.starts) == 5
    assert len(world.starts[-1].services) > 10
    assert {ruling.alert for ruling in world.rulings} == set(world.states)
    assert not [state for state in world.states.values() if state.decision is None]


def test_a_storm_that_goes_on_is_told_again_when_its_window_has_passed() -> None:
    world = World()
    world.say(*(alert("A", f"s{n}") for n in range(20)))
    assert len(world.starts) == 4
    world.tick(timedelta(seconds=31))
    assert len(world.starts) == 5
    world.end_chains()
    world.later(minutes(1))
    assert world.told(alert("A", "new")) == [D.GROUPED]
    assert world.tick(minutes(5)) == []
    assert decisions(world.tick(minutes(5))) == [D.STARTED]
    assert world.starts[-1].services == ("new",)
