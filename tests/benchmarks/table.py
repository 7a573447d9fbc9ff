"""What a line of the capacity card is made of."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """How to measure."""

    directory: Path  # on the disk that is measured; empty, and emptied afterwards
    repeats: int  # runs of everything; the card shows medians and the extremes
    stream_bytes: int  # of the streams that are read
    burst: int  # sessions that are due at once
    probes: int = 1000  # watched at once
    probe_minutes: float = 2.0  # for which they are watched
    alert_seconds: float = 60.0  # for which bodies of alerts come in
    fleet: int = 1000  # sessions that wait for nodes which share a database
    beside: Path | None = None  # a binary of Claude Ops, which does the same things


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One line of the card, with all its rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()  # what was measured, and what the target is
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)  # milliseconds, by what took them
    growth: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)  # rows and milliseconds

    def __str__(self) -> str:
        """Return it as text with aligned columns."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in self._all()]
        return "\n".join([self.title, "", *lines, "", *self.notes])

    def _all(self) -> list[tuple[str, ...]]:
        return [self.columns, *self.rows]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all stays below."""
    return sorted(values)[min(len(values) - 1, round(share * len(values)))]


def spread(values: Sequence[float], digits: int = 2) -> tuple[str, str, str]:
    """Return median, 99th percentile and greatest of some values."""
    return (
        f"{statistics.median(values):.{digits}f}",
        f"{percentile(values, 0.99):.{digits}f}",
        f"{max(values):.{digits}f}",
    )


def verdict(*, met: bool) -> str:
    """Say whether a target was reached."""
    return "met" if met else "MISSED"


def shown(values: Sequence[float], digits: int = 0) -> str:
    """Return the median of some values, with the extremes."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
