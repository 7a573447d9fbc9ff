"""`claudeops run` with more slots than the settings allow: to see how fast a full queue is claimed."""

from __future__ import annotations

import sys

import anyio

from claudeops.app.daemon import run_daemon
from claudeops.app.node import open_node
from claudeops.cli.start import listening, start
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.system import Shutdown
from claudeops.structs import replace


async def _run(slots: int) -> None:
    settings, log = start(sys.stdout)
    shutdown = Shutdown()
    become_subreaper()
    with listening(shutdown, log):
        async with open_node(settings, log=log, shutdown=shutdown) as node:
            await run_daemon(replace(node, slots=slots), shutdown)


if __name__ == "__main__":
    anyio.run(_run, int(sys.argv[1]))
