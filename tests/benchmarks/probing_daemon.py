"""`claudeops run` that also writes down how late its looks are, into the file that it is given."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Final

import anyio

from claudeops.app.daemon import run_daemon
from claudeops.app.node import open_node
from claudeops.cli.start import listening, start
from claudeops.engine.probes.watch import ProbeWatch
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.system import Shutdown

_SECONDS: Final = 5.0  # between two lines


async def _run(file: Path) -> None:
    settings, log = start(sys.stdout)
    shutdown = Shutdown()
    become_subreaper()
    with listening(shutdown, log):
        async with open_node(settings, log=log, shutdown=shutdown) as node, anyio.create_task_group() as tasks:
            tasks.start_soon(_write_down, file)
            await run_daemon(node, shutdown)
            tasks.cancel_scope.cancel()


async def _write_down(file: Path) -> None:
    watches: list[ProbeWatch] = []
    while not watches:
        await anyio.sleep(_SECONDS)
        gc.unfreeze()  # what a daemon's start has left is listed to nobody
        watches = [each for each in gc.get_objects() if isinstance(each, ProbeWatch)]  # the daemon's only one
        gc.freeze()
    while True:
        (watch,) = watches
        late = watch.lateness
        states = [each.standing.state.value for each in watch.watched]
        line = {
            "looks": len(late.latest),
            "p99": late.quantile(0.99),
            "worst": late.quantile(1.0),
            "up": states.count("up"),
        }
        await anyio.Path(file).write_text(json.dumps(line), encoding="utf-8")
        await anyio.sleep(_SECONDS)


if __name__ == "__main__":
    anyio.run(_run, Path(sys.argv[1]))
