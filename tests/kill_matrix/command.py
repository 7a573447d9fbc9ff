"""``make kill-matrix``: many trials, their figures, and the seeds of those that failed.

``--nodes 2`` has two daemons share a PostgreSQL database, which the command starts.

``TRIALS`` trials are run from ``SEED`` on, after those that failed once (``tests/data/kill-matrix.jsonl``) and, where
they are a hundred or more, those in which daemons are asked to stop (the seeds below 0). A run of a hundred trials or
more adds its figures to ``docs/reference/kill-matrix.md``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from claudeops.structs import replace
from kill_matrix.databases import DatabaseKind
from kill_matrix.figures import Figures, add_to
from kill_matrix.matrix import Matrix, Verdict, keep, known_plans
from kill_matrix.plan import POLITE_ROUND, POLITE_ROUNDS, Plan, fleet_plan_of, plan_of
from support.passable import let_pass

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference" / "kill-matrix.md"
ENOUGH_TRIALS: Final = 100  # from here on figures are worth keeping


def main(arguments: Sequence[str] | None = None) -> int:
    """Run trials; return how many failed, at most 1."""
    chosen = _parser().parse_args(arguments)
    kind = DatabaseKind.POSTGRESQL if chosen.nodes > 1 else DatabaseKind(chosen.database)
    planned = partial(_plan, nodes=chosen.nodes, kind=kind, cli=chosen.cli)
    plans = [planned(seed) for seed in range(chosen.seed, chosen.seed + chosen.trials)]
    # That somebody does not listen to the API any more is what the trials are about.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    if chosen.trials > 1:
        known = [plan for plan in known_plans() if (plan.nodes, plan.database) == (chosen.nodes, kind)]
        plans = [*known, *plans]
    if chosen.polite and chosen.trials >= ENOUGH_TRIALS:
        plans = [*map(planned, range(-1, -1 - POLITE_ROUND * POLITE_ROUNDS, -1)), *plans]
    with tempfile.TemporaryDirectory(prefix="kill-matrix-", dir=chosen.directory) as directory:
        let_pass(Path(directory))
        began = time.monotonic()
        matrix = Matrix(directory=Path(directory), at_once=chosen.at_once, tell=_told)
        verdicts = anyio.run(partial(matrix.run, plans))
        figures = Figures.of(verdicts, seconds=time.monotonic() - began)
    failed = [verdict for verdict in verdicts if verdict.faults]
    for verdict in failed:
        keep(verdict)
    _say(f"\n{figures}")
    if len(verdicts) >= ENOUGH_TRIALS:
        add_to(REFERENCE, figures)
        _say(f"\nAdded to {REFERENCE}.")
    return 1 if failed else 0


def _plan(seed: int, *, nodes: int, kind: DatabaseKind, cli: str | None) -> Plan:
    is_real = None if cli is None else cli == "real"
    if nodes > 1:
        return fleet_plan_of(seed, nodes, real_cli=is_real)
    return replace(plan_of(seed, real_cli=is_real), database=kind)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make kill-matrix", description="Kill daemons and CLIs, and see what is left."
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    parser.add_argument("--at-once", type=int, default=4, help="trials at the same time")
    parser.add_argument("--cli", choices=["stand-in", "real"], help="for all trials; else the seeds decide")
    parser.add_argument(
        "--no-polite",
        dest="polite",
        action="store_false",
        help="of many trials, when daemons were asked to stop already",
    )
    parser.add_argument("--nodes", type=int, default=1, help="daemons that share a database")
    kinds = [kind.value for kind in DatabaseKind]
    parser.add_argument("--database", choices=kinds, default="sqlite", help="of several nodes: postgresql, always")
    parser.add_argument("--directory", help="where trials live; choose the disk that matters")
    return parser


def _told(verdict: Verdict) -> None:
    if verdict.faults:
        _say(f"FAILED {verdict.plan}")
        for fault in verdict.faults:
            _say(f"    {fault}")
        plan = verdict.plan
        way = "" if plan.database == "sqlite" else f" ARGS='--nodes {plan.nodes} --database {plan.database}'"
        _say(f"    again: make kill-matrix SEED={plan.seed} TRIALS=1{way}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
