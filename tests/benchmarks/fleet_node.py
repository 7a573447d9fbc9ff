"""A node of the card's line `fleet`, as a process: the real queue, claims and ends; the session itself is a wait.

``python -m benchmarks.fleet_node URL DIRECTORY``. It says that it is ready, begins at the first line of stdin, and at
the second one prints how long each claim took that got a session, in milliseconds, and its processor seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from benchmarks.burst import supervised
from claudeops.domain.sessions import Session
from claudeops.store.claims import Claims
from support.estate import open_estate

MANY = 10**9  # more sessions than there are: a node does not know how many it gets


class TimedClaims(Claims):
    """Claims that note how long they take."""

    def __init__(self, claims: Claims) -> None:
        self.__dict__ = claims.__dict__
        self.taken: list[float] = []

    async def claim(self, *given: Any, **named: Any) -> Sequence[Session]:
        """Claim as it is claimed, and note the milliseconds where that brought something."""
        began = time.perf_counter()
        found = await super().claim(*given, **named)
        if found:
            self.taken.append((time.perf_counter() - began) * 1000)
        return found


async def _run(url: str, root: Path) -> None:
    async with open_estate(root, url=url) as estate:
        claims = TimedClaims(estate.store.claims)
        _say("ready")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        used = time.process_time()
        async with supervised(estate, MANY, claims=claims) as supervisor, anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await anyio.to_thread.run_sync(sys.stdin.readline)
            used = time.process_time() - used
            await supervisor.drain(0)
        _say(json.dumps({"claims": claims.taken, "processor": used}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(_run, sys.argv[1], Path(sys.argv[2]))
