"""The daily dose and the long one: what is drawn, what waits, and what a long run writes down."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from support.doses import SEED_VARIABLE, drawn
from support.long_log import LongLog

CASES: Final = range(100)


def daily(cases: list[ParameterSet]) -> list[object]:
    return [case.values[0] for case in cases if not any(mark.name == "long" for mark in case.marks)]


def test_every_case_is_in_one_of_the_doses_and_those_of_always_are_daily() -> None:
    cases = drawn(CASES, count=3, always=[7, 8])
    assert [case.values[0] for case in cases] == list(CASES)
    assert len(daily(cases)) == 5
    assert {7, 8} <= set(daily(cases))


def test_all_processes_of_a_day_draw_the_same_and_another_day_draws_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "20260304")
    today = daily(drawn(CASES, count=5))
    assert daily(drawn(CASES, count=5)) == today
    monkeypatch.setenv(SEED_VARIABLE, "20260305")
    assert daily(drawn(CASES, count=5)) != today


def test_what_a_case_is_named_and_marked_with_stays() -> None:
    (case,) = drawn([pytest.param(1, id="one", marks=pytest.mark.dialect)], count=0)
    assert (case.id, [mark.name for mark in case.marks]) == ("one", ["dialect", "long"])


def test_a_long_run_that_was_broken_off_has_written_what_it_did(tmp_path: Path) -> None:
    file = tmp_path / "build" / "long.txt"
    log = LongLog(file)
    arguments = SimpleNamespace(args=("--long", str(file), "tests/kill_matrix"))
    log.pytest_sessionstart(SimpleNamespace(config=SimpleNamespace(invocation_params=arguments)))  # type: ignore[arg-type]
    for when, outcome, seconds in (("setup", "passed", 0.5), ("call", "failed", 2.0), ("teardown", "passed", 0.25)):
        log.pytest_runtest_logreport(
            SimpleNamespace(nodeid="a.py::test_a", when=when, outcome=outcome, duration=seconds)  # type: ignore[arg-type]
        )
    begun, test = file.read_text().splitlines()
    assert begun.endswith("tests/kill_matrix")
    assert test.partition(" ")[2] == "failed 2.8 s a.py::test_a"
