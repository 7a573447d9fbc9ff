"""What people feel, of this and of a Claude Ops that the user has built: on one machine and disk, with one stand-in."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from benchmarks import sessions, start, stream_daemon, wakes
from benchmarks.table import Setup, Table
from support.estate import deliver, look, report
from support.stand_in_daemon import seconds, stand_in_node, told

_PATIENCE_SECONDS: Final = 1800.0
_OWN_NETWORK: Final = ("unshare", "--net")  # Claude Ops listens at every address of its machine
_TESTS: Final = Path(__file__).parents[1]

Figures = Mapping[str, Sequence[float]]

_ROWS: Final = {
    "start": "start → ready, known database (ms)",
    "wish": "a person's wish → its CLI runs (ms)",
    "next tier": "a result line → the next tier's CLI runs (ms)",
    "idle memory": "memory with nothing to do (MiB, PSS)",
    "idle CPU": "processor time with nothing to do (% of a core)",
    "stream 5 KB": "a CLI's output, 5 KB a line (MB/s)",
    "stream 200 B": "a CLI's output, 200 B a line (MB/s)",
}


def compared(setup: Setup) -> Table:
    """Measure both, one after the other."""
    theirs = _claude_ops(setup) if setup.beside else {}
    ours = {name: measure(setup) for name, measure in _OURS.items()}
    return Table(
        title="Beside Claude Ops: what a person feels of each",
        columns=("", "claudeops", "Claude Ops"),
        rows=[(what, _median(ours, name), _median(theirs, name)) for name, what in _ROWS.items()],
        notes=(
            "Medians. Claude Ops judges no call, keeps its CLI in no cell and writes one line of text for each frame;",
            "its CLI is the same stand-in, which asks it nothing. A person's wish is a POST there, a command here.",
            *(() if theirs else ("No binary was named: make card ARGS='--line beside --beside BINARY'.",)),
        ),
    )


def _median(figures: Figures, name: str) -> str:
    values = figures.get(name)
    return f"{statistics.median(values):.1f}" if values else "-"


def _claude_ops(setup: Setup) -> Figures:
    if shutil.which(_OWN_NETWORK[0]) is None:
        raise FileNotFoundError("`unshare` is missing (Debian's package util-linux): Claude Ops needs its own network.")
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        arguments = [str(setup.beside), name, str(setup.repeats), str(setup.stream_bytes)]
        done = subprocess.run(
            [*_OWN_NETWORK, sys.executable, "-m", "benchmarks.claude_ops", *arguments],
            cwd=_TESTS,
            stdout=subprocess.PIPE,
            timeout=_PATIENCE_SECONDS,
            check=True,
        )
    found: Figures = json.loads(done.stdout)
    return found


async def _wishes(setup: Setup) -> list[float]:
    """Return milliseconds from a command's call, which is a process, to the start of the CLI that it asked for."""
    found = []
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with stand_in_node(Path(name)) as node:
            node.script(look(), deliver(report()))
            async with node.daemon() as daemon:
                await daemon.until_logged("session_ended")
                for _ in range(setup.repeats):
                    called = time.time()
                    await node.operator.run("bootstrap", "--detach", **node.settings())
                    await node.until_idle()
                    found.append((seconds(told(daemon, "session_spawned")[-1]["timestamp"]) - called) * 1000)
    return found


def _streamed(setup: Setup, line_bytes: int) -> list[float]:
    runs = [anyio.run(stream_daemon.run, setup, line_bytes) for _ in range(min(3, setup.repeats))]
    return [run.ours.megabytes / run.ours.seconds for run in runs]


_OURS: Final[dict[str, Callable[[Setup], Sequence[float]]]] = {
    "start": lambda setup: anyio.run(start.starts, setup)[1],
    "wish": lambda setup: anyio.run(_wishes, setup),
    "next tier": lambda setup: anyio.run(sessions.escalations, setup),
    "idle memory": lambda setup: [together for together, _, _ in anyio.run(start.held_idle, setup)],
    "idle CPU": lambda setup: [percent for percent, _ in anyio.run(wakes.cost_idle, setup)],
    "stream 5 KB": lambda setup: _streamed(setup, 5_000),
    "stream 200 B": lambda setup: _streamed(setup, 200),
}
