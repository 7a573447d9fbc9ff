"""A full queue and the nodes that share it: how much they claim and end together, and how long a claim waits.

All nodes are on one machine and share its cores, and each writing transaction waits for the others'. So this shows what
the database and the lock of the writers cost, and not what more machines would bring.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from benchmarks.burst import SLOTS, WORK_SECONDS
from benchmarks.postgresql import migrated, server_of
from benchmarks.table import Setup, Table, spread
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.store.store import open_store
from support.migrated import write_migrated
from support.postgres import Server
from support.waiting import until

_TESTS: Final = Path(__file__).parents[1]
_NODES: Final = (1, 2, 3)
_LINE_BYTES: Final = 16 * 1024 * 1024
_LEFT: Final = "SELECT count(*) FROM sessions WHERE status <> 'ended'"
_RULES: Final = EscalationRules(max_tier=3, dry_run=False, tiers=(TierChoice(number=1, model="haiku"),), limits={})


def shared(setup: Setup) -> Table:
    """Measure one node on SQLite, and one, two and three on PostgreSQL; each variant has as many sessions to do."""
    rows, samples = [], {}
    for name, taken, claims, processor in anyio.run(_variants, setup):
        each = (f"{setup.fleet / taken:.0f}", *spread(claims, 1), f"{processor * 1000 / setup.fleet:.1f}")
        rows.append((name, *each))
        samples[f"claim, {name}"] = claims
    return Table(
        title=f"Fleet: {setup.fleet} queued sessions, {SLOTS} slots a node, {WORK_SECONDS * 1000:g} ms of work each",
        columns=("nodes", "a second", "claim: median ms", "p99 ms", "longest ms", "processor ms a session"),
        rows=rows,
        notes=(
            "From the first claim to the last end, all nodes together, each a process on this machine: it shows what",
            "the database and the writers' lock cost, not what more machines bring. A claim that got nothing is not",
            "counted; processor: of the nodes, not of the server. The session itself is a wait, without a CLI.",
        ),
        samples=samples,
    )


async def _variants(setup: Setup) -> list[tuple[str, float, list[float], float]]:
    found = []
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        file = Path(name) / "claudeops.db"
        write_migrated(file)
        await _fill(f"sqlite:///{file}", setup.fleet)

        def left() -> int:
            with closing(sqlite3.connect(file)) as connection:
                return int(connection.execute(_LEFT).fetchone()[0])

        found.append(("1, SQLite", *await _measured(f"sqlite:///{file}", 1, left, Path(name))))
    with server_of(setup) as server:
        for nodes in _NODES:
            url = migrated(server, setup)
            await _fill(url, setup.fleet)
            with tempfile.TemporaryDirectory(dir=setup.directory) as name:
                found.append((f"{nodes}, PostgreSQL", *await _measured(url, nodes, _left_on(server, url), Path(name))))
    return found


def _left_on(server: Server, url: str) -> Callable[[], int]:
    name = url.partition("@/")[2].partition("?")[0]

    def left() -> int:
        with server.connect(name) as connection:
            row = connection.execute(_LEFT).fetchone()
            assert row is not None
            return int(row[0])

    return left


async def _fill(url: str, sessions: int) -> None:
    store = open_store(url)
    try:
        for _ in range(sessions):
            new = NewSession(tier=1, trigger=Trigger.MANUAL, model="haiku")
            await store.queue.enqueue(new, rules=_RULES, now=datetime.now(UTC))
    finally:
        await store.close()


async def _measured(url: str, nodes: int, left: Callable[[], int], root: Path) -> tuple[float, list[float], float]:
    """Return seconds from the start to the last end, milliseconds of claims, and processor seconds, of all nodes."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(_node(url, root / f"node-{number}")) for number in range(nodes)]
        for _, lines in running:
            await lines.receive_until(b"ready\n", _LINE_BYTES)
        began = time.perf_counter()
        for process, _ in running:
            await _nudge(process)
        await until(lambda: left() == 0, seconds=3600)
        taken = time.perf_counter() - began
        claims, processor = list[float](), 0.0
        for process, lines in running:
            await _nudge(process)
            said = json.loads(await lines.receive_until(b"\n", _LINE_BYTES))
            claims += said["claims"]
            processor += said["processor"]
    return taken, claims, processor


@asynccontextmanager
async def _node(url: str, root: Path) -> AsyncIterator[tuple[Process, BufferedByteReceiveStream]]:
    command = [sys.executable, "-m", "benchmarks.fleet_node", url, str(root)]
    async with await anyio.open_process(command, cwd=_TESTS, stdin=subprocess.PIPE, stderr=None) as process:
        assert process.stdout is not None
        try:
            yield process, BufferedByteReceiveStream(process.stdout)
        finally:
            if process.returncode is None:
                process.kill()


async def _nudge(process: Process) -> None:
    assert process.stdin is not None
    await process.stdin.send(b"\n")
