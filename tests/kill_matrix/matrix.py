"""Many trials: run a few at a time from one zygote, each of them judged."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from kill_matrix.databases import DatabaseKind, Templates, templates
from kill_matrix.forks import Zygote, zygote
from kill_matrix.invariants import check
from kill_matrix.plan import Plan, Strike
from kill_matrix.records import Records
from kill_matrix.tokens import Sums, check_tokens, sums
from kill_matrix.trial import run_trial

KNOWN: Final = Path(__file__).parents[1] / "data" / "kill-matrix.jsonl"
"""The plans of trials that failed once, a line each; they are run before all others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a trial came to."""

    plan: Plan
    struck: tuple[Strike, ...]
    faults: tuple[str, ...]
    outcomes: Counter[str]  # of its sessions
    daemons: int
    tokens: Sums
    seconds: float


@dataclass(kw_only=True)
class Matrix:
    """Trials below one directory."""

    directory: Path
    at_once: int
    tell: Callable[[Verdict], None] = field(default=lambda _: None)

    async def run(self, plans: Iterable[Plan]) -> Sequence[Verdict]:
        """Run trials; return their verdicts in the order in which they ended."""
        verdicts: list[Verdict] = []
        plans = tuple(plans)
        waiting = enumerate(plans)

        async def work(daemons: Zygote, made: Templates) -> None:
            for number, plan in waiting:
                verdict = await self._judged(plan, self.directory / f"{number:05d}", daemons, made)
                self.tell(verdict)
                verdicts.append(verdict)

        with templates(self.directory, [DatabaseKind(plan.database) for plan in plans]) as made:
            async with zygote() as daemons, anyio.create_task_group() as tasks:
                for _ in range(self.at_once):
                    tasks.start_soon(work, daemons, made)
        return verdicts

    async def _judged(self, plan: Plan, root: Path, daemons: Zygote, made: Templates) -> Verdict:
        course, world, traffic = await run_trial(plan, root, daemons, made)
        records = Records(world)
        faults = [*course.faults, *check(records, course), *check_tokens(records, traffic)]
        verdict = Verdict(
            plan=plan,
            struck=tuple(course.struck),
            faults=tuple(faults),
            outcomes=Counter(str(row["outcome"]) for row in records.sessions),
            daemons=course.daemons,
            tokens=sums(records, traffic),
            seconds=course.seconds,
        )
        if faults:
            left = Path(shutil.move(root, Path(self.directory.parent) / f"kill-matrix-seed-{plan.seed}"))
            (left / "faults.txt").write_text("\n".join(faults), encoding="utf-8")
        else:
            shutil.rmtree(root)
        world.database.remove()
        return verdict


def known_plans(path: Path = KNOWN, *, kind: DatabaseKind | None = None) -> list[Plan]:
    """Return the plans that failed once; ``kind``: on one kind of database alone."""
    plans = [Plan.from_document(json.loads(line)["plan"]) for line in path.read_text(encoding="utf-8").splitlines()]
    return [plan for plan in plans if kind is None or plan.database == kind]


def keep(verdict: Verdict, path: Path = KNOWN) -> None:
    """Keep the plan of a trial that failed, unless it is there."""
    if verdict.plan in known_plans(path):
        return
    with path.open("a", encoding="utf-8") as known:
        line = {"plan": verdict.plan.document(), "showed": verdict.faults[0]}
        known.write(f"{json.dumps(line)}\n")
