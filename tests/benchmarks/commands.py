"""How long a person at a terminal waits for the commands that read."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, percentile, spread, verdict
from support.estate import deliver, look, report
from support.stand_in_daemon import stand_in_node

TARGETS: Final[dict[tuple[str, ...], float]] = {
    ("--help",): 60.0,
    ("status",): 120.0,
    ("health",): 150.0,
    ("list-sessions",): 300.0,
    ("list-events",): 300.0,
    ("list-incidents",): 300.0,
    ("list-approvals",): 300.0,
    ("list-actions",): 300.0,
    ("list-sources",): 300.0,
    ("load-session", "1"): 300.0,
    ("chain", "1"): 300.0,
    ("why",): 300.0,
    ("stats",): 300.0,
    ("spend",): 300.0,
    ("memories", "list"): 300.0,
}
"""Milliseconds from the start of the process to its end, at the median."""


def answered(setup: Setup) -> Table:
    """Measure commands beside a daemon that has run a session."""
    found = anyio.run(_asked, setup)
    return Table(
        title="Commands: a process that asks and ends, beside a daemon",
        columns=("", "runs", "median ms", "p99 ms", "longest ms", "target median"),
        rows=[
            (f"claudeops {' '.join(command)}", str(len(times)), *spread(times, 0), _target(times, TARGETS[command]))
            for command, times in found.items()
        ],
    )


def _target(times: list[float], limit: float) -> str:
    return f"{limit:g} ({verdict(met=percentile(times, 0.5) <= limit)})"


async def _asked(setup: Setup) -> dict[tuple[str, ...], list[float]]:
    found: dict[tuple[str, ...], list[float]] = {command: [] for command in TARGETS}
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with stand_in_node(Path(name)) as node:
            node.script(look(), deliver(report()))
            async with node.daemon() as daemon:
                await daemon.until_logged("session_ended")
                for _ in range(setup.repeats):
                    for command, times in found.items():
                        began = time.perf_counter()
                        await node.operator.run(*command, PYTHONWARNINGS="")  # as an operator has it
                        times.append((time.perf_counter() - began) * 1000)
    return found
