"""The trials that the test suite runs: fixed ones, a few of them with the real CLI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from claudeops.engine.cell.cell import Level
from kill_matrix.matrix import Matrix, Verdict
from kill_matrix.plan import Plan, plan_of, polite_plan_of
from support.levels import unavailable

AT_ONCE: Final = 3
PASSED_BY: Final = 4
"""So many points may be missed in half a round: whether a daemon comes by some of them is a matter of speed."""

WITH_REAL_CLI: Final = frozenset({12, 62})


async def run_seeds(directory: Path, seeds: Iterable[int]) -> None:
    """Run the trials of some seeds; fails with a sentence for everything that does not hold."""
    await run_plans(directory, [plan_of(seed, real_cli=seed in WITH_REAL_CLI) for seed in seeds])


async def run_politely(directory: Path, numbers: Iterable[int]) -> None:
    """Run some trials of the first round of the polite ones; fails as `run_seeds`, and where most was passed by."""
    verdicts = await run_plans(directory, [polite_plan_of(number) for number in numbers])
    dealt = {strike for verdict in verdicts for strike in verdict.struck}
    missed = [
        str(strike)
        for verdict in verdicts
        for strike in verdict.plan.strikes
        if strike.label is not None and strike not in dealt
    ]
    assert len(missed) <= PASSED_BY, f"nobody came by: {missed}"


async def run_plans(directory: Path, plans: Sequence[Plan]) -> Sequence[Verdict]:
    """Run trials and return their verdicts; fails as `run_seeds`.

    Where bubblewrap does not work they run without isolation.
    """
    possible = [replace(plan, isolation=_possible(plan.isolation)) for plan in plans]
    verdicts = await Matrix(directory=directory, at_once=AT_ONCE).run(possible)
    told = [f"{verdict.plan}: {fault}" for verdict in verdicts for fault in verdict.faults]
    assert len(verdicts) == len(plans)
    assert not told, "\n".join(told)
    return verdicts


def _possible(isolation: str) -> str:
    return isolation if unavailable(Level(isolation)) is None else Level.NONE.value
