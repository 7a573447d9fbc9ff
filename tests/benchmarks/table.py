"""What a line of the capacity card is made of."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """How to measure."""

    directory: Path  # on the disk that is measured; empty, and emptied afterwards
    repeats: int  # runs of everything; the card shows medians and the extremes
    stream_bytes: int  # of the streams that are read


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One line of the card, with all its rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()  # what was measured, and what the target is

    def __str__(self) -> str:
        """Return it as text with aligned columns."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in self._all()]
        return "\n".join([self.title, "", *lines, "", *self.notes])

    def _all(self) -> list[tuple[str, ...]]:
        return [self.columns, *self.rows]


def shown(values: Sequence[float], digits: int = 0) -> str:
    """Return the median of some values, with the extremes."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
