"""What happens to the services of a rehearsal while the daemon runs: faults that come and go, and heartbeats.

When a fault goes or comes again depends on what the daemon's probes have seen, not on the clock alone: a rehearsal
takes the same course on a slow machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
import msgspec

from claudeops.rehearsal.environment import Environment, Running
from claudeops.rehearsal.scenario import Fault

_NOTICED_SECONDS: Final = 30.0
"""How long a probe may take to see that a fault has come or gone; then the course goes on."""


class ProbeWait(Protocol):
    """Waits until the probes see a service unwell, or well."""

    async def __call__(self, service: str, *, unwell: bool) -> None:
        """Wait, for ever if need be."""


class Struck(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that has come while the daemon ran."""

    service: str
    at: datetime


class Course(msgspec.Struct, kw_only=True):
    """The faults of a scenario that come while the daemon runs."""

    environment: Environment
    faults: Sequence[Fault]
    until_seen: ProbeWait
    struck: list[Struck] = msgspec.field(default_factory=list)  # in order
    is_over: bool = False

    async def run(self) -> None:
        """Let the faults come and go, until each has come for the last time or is cured."""
        async with anyio.create_task_group() as tasks:
            for fault in self.faults:
                if fault.after_seconds is not None:
                    tasks.start_soon(self._come_and_go, fault, fault.after_seconds)
        self.is_over = True

    async def _come_and_go(self, fault: Fault, after_seconds: float) -> None:
        running = self.environment.services[fault.service]
        await anyio.sleep(after_seconds)
        for number in range(fault.times):
            began_at = await running.strike(fault, again=number > 0)
            if began_at is None:
                return
            self.struck.append(Struck(service=fault.service, at=began_at))
            if fault.lasts_seconds is None:
                return
            await self._until(fault.service, unwell=True)
            await anyio.sleep(fault.lasts_seconds)
            if not await running.recover(fault):
                return
            await self._until(fault.service, unwell=False)

    async def _until(self, service: str, *, unwell: bool) -> None:
        with anyio.move_on_after(_NOTICED_SECONDS):
            await self.until_seen(service, unwell=unwell)


async def send_heartbeats(environment: Environment, *, state_dir: Path) -> None:
    """Call ``claudeops ping`` for every service that has a heartbeat, as its job would, until cancelled."""
    async with anyio.create_task_group() as tasks:
        for running in environment.services.values():
            if running.service.pings is not None:
                tasks.start_soon(_send_heartbeat, running, running.service.pings, state_dir)


async def _send_heartbeat(running: Running, name: str, state_dir: Path) -> None:
    command = [sys.executable, "-I", "-m", "claudeops", "ping", name]
    environment = {"CLAUDEOPS_STATE_DIR": str(state_dir)}
    while True:
        async with running.lock:  # no heartbeat arrives after the fault that ends them
            if running.beats:
                done = await anyio.run_process(command, env=environment, cwd=running.directory, check=False)
                if done.returncode == 0:  # else no daemon knows of it yet
                    running.note(f"heartbeat {name} sent")
        await anyio.sleep(running.service.pings_every_seconds)
