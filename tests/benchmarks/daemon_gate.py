"""How long a CLI of the installed daemon waits for the gate: its question over the session's socket → the answer."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio

from benchmarks.gate import COMMANDS, TARGET_MILLISECONDS, WARM_UP, fsyncs
from benchmarks.table import Setup, Table, percentile, spread, verdict
from support.estate import deliver, look, report
from support.stand_in_daemon import stand_in_node, told
from support.waiting import until

_CALLS_A_REPEAT: Final = 150
_ALLOWED: Final = COMMANDS[:2]  # a session that is denied again and again is stopped
_PATIENCE_SECONDS: Final = 600.0


def through_daemon(setup: Setup) -> Table:
    """Measure with one call at a time, as a model mostly makes them."""
    taken = anyio.run(_taken, setup)
    p99, disk = percentile(taken, 0.99), percentile(fsyncs(setup.directory, len(taken)), 0.99)
    most = TARGET_MILLISECONDS + disk
    return Table(
        title="Gate of the installed daemon: a hook's question leaves the CLI → the answer is there (SQLite)",
        columns=("", "calls", "median ms", "p99 ms", "longest ms", "target p99"),
        rows=[("gate", str(len(taken)), *spread(taken), f"{most:.2f} ({verdict(met=p99 <= most)})")],
        notes=(
            "Timed by the stand-in for the CLI, in its cell; with all that the session does beside it: supervision,",
            "the lines of the call and of its result, their log, and the facts for those who watch.",
            f"{WARM_UP} calls before them are not counted. Target as of the line `gate`.",
        ),
        samples={"gate of the installed daemon": taken},
    )


async def _taken(setup: Setup) -> list[float]:
    """Return milliseconds for each call."""
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with stand_in_node(Path(name)) as node:
            count = WARM_UP + _CALLS_A_REPEAT * setup.repeats
            node.script(look(), {"ask_in_turn": _ALLOWED, "times": count}, deliver(report()))
            async with node.daemon() as daemon:
                await until(lambda: bool(told(daemon, "session_ended")), _PATIENCE_SECONDS)
                (ended,) = told(daemon, "session_ended")
                if ended["outcome"] != "success":
                    raise AssertionError(f"the session did not succeed: {ended}")
                (log,) = (node.root / "results").glob("session-*.ndjson")
                return list(_printed(log))[WARM_UP:]


def _printed(log: Path) -> Iterator[float]:
    """Yield what the stand-in has said that its calls took."""
    for line in log.read_text(encoding="utf-8").splitlines():
        if '"waited_ms"' in line:
            yield from json.loads(line)["waited_ms"]
