"""How long a daemon takes until it is ready, and what it holds while nothing is to be done."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, percentile, spread, verdict
from support.estate import deliver, look, report
from support.held import held_mib, shared_mib
from support.operating import Daemon, operator, say
from support.stand_in_daemon import seconds, stand_in_node, told

READY_MILLISECONDS: Final = 700.0
"""From the start of the process until it serves, at the median, on a database that is there."""

IDLE_MIB: Final = 80.0
"""Of all its processes together, each with its share of what it shares, after the first session."""

_QUIET_SECONDS: Final = 5.0  # after a session: what it has freed is given back within this time


def ready(setup: Setup) -> Table:
    """Measure starts on a new database, on one that is there, and with the bundled CLI."""
    first, again, bundled = anyio.run(starts, setup)
    target = f"{READY_MILLISECONDS:g} ({verdict(met=percentile(again, 0.5) <= READY_MILLISECONDS)})"
    return Table(
        title="Start: `claudeops run` → ready (directories, lock, cell tried, migrations, dead sessions looked for)",
        columns=("", "starts", "median ms", "p99 ms", "longest ms", "target median"),
        rows=[
            ("new database", str(len(first)), *spread(first, 0), ""),
            ("known database", str(len(again)), *spread(again, 0), target),
            ("with the bundled CLI", str(len(bundled)), *spread(bundled, 0), ""),
        ],
        notes=(
            "The CLI of the first two is the stand-in; asking the bundled one for its version takes most of what is",
            "more. Its self-test, two seconds once for each version of it, is not in here.",
        ),
        samples={"start → ready": again},
    )


def memory(setup: Setup) -> Table:
    """Measure a daemon that has run a session and waits for the next."""
    together, resident, own = zip(*anyio.run(held_idle, setup), strict=True)
    target = f"{IDLE_MIB:g} ({verdict(met=max(together) <= IDLE_MIB)})"
    return Table(
        title="Idle memory: a daemon that does not listen, after its first session, on a database that is there",
        columns=("", "daemons", "median MiB", "p99 MiB", "largest MiB", "target"),
        rows=[
            ("all processes (PSS)", str(len(together)), *spread(together, 1), target),
            ("resident (RSS)", str(len(resident)), *spread(resident, 1), ""),
            ("its alone (USS)", str(len(own)), *spread(own, 1), ""),
        ],
        notes=("Between sessions it has one process; the last two rows are of that one.",),
    )


async def starts(setup: Setup) -> tuple[list[float], list[float], list[float]]:
    first: list[float] = []
    again: list[float] = []
    bundled: list[float] = []
    for _ in range(setup.repeats):
        with tempfile.TemporaryDirectory(dir=setup.directory) as name:
            async with stand_in_node(Path(name), is_new=True) as node:
                node.script(look(), deliver(report()))
                for times in (first, again):
                    started = time.time()
                    async with node.daemon() as daemon:
                        await daemon.until_logged("daemon_ready")
                        times.append(_ready_after(daemon, started))
                        await node.until_idle()
        with tempfile.TemporaryDirectory(dir=setup.directory) as name:
            async with operator(Path(name), haiku=[say("done")]) as person:
                person.forget_database()
                started = time.time()
                async with person.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0") as daemon:
                    await daemon.until_logged("daemon_ready")
                    bundled.append(_ready_after(daemon, started))
    return first, again, bundled


def _ready_after(daemon: Daemon, started: float) -> float:
    """Return milliseconds; both moments are the machine's wall clock."""
    (line,) = told(daemon, "daemon_ready")
    return (seconds(line["timestamp"]) - started) * 1000


async def held_idle(setup: Setup) -> list[tuple[float, float, float]]:
    found = []
    for _ in range(setup.repeats):
        with tempfile.TemporaryDirectory(dir=setup.directory) as name:
            async with stand_in_node(Path(name)) as node:
                node.script(look(), deliver(report()))
                async with node.daemon() as daemon:
                    await daemon.until_logged("session_ended")
                    await anyio.sleep(_QUIET_SECONDS)
                    resident, _, own = held_mib(daemon.process.pid)
                    found.append((shared_mib(daemon.process.pid), resident, own))
    return found
