"""What a sender waits for: bodies of ten alerts, 200 a second, from their moment until they are stored and answered.

The installed daemon runs as a process, with its listener, desk and database; the sender is a process of its own, which
sends each body when its moment has come, however late the answers to those before it are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import psutil

from benchmarks.table import Setup, Table, spread, verdict
from support.estate import deliver, look, report
from support.posting import Posted, answers, command
from support.senders import listens, token, url_of
from support.stand_in_daemon import StandInNode, stand_in_node

TARGET_P99_MS: Final = 50.0
RATE: Final = 200
ALERTS: Final = 10
_STORED: Final = 202
_KINDS: Final = {"2000 alerts that repeat": 2000, "all alerts new": 10**9}


def stored(setup: Setup) -> Table:
    """Measure both kinds of load, each for as long as was asked for."""
    rows = []
    for number, (kind, distinct) in enumerate(_KINDS.items()):
        said, share = anyio.run(_load, setup, setup.directory / f"alerting-{number}", distinct)
        median, p99, worst = spread([each.waited * 1000 for each in said], 1)
        met = verdict(met=float(p99) <= TARGET_P99_MS)
        refused = str(sum(each.status != _STORED for each in said))
        rows.append((kind, median, p99, worst, refused, f"{share * 100:.0f} %", f"{TARGET_P99_MS:g} ms, p99 ({met})"))
    return Table(
        title=f"{RATE} bodies of {ALERTS} alerts a second, for {setup.alert_seconds:g} s",
        columns=("", "median ms", "p99", "worst", "refused", "of one core", "target"),
        rows=rows,
        notes=(
            "From a body's moment to its answer. All were answered with 202, and all of these are in the database.",
        ),
    )


async def _load(setup: Setup, root: Path, distinct: int) -> tuple[Sequence[Posted], float]:
    await anyio.Path(root).mkdir()
    async with stand_in_node(root) as node:
        node.script(look(), deliver(report()))
        async with node.daemon(**listens(root)) as daemon:
            url = await url_of(daemon)
            _, header = await token(node.operator, "alerts:am")
            process, file = psutil.Process(daemon.process.pid), root / "answers.ndjson"
            before, began = process.cpu_times(), anyio.current_time()
            numbers = {"rate": RATE, "alerts": ALERTS, "seconds": setup.alert_seconds, "distinct": distinct}
            await anyio.run_process(command(url, header["authorization"], file, **numbers), stderr=None)
            used, lasted = process.cpu_times(), anyio.current_time() - began
        return _checked(node, answers(file)), (used.user - before.user + used.system - before.system) / lasted


def _checked(node: StandInNode, said: Sequence[Posted]) -> Sequence[Posted]:
    """Return what was answered. Raises `AssertionError` where something that was acknowledged is lost."""
    kept = {row["key"] for row in node.operator.rows("SELECT key FROM alert_deliveries")}
    lost = [each.number for each in said if each.status == _STORED and each.delivery not in kept]
    if lost:
        raise AssertionError(f"{len(lost)} bodies were acknowledged and are not in the database")
    return said
