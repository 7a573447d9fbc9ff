"""What one daemon holds after many sessions, seen from within its process; a program, for it needs a fresh one.

Python's table of interned names, grown by whatever ran in a process before, may double at any moment, and those
megabytes would be told as the daemon's.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import anyio

from claudeops import logs
from claudeops.app.daemon import run_daemon
from claudeops.app.node import Node, open_node
from claudeops.engine.system import Shutdown
from claudeops.settings import load_settings
from support.long_run import LINE_BYTES, SESSION, ran_well
from support.stand_in_daemon import StandInNode, stand_in_node
from support.waiting import PATIENCE_SECONDS, until

A_FEW: Final = 4  # workers that wait for more work come and go, and what the last session left goes with the next
READERS: Final = 8  # descriptors of the database's readers, which are opened when they are first needed at once


@dataclass(frozen=True)
class Held:
    """What this process holds, daemon and test together, while no session runs."""

    descriptors: int
    threads: int
    objects: Counter[str]  # of claudeops' own classes, by their names, and compiled expressions
    bytes: int  # that Python has allocated; nothing unless it is asked to count them


def held() -> Held:
    gc.collect()
    ours = (type(found) for found in gc.get_objects())
    return Held(
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
        objects=Counter(kind.__qualname__ for kind in ours if str(kind.__module__).startswith(("claudeops.", "re2"))),
        bytes=tracemalloc.get_traced_memory()[0],
    )


def growth(early: Held, late: Held, *, sessions: int) -> dict[str, int]:
    """Return what has grown by more than chance, and by how much, while so many sessions ran."""
    more = {name: count - early.objects[name] for name, count in late.objects.items()}
    grown = {name: by for name, by in more.items() if by > A_FEW}
    limits = {"bytes": sessions * LINE_BYTES // 8, "threads": A_FEW, "descriptors": READERS}
    for name, most in limits.items():
        if (by := getattr(late, name) - getattr(early, name)) > most:
            grown[name] = by
    return grown


@contextmanager
def nowhere() -> Iterator[TextIO]:
    """Give what takes log lines and keeps none: those in memory would grow."""
    with Path(os.devnull).open("w", encoding="utf-8") as sink:
        yield sink


@asynccontextmanager
async def daemon_within(node: StandInNode) -> AsyncIterator[Node]:
    """Run the daemon on this very event loop, so that one can look into it."""
    with nowhere() as sink:
        settings = load_settings(node.operator.environment(**node.settings()), cwd=node.root).settings
        logs.configure(level="info", fmt="json", stream=sink, redact=str)
        shutdown = Shutdown()
        async with open_node(settings, log=logs.get_logger()) as opened, anyio.create_task_group() as tasks:
            tasks.start_soon(run_daemon, opened, shutdown)
            yield opened
            shutdown.requested.set()


async def grown(root: Path, settled: int, more: int) -> dict[str, int]:
    """Run sessions; return what the idle daemon holds more of after all of them than after the first ``settled``.

    Raises `RuntimeError` when a session did not end as it should.
    """
    async with stand_in_node(root) as node:
        node.script(*SESSION)
        async with daemon_within(node):
            await node.queue(settled)
            await node.until_idle()
            early = held()
            await node.queue(more)
            await node.until_idle()
            # The last row ends before the daemon has let go of that session, so the look is repeated for a while.
            with suppress(TimeoutError):
                await until(lambda: not growth(early, held(), sessions=more), PATIENCE_SECONDS / 2)
            late = growth(early, held(), sessions=more)
        if (well := ran_well(node)) != 1 + settled + more:
            raise RuntimeError(f"of {1 + settled + more} sessions only {well} ended well")
    return late


if __name__ == "__main__":
    first, then, *counts_bytes = sys.argv[2:]
    if counts_bytes:
        tracemalloc.start()
    print(json.dumps(anyio.run(grown, Path(sys.argv[1]), int(first), int(then))))  # noqa: T201 - this is the answer
