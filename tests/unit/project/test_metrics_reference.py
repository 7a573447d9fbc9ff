"""The page of metrics, the rules and the dashboard name metrics that there are, with their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from claudeops.metrics import DECLARED, DeclaredMetric, KnownSets, MetricKind, Metrics
from support.checkout import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"
RULES: Final = ROOT / "deploy" / "prometheus" / "claudeops.rules.yaml"
DASHBOARD: Final = ROOT / "deploy" / "prometheus" / "claudeops-dashboard.json"
OF_HISTOGRAMS: Final = ("_bucket", "_sum", "_count")
OF_TARGETS: Final = {"instance", "job", "le"}
OF_PROCESSES: Final = {"process_start_time_seconds", "process_resident_memory_bytes"}


def series() -> dict[str, DeclaredMetric]:
    """Return what is declared, by the names that an expression may have."""
    found: dict[str, DeclaredMetric] = {}
    for each in DECLARED:
        names = [each.name + ending for ending in OF_HISTOGRAMS] if each.kind is MetricKind.HISTOGRAM else [each.name]
        found |= dict.fromkeys(names, each)
    return found


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:claudeops|process|python)_\w+", expression))


def in_rules() -> list[str]:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule["expr"] for rule in group["rules"]]


def in_dashboard() -> Iterator[str]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """Yield the labels by which series are chosen, each with the name of its metric."""
    for name, chosen in re.findall(r"\b(claudeops_\w+)\{([^}]*)\}", expression):
        yield from ((name, label) for label in re.findall(r"(\w+)\s*[=!]", chosen))


def test_every_metric_has_its_row_and_every_row_its_metric() -> None:
    row = r"^\| `(claudeops_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$"
    found = re.findall(row, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    declared = sorted(DECLARED, key=lambda each: each.name)
    assert found == [
        (each.name, each.kind.value, ", ".join(f"`{label}`" for label in each.labels), each.meaning)
        for each in declared
    ]


def test_the_registry_has_what_is_declared_and_what_the_process_is() -> None:
    registry = Metrics(KnownSets(version="1")).registry
    known = {name for each in registry.collect() for name in (each.name, f"{each.name}_total")}
    registered = set(registry._names_to_collectors)
    assert set(series()) <= registered
    assert known >= OF_PROCESSES
    ours = {name for name in registered if name.startswith("claudeops_")}
    assert {re.sub("_(created|bucket|sum|count|total)$", "", name) for name in ours} == {
        each.name.removesuffix("_total") for each in DECLARED
    }


@pytest.mark.parametrize("expression", [*in_rules(), *in_dashboard()])
def test_no_alarm_and_no_panel_waits_for_a_metric_that_does_not_exist(expression: str) -> None:
    there = series()
    assert names_in(expression) <= {*there, *OF_PROCESSES}
    assert {
        (name, label) for name, label in labels_in(expression) if label not in {*there[name].labels, *OF_TARGETS}
    } == set()
    for wanted in re.findall(r"\bby \(([^)]*)\)", expression):
        used = {label for name in names_in(expression) & set(there) for label in there[name].labels}
        assert {label.strip() for label in wanted.split(",")} <= used | OF_TARGETS


def test_every_alarm_says_what_to_do() -> None:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"]) > 0
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) >= 10


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {series()[name].name for expression in in_dashboard() for name in names_in(expression) - OF_PROCESSES}
    assert shown == {each.name for each in DECLARED}
