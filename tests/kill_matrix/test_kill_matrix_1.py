"""Whoever is killed when, nothing is lost, done twice or left running: first half.

In two files, so that two test processes share them. A day draws some trials of each; all of them are a long dose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kill_matrix.databases import DatabaseKind
from kill_matrix.matrix import known_plans
from kill_matrix.plan import POLITE_ROUND, plan_of
from kill_matrix.suite import WITH_REAL_CLI, of_the_day, run_plans, run_politely, run_seeds

SEEDS = range(50)
POLITE = range(POLITE_ROUND // 2)


async def test_nothing_is_lost_nothing_is_done_twice_nothing_is_left(tmp_path: Path) -> None:
    """The trials that failed once are among them, and one with the real CLI."""
    real = min(WITH_REAL_CLI)
    drawn = of_the_day([seed for seed in SEEDS if seed != real], 6)
    known = known_plans(kind=DatabaseKind.SQLITE)
    await run_plans(tmp_path, [plan_of(real, real_cli=True), *known, *map(plan_of, drawn)])


async def test_a_daemon_that_is_asked_to_stop_anywhere_leaves_nothing(tmp_path: Path) -> None:
    await run_politely(tmp_path, of_the_day(POLITE, 4))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", [0, 25])
async def test_of_many_trials_none_loses_anything(tmp_path: Path, first: int) -> None:
    await run_seeds(tmp_path, SEEDS[first : first + 25])


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_daemon_that_is_asked_to_stop_at_every_point_leaves_nothing(tmp_path: Path) -> None:
    await run_politely(tmp_path, POLITE)
