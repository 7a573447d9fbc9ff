"""The figures of a run, and the table in the documentation that they are added to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from kill_matrix.matrix import Verdict
from kill_matrix.plan import Cli
from kill_matrix.points import POINTS
from kill_matrix.tokens import Sums

KINDS: Final = ("lost", "twice", "stray", "tokens")
"""How the sentence of a fault begins, where it breaks one of the main promises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """A run in numbers."""

    trials: int
    nodes: str  # how many, and on which kind of database
    real: int  # trials with the real CLI
    reached: frozenset[str]  # points at which somebody was struck
    victims: Mapping[str, int]  # strikes, by who was struck
    timed: int  # strikes at random times
    outcomes: Mapping[str, int]  # of sessions
    faults: Mapping[str, int]  # trials, by kind
    failed: int  # trials with any fault
    tokens: Sums
    seconds: float

    @classmethod
    def of(cls, verdicts: Sequence[Verdict], *, seconds: float) -> Self:
        """Add up trials."""
        strikes = [strike for verdict in verdicts for strike in verdict.struck]
        return cls(
            trials=len(verdicts),
            nodes=", ".join(sorted({f"{each.plan.nodes} ({each.plan.database})" for each in verdicts})),
            real=sum(verdict.plan.cli is Cli.REAL for verdict in verdicts),
            reached=frozenset(strike.label for strike in strikes if strike.label is not None),
            victims=Counter(strike.who for strike in strikes),
            timed=sum(strike.label is None for strike in strikes),
            outcomes=sum((verdict.outcomes for verdict in verdicts), Counter()),
            faults={
                kind: sum(any(fault.startswith(kind) for fault in verdict.faults) for verdict in verdicts)
                for kind in KINDS
            },
            failed=sum(bool(verdict.faults) for verdict in verdicts),
            tokens=sum((verdict.tokens for verdict in verdicts), Sums()),
            seconds=seconds,
        )

    @property
    def unreached(self) -> list[str]:
        """The points at which nobody was struck."""
        return [point.label for point in POINTS if point.label not in self.reached]

    def __str__(self) -> str:
        tokens = self.tokens
        return "\n".join(
            (
                f"{self.trials} trials, {self.real} with the real CLI, in {self.seconds:.0f} s; {self.failed} failed",
                f"nodes: {self.nodes}",
                f"points reached: {len(self.reached)} of {len(POINTS)}; not: {', '.join(self.unreached) or 'none'}",
                f"strikes: {_counted(self.victims)}; {self.timed} of them at random times",
                f"sessions: {_counted(self.outcomes)}",
                "trials that lost something {lost}, did it twice {twice}, left something {stray}, "
                "booked wrongly {tokens}".format(**self.faults),
                f"tokens of calls that were seen to end: served {tokens.served}, booked {tokens.booked}",
                f"calls cut off: {tokens.cut_off}, served {tokens.served_to_cut_off} tokens",
                f"US dollars: served {tokens.served_usd:.4f}, charged {tokens.charged_usd:.4f}",
            )
        )

    def row(self) -> str:
        """Return it as a row of the table."""
        tokens, faults = self.tokens, self.faults
        cells = (
            f"{datetime.now(UTC):%Y-%m-%d}",
            self.nodes,
            f"{self.trials} ({self.real} real CLI)",
            f"{len(self.reached)} of {len(POINTS)}",
            f"{sum(self.victims.values())} ({_counted(self.victims)}; {self.timed} at random times)",
            f"{sum(self.outcomes.values())} ({self.outcomes.get('lost', 0)} `lost`)",
            f"{faults['lost']} / {faults['twice']} / {faults['stray']}",
            f"{tokens.served:,} / {tokens.booked:,}",
            f"{tokens.cut_off} ({tokens.served_to_cut_off:,})",
            f"{tokens.served_usd:.2f} / {tokens.charged_usd:.2f}",
            f"{self.failed}",
            f"{self.seconds:.0f}",
        )
        return f"| {' | '.join(cells)} |"


def add_to(path: Path, figures: Figures) -> None:
    """Add a row to the table with which the page ends."""
    text = path.read_text(encoding="utf-8").rstrip("\n")
    path.write_text(f"{text}\n{figures.row()}\n", encoding="utf-8")


def _counted(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(numbers.items(), key=lambda item: -item[1]))
