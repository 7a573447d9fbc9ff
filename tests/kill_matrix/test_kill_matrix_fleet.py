"""Whichever of two nodes on one PostgreSQL is killed, asked to stop or stopped for a while: the other one goes on.

Nothing is lost, nothing is done twice, and nothing is left. A day draws some trials; more of them are a long dose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kill_matrix.databases import DatabaseKind
from kill_matrix.matrix import known_plans
from kill_matrix.plan import POLITE_ROUND, fleet_plan_of
from kill_matrix.suite import of_the_day, run_plans
from support.stores import POSTGRES

pytestmark = list(POSTGRES)

NODES = 2
SEEDS = range(100)
POLITE = range(-POLITE_ROUND, 0)


@pytest.mark.timeout(900)
async def test_nothing_is_lost_nothing_is_done_twice_nothing_is_left(tmp_path: Path) -> None:
    """The trials that failed once are among them."""
    drawn = [*of_the_day(SEEDS, 2), *of_the_day(POLITE, 1)]
    plans = [fleet_plan_of(seed, NODES, real_cli=False) for seed in drawn]
    await run_plans(tmp_path, [*known_plans(kind=DatabaseKind.POSTGRESQL), *plans])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, len(SEEDS), 25))
async def test_of_many_trials_none_loses_anything(tmp_path: Path, first: int) -> None:
    await run_plans(tmp_path, [fleet_plan_of(seed, NODES) for seed in SEEDS[first : first + 25]])


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_node_that_is_asked_to_stop_at_every_point_leaves_nothing(tmp_path: Path) -> None:
    await run_plans(tmp_path, [fleet_plan_of(seed, NODES) for seed in POLITE])
