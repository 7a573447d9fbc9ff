"""What explains an alert, and until when that is believed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.alerts import incidents
from claudeops.domain.alerts.alert import AlertDecision, AlertStatus, Witness, WitnessKind
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.rules import InhibitRule
from claudeops.domain.events import EventLevel
from claudeops.domain.probes.dependencies import connected
from claudeops.structs import replace
from support.alerts import NOON, World, alert, decisions, minutes, over, rules_of

D = AlertDecision
SHOP_NEEDS_DB = connected({"shop": ["db"], "cart": ["shop"], "db": []})

INHIBIT = InhibitRule(
    source=tuple(read_matchers(["alertname=ClusterDown"])),
    target=tuple(read_matchers(['alertname!=""'])),
    equal=("cluster",),
)


def in_cluster(name: str, cluster: str) -> dict[str, object]:
    return {"labels": {"alertname": name, "cluster": cluster}}


def test_a_rule_lets_one_alert_explain_others_with_the_same_labels() -> None:
    world = World(rules=rules_of(inhibit=(INHIBIT,)))
    said = world.told(
        alert("Down", "shop", **in_cluster("Down", "a")),
        alert("Down", "cart", **in_cluster("Down", "b")),
        alert("ClusterDown", "k8s", **in_cluster("ClusterDown", "a")),
    )
    assert said == [D.INHIBITED, D.STARTED, D.STARTED]


def test_a_rule_knows_a_service_by_its_plain_name_and_tells_scopes_apart() -> None:
    rule = InhibitRule(
        source=tuple(read_matchers(["alertname=Down", "service=checkout"])),
        target=tuple(read_matchers(["alertname=Slow", "service=~checkout|cart"])),
        equal=("service",),
    )
    world = World(rules=rules_of(inhibit=(rule,)))
    scoped = {"labels": {}, "service_by": "its labels deployment and namespace"}
    said = world.told(
        alert("Down", "shop/checkout", **scoped),
        alert("Slow", "shop/checkout", **scoped),
        alert("Slow", "staging/checkout", **scoped),
    )
    assert said == [D.STARTED, D.INHIBITED, D.STARTED]


def test_two_alerts_that_could_explain_each_other_do_not() -> None:
    both = InhibitRule(source=tuple(read_matchers(["x=y"])), target=tuple(read_matchers(["x=y"])))
    world = World(rules=rules_of(inhibit=(both,)))
    labels = {"labels": {"x": "y"}}
    assert world.told(alert("A", "a", **labels), alert("B", "b", **labels)) == [D.STARTED, D.STARTED]


def test_when_the_explanation_is_over_what_still_fires_is_told() -> None:
    world = World(rules=rules_of(inhibit=(INHIBIT,)))
    world.say(alert("ClusterDown", "k8s", **in_cluster("ClusterDown", "a")))
    assert world.told(alert("Down", "shop", **in_cluster("Down", "a"))) == [D.INHIBITED]
    world.say(over("ClusterDown", "k8s", **in_cluster("ClusterDown", "a")))
    assert decisions(world.tick(minutes(1))) == [D.STARTED]


def test_the_outage_of_a_parent_explains_its_children_over_any_steps_and_in_any_order() -> None:
    world = World(case={"dependencies": SHOP_NEEDS_DB})
    said = world.told(alert("Down", "cart"), alert("Down", "shop"), alert("Down", "db"), group_key="g")
    assert said == [D.INHIBITED, D.INHIBITED, D.STARTED]
    assert "db is down, and cart depends on it" in world.rulings[0].because


def test_a_parent_that_is_heard_of_a_moment_later_still_explains_its_children() -> None:
    world = World(case={"dependencies": SHOP_NEEDS_DB})
    assert world.told(alert("Down", "shop"), group_key="g1") == [D.GROUPED]
    world.later(timedelta(seconds=2))
    assert world.told(alert("Down", "db"), group_key="g2") == [D.STARTED]
    assert decisions(world.tick(timedelta(seconds=4))) == [D.INHIBITED]
    assert len(world.starts) == 1


def test_a_warning_about_a_parent_explains_nothing() -> None:
    world = World(case={"dependencies": SHOP_NEEDS_DB})
    said = world.told(alert("DiskFilling", "db", severity=EventLevel.WARNING), alert("Down", "shop"))
    assert said == [D.STARTED, D.STARTED]


def test_what_a_probe_has_seen_down_explains_too_and_may_be_told_not_to() -> None:
    case = {"dependencies": SHOP_NEEDS_DB, "broken": ("db",)}
    assert World(case=dict(case)).told(alert("Down", "shop")) == [D.INHIBITED]
    deaf = World(rules=rules_of(follow_dependencies=False), case=dict(case))
    assert deaf.told(alert("Down", "shop")) == [D.STARTED]


@pytest.mark.parametrize(("hours", "decision"), [(23.9, D.INHIBITED), (24.1, D.STARTED), (720, D.STARTED)])
@pytest.mark.parametrize("how", ["rule", "dependency"])
def test_what_has_not_been_heard_of_for_a_day_explains_nothing_more(
    how: str, hours: float, decision: AlertDecision
) -> None:
    rules = rules_of(inhibit=(INHIBIT,)) if how == "rule" else rules_of()
    world = World(rules=rules, case={} if how == "rule" else {"dependencies": SHOP_NEEDS_DB})
    world.say(alert("ClusterDown", "db", **in_cluster("ClusterDown", "a")))
    world.end_chains()
    world.case["paused"] = "alice has paused it"  # else its incident is told again
    world.later(timedelta(hours=hours))
    world.case.pop("paused")
    assert world.told(alert("Down", "shop", **in_cluster("Down", "a"))) == [decision]


def test_a_sender_that_repeats_seldom_is_believed_for_as_long() -> None:
    rules = rules_of()
    sources = (replace(rules.sources[0], stale_after=timedelta(hours=72)),)
    world = World(rules=replace(rules, sources=sources), case={"dependencies": SHOP_NEEDS_DB})
    world.say(alert("Down", "db"))
    world.later(timedelta(hours=71))
    assert world.told(alert("Down", "shop")) == [D.INHIBITED]


@pytest.mark.parametrize("how", ["rule", "dependency"])
def test_a_person_who_says_that_it_is_over_ends_what_it_explains_until_it_is_heard_again(how: str) -> None:
    rules = rules_of(inhibit=(INHIBIT,)) if how == "rule" else rules_of()
    world = World(rules=rules, case={} if how == "rule" else {"dependencies": SHOP_NEEDS_DB})
    parent, child = (
        alert("ClusterDown", "db", **in_cluster("ClusterDown", "a")),
        alert("Down", "shop", **in_cluster("Down", "a")),
    )
    world.say(parent)
    world.end_chains()
    world.later(minutes(1))
    assert world.told(child) == [D.INHIBITED]
    operator = Witness(kind=WitnessKind.OPERATOR, at=world.now)
    world.incidents[1] = incidents.witnessed(world.incidents[1], operator)
    assert decisions(world.tick(minutes(1))) == [D.STARTED]
    world.end_chains()
    world.later(minutes(6))
    world.say(parent)
    assert world.told(alert("Down", "cart" if how == "dependency" else "mail", **in_cluster("Down", "a"))) == [
        D.INHIBITED
    ]


def test_a_service_that_our_probes_see_up_explains_nothing_whatever_a_source_claims() -> None:
    world = World(case={"dependencies": SHOP_NEEDS_DB})
    world.say(alert("Down", "db"))
    world.later(minutes(1))
    world.case["up"] = {"db": NOON - minutes(1)}  # looked before the alert
    assert world.told(alert("Down", "shop")) == [D.INHIBITED]
    world.case["up"] = {"db": NOON + minutes(2)}
    assert decisions(world.tick(minutes(1))) == [D.STARTED]
    world.case = {"dependencies": SHOP_NEEDS_DB, "broken": ("db",), "up": {}}
    assert world.told(alert("Down", "cart")) == [D.INHIBITED]


def test_of_several_parents_one_that_is_not_believed_does_not_hide_another() -> None:
    world = World(case={"dependencies": SHOP_NEEDS_DB, "up": {"db": NOON + minutes(1)}})
    world.say(alert("Down", "db"), alert("Down", "shop"))
    world.later(minutes(2))
    (ruling,) = world.say(alert("Down", "cart"))
    assert ruling.decision is D.INHIBITED
    assert "shop is down, and cart depends on it" in ruling.because


def test_a_stale_parent_explains_nothing_any_more() -> None:
    rules = rules_of()
    sources = (replace(rules.sources[0], stale_after=minutes(60)),)
    world = World(rules=replace(rules, sources=sources), case={"dependencies": SHOP_NEEDS_DB})
    world.say(alert("Down", "db"))
    world.later(minutes(45))
    assert world.told(alert("Down", "shop")) == [D.INHIBITED]
    assert decisions(world.tick(minutes(20))) == [D.STALE, D.STARTED]
    assert world.state("Down", "db").status is AlertStatus.STALE
