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

from claudeops.settings.files import packaged
from claudeops.store.migrate import migrate
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
        template = self.directory / "template.db"
        migrate(f"sqlite:///{template}", migrations_dir=packaged("migrations"), backup_dir=self.directory)
        waiting = enumerate(plans)

        async def work(daemons: Zygote) -> None:
            for number, plan in waiting:
                verdict = await self._judged(plan, self.directory / f"{number:05d}", daemons, template)
                self.tell(verdict)
                verdicts.append(verdict)

        async with zygote() as daemons, anyio.create_task_group() as tasks:
            for _ in range(self.at_once):
                tasks.start_soon(work, daemons)
        return verdicts

    async def _judged(self, plan: Plan, root: Path, daemons: Zygote, template: Path) -> Verdict:
        course, world, traffic = await run_trial(plan, root, daemons, template)
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
        return verdict


def known_plans(path: Path = KNOWN) -> list[Plan]:
    """Return the plans that failed once."""
    return [Plan.from_document(json.loads(line)["plan"]) for line in path.read_text(encoding="utf-8").splitlines()]


def keep(verdict: Verdict, path: Path = KNOWN) -> None:
    """Keep the plan of a trial that failed, unless it is there."""
    if verdict.plan in known_plans(path):
        return
    with path.open("a", encoding="utf-8") as known:
        line = {"plan": verdict.plan.document(), "showed": verdict.faults[0]}
        known.write(f"{json.dumps(line)}\n")
