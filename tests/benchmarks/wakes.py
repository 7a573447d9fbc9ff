"""How soon an operator's command is seen by the daemon beside it, and what a daemon costs that has nothing to do."""

from __future__ import annotations

import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, percentile, spread, verdict
from support.estate import deliver, look, report
from support.operating import Daemon
from support.stand_in_daemon import StandInNode, seconds, stand_in_node, told
from support.waiting import until

SEEN_MILLISECONDS: Final = 100.0
"""From the moment that a command writes to what the daemon does about it, at the 99th percentile."""

IDLE_PERCENT: Final = 0.2
"""Of one core, by a daemon that has nothing to do."""

_SETTLED_SECONDS: Final = 75.0  # by then the first upkeep is over
_IDLE_SECONDS: Final = 120.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def seen(setup: Setup) -> Table:
    """Measure pauses, resumes and requests beside a daemon: each is a process."""
    pauses, stops, starts = anyio.run(_wishes, setup)
    slowest = max(percentile(times, 0.99) for times in (pauses, stops, starts))
    target = f"{SEEN_MILLISECONDS:g} ({verdict(met=slowest <= SEEN_MILLISECONDS)})"
    return Table(
        title="Wake: an operator's command beside the daemon has written → the daemon has acted",
        columns=("", "commands", "median ms", "p99 ms", "longest ms", "target p99"),
        rows=[
            ("pause → the hold in daemon.json", str(len(pauses)), *spread(pauses, 1), target),
            ("pause --stop → the command taken", str(len(stops)), *spread(stops, 1), target),
            ("bootstrap --detach → the session claimed", str(len(starts)), *spread(starts, 1), target),
        ],
        notes=("The command's own start, before it writes, is in `commands`; its commit, with its fsync, is in here.",),
        samples={"pause → seen": pauses, "request → claimed": starts},
    )


def idle(setup: Setup) -> Table:
    """Measure a daemon on a known database, two minutes long, after its first session and its first upkeep."""
    percents, switches = zip(*anyio.run(cost_idle, setup), strict=True)
    worst = max(percents)
    return Table(
        title=f"Idle: processor time of a daemon with nothing to do, for {_IDLE_SECONDS:g} s",
        columns=("", "daemons", "median", "p99", "worst", "target"),
        rows=[
            (
                "% of one core",
                str(len(percents)),
                *spread(percents, 2),
                f"{IDLE_PERCENT:g} ({verdict(met=worst <= IDLE_PERCENT)})",
            ),
            ("wake-ups a second", str(len(switches)), *spread(switches, 1), ""),
        ],
        notes=("Wake-ups are the voluntary switches of its first thread. It has no child processes then.",),
    )


async def _wishes(setup: Setup) -> tuple[list[float], list[float], list[float]]:
    pauses: list[float] = []
    stops: list[float] = []
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with stand_in_node(Path(name)) as node:
            node.script(look(), deliver(report()))
            async with node.daemon() as daemon:
                await daemon.until_logged("session_ended")
                for _ in range(setup.repeats):
                    await node.operator.run("pause", "--stop")
                    pauses.append(await _until_shown(node))
                    await node.operator.run("resume")
                    await until(lambda: not _status(node)["holds"])
                    await node.operator.run("bootstrap", "--detach", **node.settings())
                    await node.until_idle()
                stops = [
                    (_utc(row["taken_at"]) - _utc(row["requested_at"])) * 1000
                    for row in node.operator.rows("SELECT taken_at, requested_at FROM commands")
                ]
                starts = _claimed_after(node, daemon)
    return pauses, stops, starts


async def _until_shown(node: StandInNode) -> float:
    """Return how long after the beginning of a hold the status file that first shows it was written."""
    await until(lambda: bool(_status(node)["holds"]))
    status = _status(node)
    (hold,) = status["holds"]
    return (seconds(status["written_at"]) - seconds(hold["since"])) * 1000


def _status(node: StandInNode) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads((node.operator.root / "state" / "daemon.json").read_bytes())
    return found


def _claimed_after(node: StandInNode, daemon: Daemon) -> list[float]:
    """Return how long after the rows of requests their sessions were claimed."""
    claimed = {line["session_id"]: seconds(line["timestamp"]) for line in told(daemon, "session_claimed")}
    rows = node.operator.rows("SELECT id, created_at FROM sessions WHERE \"trigger\" = 'manual'")
    return [(claimed[row["id"]] - _utc(row["created_at"])) * 1000 for row in rows]


def _utc(moment: object) -> float:
    """Return a row's moment as seconds since the epoch."""
    return datetime.fromisoformat(str(moment)).replace(tzinfo=UTC).timestamp()


async def cost_idle(setup: Setup) -> list[tuple[float, float]]:
    found = []
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with stand_in_node(Path(name)) as node:
            node.script(look(), deliver(report()))
            for _ in range(max(1, setup.repeats // 3)):
                async with node.daemon() as daemon:
                    await daemon.until_logged("daemon_ready")
                    await anyio.sleep(_SETTLED_SECONDS)
                    found.append(await _cost(daemon.process.pid))
    return found


async def _cost(pid: int) -> tuple[float, float]:
    """Return percents of one core, and wake-ups a second."""
    began, ticks, switches = time.monotonic(), _ticks(pid), _switches(pid)
    await anyio.sleep(_IDLE_SECONDS)
    took = time.monotonic() - began
    return 100 * (_ticks(pid) - ticks) / _TICKS / took, (_switches(pid) - switches) / took


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
