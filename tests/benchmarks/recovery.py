"""How soon a daemon that follows one that was killed has claimed what waits."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from benchmarks.table import Setup, Table, spread, verdict
from support.estate import deliver, look, report
from support.operating import Daemon
from support.stand_in_daemon import StandInNode, seconds, stand_in_node, told
from support.waiting import until

TARGET_MILLISECONDS: Final = 300.0
"""From ready until every session that waited is claimed: each repeat."""

_SLOTS_OF_THE_FIRST: Final = 2
_TESTS: Final = Path(__file__).parents[1]


def claims(setup: Setup) -> Table:
    """Measure a queue that a killed daemon left, taken by one with a slot for each of its sessions."""
    waiting = setup.burst // 10
    claimed, spawned = anyio.run(_recoveries, setup, waiting)
    target = f"{TARGET_MILLISECONDS:g} ({verdict(met=max(claimed) <= TARGET_MILLISECONDS)})"
    return Table(
        title=f"Recovery: {waiting} queued sessions, daemon killed with two running; the next one ready → all claimed",
        columns=("", "kills", "median ms", "p99 ms", "longest ms", "target"),
        rows=[
            ("ready → all claimed", str(len(claimed)), *spread(claimed, 0), target),
            ("ready → first spawned", str(len(spawned)), *spread(spawned, 0), ""),
        ],
        notes=("SIGKILL, then a start on what is there; below 0: claimed before the line that says ready.",),
    )


async def _recoveries(setup: Setup, waiting: int) -> tuple[list[float], list[float]]:
    """Return milliseconds, for each kill."""
    claimed, spawned = [], []
    for _ in range(setup.repeats):
        with tempfile.TemporaryDirectory(dir=setup.directory) as name:
            async with stand_in_node(Path(name)) as node:
                queued = await killed(node, waiting)
                node.operator.runs = _wide(waiting + 3 * _SLOTS_OF_THE_FIRST)
                node.script(look(), deliver(report()))
                async with node.daemon(PYTHONPATH=str(_TESTS)) as daemon:
                    await until(partial(_are_claimed, daemon, queued))
                    await daemon.until_logged("session_spawned")
                    daemon.process.kill()
                (ready,) = told(daemon, "daemon_ready")
                last = max(seconds(line["timestamp"]) for line in told(daemon, "session_claimed"))
                first = min(seconds(line["timestamp"]) for line in told(daemon, "session_spawned"))
                claimed.append((last - seconds(ready["timestamp"])) * 1000)
                spawned.append((first - seconds(ready["timestamp"])) * 1000)
    return claimed, spawned


async def killed(node: StandInNode, waiting: int) -> list[int]:
    """Kill a daemon whose slots are taken, with so many sessions behind them; return their ids."""
    node.operator.runs = _wide(_SLOTS_OF_THE_FIRST)
    node.script({"hang": True})
    async with node.daemon(PYTHONPATH=str(_TESTS)) as daemon:
        await daemon.until_logged("session_spawned")
        await node.queue(_SLOTS_OF_THE_FIRST - 1)
        await until(lambda: len(told(daemon, "session_spawned")) == _SLOTS_OF_THE_FIRST)
        queued = await node.queue(waiting)
        daemon.process.kill()
        await daemon.process.wait()
    return queued


def _are_claimed(daemon: Daemon, queued: Sequence[int]) -> bool:
    return {line["session_id"] for line in told(daemon, "session_claimed")} >= set(queued)


def _wide(slots: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "benchmarks.wide_daemon", str(slots))
