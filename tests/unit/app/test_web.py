"""How the daemon is, as `/readyz` tells it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from claudeops.app.web import FileSources, readiness_of
from claudeops.domain.alerts.rules import NO_RULES, SenderKind
from support.listening import NOON, SOURCES, TestClock


def not_well(
    *,
    trouble: str | None = None,
    fires: Mapping[str, datetime | None] | None = None,
    disk: str = "",
    outbox: str = "",
) -> dict[str, str]:
    """Return the checks that fail, with what they say."""
    clock = TestClock()
    found = readiness_of(
        clock=clock,
        trouble=lambda: trouble,
        fires=lambda: fires or {},
        disk=lambda: disk,
        outbox=lambda: outbox,
        is_metered=False,
    )()

    assert [check.name for check in found] == [
        *("database_writes", "scheduler_tick", "cli", "gate_self_test", "meter", "disk", "outbox_age")
    ]
    return {check.name: check.detail for check in found if not check.ok}


def test_a_daemon_that_works_is_ready_and_may_do_without_meter_and_schedules() -> None:
    assert not_well() == {}
    assert not_well(fires={"watch": NOON + timedelta(hours=1), "night": NOON - timedelta(seconds=59)}) == {}


@pytest.mark.parametrize("at", [None, NOON - timedelta(seconds=61)])
def test_a_clock_that_stands_still_is_seen(at: datetime | None) -> None:
    assert set(not_well(fires={"watch": NOON, "night": at})) == {"scheduler_tick"}


def test_what_the_daemon_lacks_is_said() -> None:
    assert not_well(trouble="it is locked.", disk="it is full.", outbox="it waits.") == {
        "database_writes": "it is locked.",
        "disk": "it is full.",
        "outbox_age": "it waits.",
    }


def test_a_source_signs_with_those_of_its_variables_that_are_set() -> None:
    rules = NO_RULES
    sources = FileSources(rules=lambda: rules, environment={"SCRIPTS": "a-secret", "GRAFANA": ""})
    assert sources.secrets(sources.source("scripts")) == []

    rules = SOURCES  # the file was changed
    assert [list(sources.secrets(sources.source(name))) for name in ("scripts", "grafana")] == [["a-secret"], []]
    assert sources.source("nobody").kind is SenderKind.GENERIC
    assert "a-secret" not in repr(sources)
