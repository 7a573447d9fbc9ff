"""The trials that the test suite runs: fixed ones, a few of them with the real CLI."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from claudeops.engine.cell import Level
from kill_matrix.matrix import Matrix
from kill_matrix.plan import plan_of
from support.levels import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kill_matrix.plan import Plan

AT_ONCE: Final = 3
WITH_REAL_CLI: Final = frozenset({12, 62})


async def run_seeds(directory: Path, seeds: Iterable[int]) -> None:
    """Run the trials of some seeds; fails with a sentence for everything that does not hold."""
    await run_plans(directory, [plan_of(seed, real_cli=seed in WITH_REAL_CLI) for seed in seeds])


async def run_plans(directory: Path, plans: Sequence[Plan]) -> None:
    """Run trials; fails as `run_seeds`. Where bubblewrap does not work they run without isolation."""
    possible = [replace(plan, isolation=_possible(plan.isolation)) for plan in plans]
    verdicts = await Matrix(directory=directory, at_once=AT_ONCE).run(possible)
    told = [f"{verdict.plan}: {fault}" for verdict in verdicts for fault in verdict.faults]
    assert len(verdicts) == len(plans)
    assert not told, "\n".join(told)


def _possible(isolation: str) -> str:
    return isolation if unavailable(Level(isolation)) is None else Level.NONE.value
