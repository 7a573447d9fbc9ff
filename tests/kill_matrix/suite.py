"""The trials that the test suite runs: drawn ones and fixed ones, a few of them with the real CLI."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from claudeops.engine.cell.cell import IsolationLevel
from claudeops.structs import replace
from kill_matrix.matrix import Matrix, Verdict
from kill_matrix.plan import Plan, plan_of, polite_plan_of
from support.doses import SEED_VARIABLE
from support.levels import unavailable

AT_ONCE: Final = 3
ATTEMPTS: Final = 4
"""A trial whose point was passed by, for something else of it came first, is run again three times."""

WITH_REAL_CLI: Final = frozenset({12, 62})


def of_the_day(numbers: Sequence[int], count: int) -> list[int]:
    """Return ``count`` of some numbers, drawn by the day's seed, in their order."""
    dice = random.Random(f"{os.environ[SEED_VARIABLE]} {numbers}")  # noqa: S311 - no secret
    return sorted(dice.sample(numbers, count))


async def run_seeds(directory: Path, seeds: Iterable[int]) -> None:
    """Run the trials of some seeds; fails with a sentence for everything that does not hold."""
    await run_plans(directory, [plan_of(seed, real_cli=seed in WITH_REAL_CLI) for seed in seeds])


async def run_politely(directory: Path, numbers: Iterable[int]) -> None:
    """Run some polite trials; fails as `run_seeds`, and where nobody came by a point however often it was tried."""
    await until_struck(directory, [polite_plan_of(number) for number in numbers], run_plans)


async def until_struck(
    directory: Path, plans: Sequence[Plan], run: Callable[[Path, Sequence[Plan]], Awaitable[Sequence[Verdict]]]
) -> None:
    """Run trials, and again those in which a daemon passed by a point; fails where that was so at every attempt.

    Whether a daemon comes by some of the points is a matter of speed: on a busy machine something else is first. By a
    point whose place is gone nobody comes ever.
    """
    missed: dict[str, tuple[Plan, list[str]]] = {}
    for attempt in range(ATTEMPTS):
        place = directory / f"attempt-{attempt}"
        place.mkdir(mode=0o711)
        missed = {
            str(verdict.plan): (verdict.plan, points)
            for verdict in await run(place, plans)
            if (points := passed_by(verdict))
        }
        plans = [plan for plan, _ in missed.values()]
        if not plans:
            return
    raise AssertionError(f"nobody came by: {[point for _, points in missed.values() for point in points]}")


def passed_by(verdict: Verdict) -> list[str]:
    """Return the points at which a trial was to be struck and was not."""
    return [str(strike) for strike in verdict.plan.strikes if strike.label is not None and strike not in verdict.struck]


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
    return isolation if unavailable(IsolationLevel(isolation)) is None else IsolationLevel.NONE.value
