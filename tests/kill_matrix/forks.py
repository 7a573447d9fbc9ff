"""The driver's side of the zygote: daemons on demand, and word of their ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from kill_matrix.plan import Strike
from support.waiting import PATIENCE_SECONDS

TESTS: Final = Path(__file__).parents[1]


@dataclass
class Daemon:
    """A forked daemon."""

    pid: int
    ended: anyio.Event = field(default_factory=anyio.Event)
    status: int | None = None  # as `os.waitstatus_to_exitcode` has it; None while it runs

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Zygote:
    """A running zygote; made by `zygote`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._turn = anyio.Lock()
        self._daemons: dict[int, Daemon] = {}
        self._forked = deque[anyio.Event]()
        self._newest: Daemon | None = None
        self.ready = anyio.Event()

    async def fork(
        self,
        *,
        environment: Mapping[str, str],
        directory: Path,
        trial: Path,
        output: Path,
        strikes: Sequence[Strike],
        tries: bool = True,
    ) -> Daemon:
        """Start a daemon in ``directory``; its log goes to ``output``, and what strikes it into that of the trial.

        It ``tries`` itself what sessions can be run in, or gets what was found once.
        """
        order = {
            "environment": dict(environment),
            "directory": str(directory),
            "trial": str(trial),
            "output": str(output),
            "strikes": [strike.document() for strike in strikes],
            "tries": tries,
        }
        async with self._turn:
            answered = anyio.Event()
            self._forked.append(answered)
            assert self._process.stdin is not None
            await self._process.stdin.send(json.dumps(order).encode() + b"\n")
            await answered.wait()
            assert self._newest is not None
            return self._newest

    async def listen(self) -> None:
        """Take reports until the zygote ends."""
        assert self._process.stdout is not None
        unread = b""
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                *reports, unread = (unread + await self._process.stdout.receive()).split(b"\n")
                for report in map(json.loads, reports):
                    self._take(report)

    def _take(self, report: Mapping[str, int]) -> None:
        match report:
            case {"ready": _}:
                self.ready.set()
            case {"forked": pid}:
                self._newest = self._daemons[pid] = Daemon(pid)
                self._forked.popleft().set()
            case {"ended": pid, "status": status}:
                daemon = self._daemons.pop(pid)
                daemon.status = status
                daemon.ended.set()


@asynccontextmanager
async def zygote() -> AsyncIterator[Zygote]:
    """Run a zygote for the length of the block; its daemons end with it."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"}
    process = await anyio.open_process(
        [sys.executable, "-m", "kill_matrix.zygote"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
        env=environment,
        cwd=TESTS,
    )
    running = Zygote(process)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.listen)
            with anyio.fail_after(PATIENCE_SECONDS):
                await running.ready.wait()
            yield running
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            assert process.stdin is not None
            await process.stdin.aclose()
            with anyio.move_on_after(PATIENCE_SECONDS):
                await process.wait()
            await process.aclose()
