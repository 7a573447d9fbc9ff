"""One trial: daemons are struck one after the other, and the last one settles everything."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from claudeops.scripted_api.requests import Traffic
from claudeops.scripted_api.server import serve
from kill_matrix.course import FIRES, TOLD, UNANSWERED, UNFINISHED, Course, count_of
from kill_matrix.databases import Templates
from kill_matrix.fleet import FleetRun
from kill_matrix.forks import Daemon, Zygote
from kill_matrix.left import left_behind, running
from kill_matrix.plan import Plan, Strike
from kill_matrix.points import STRUCK
from kill_matrix.records import Records
from kill_matrix.victims import session_processes
from kill_matrix.world import PROBES, Machine, World
from support.operating import DUMMY_KEY
from support.waiting import PATIENCE_SECONDS, hears, until

LOOK_SECONDS: Final = 0.02
_KILLED: Final = -signal.SIGKILL

_HIDDEN_WHILE: Final = {2: True, 3: False}  # by the number of the daemon that is about to start


async def run_trial(plan: Plan, root: Path, zygote: Zygote, made: Templates) -> tuple[Course, World, Traffic]:
    """Run a trial below ``root`` until everything has settled."""
    began = time.monotonic()
    world = World.make(root, plan, made)
    await world.queue(plan.queued)
    course = Course(plan=plan)
    patience = PATIENCE_SECONDS * (plan.nodes + 1) if plan.nodes > 1 else PATIENCE_SECONDS  # they share the processor
    async with serve(world.script(), expected_key=DUMMY_KEY) as api:
        silent = socket.socket()  # bound, so that it is nobody else's, and refuses everybody
        silent.bind(("127.0.0.1", 0))
        if plan.watched:
            world.declare_probes(port=int(api.url.rpartition(":")[2].strip("/")), closed=silent.getsockname()[1])
            await world.ping()
        try:
            with anyio.fail_after(patience):
                if plan.nodes > 1:
                    await FleetRun(world, course, zygote, api.url).run()
                else:
                    await _one_after_the_other(world, course, zygote, api.url)
        except TimeoutError:
            course.faults.append(f"not everything had settled after {patience:g} s")
        finally:
            silent.close()
    course.seconds = time.monotonic() - began
    return course, world, api.traffic


async def _one_after_the_other(world: World, course: Course, zygote: Zygote, api_url: str) -> None:
    for number, strike in enumerate((*world.plan.strikes, None), 1):
        if world.plan.hides and number in _HIDDEN_WHILE:
            course.hidden |= world.hide_logs(hidden=_HIDDEN_WHILE[number])
        await _Run(world, course, zygote, api_url, strike).run()


@dataclass
class _Run:
    """The life of one daemon."""

    world: World
    course: Course
    zygote: Zygote
    api_url: str
    strike: Strike | None

    @property
    def machine(self) -> Machine:
        """Where the daemon lives."""
        (machine,) = self.world.machines
        return machine

    async def run(self) -> None:
        if not self.world.plan.soon:
            self.world.miss_a_due_time()
        fires, before = count_of(self.world, FIRES) or 0, running(self.world)
        self.course.daemons += 1
        daemon = await self.zygote.fork(
            environment=self.world.environment(self.api_url, self.machine),
            directory=self.machine.root,
            trial=self.world.root,
            output=self.machine.output(self.course.daemons),
            strikes=[] if self.strike is None else [self.strike],
            tries=self.world.plan.from_empty,
        )
        async with anyio.create_task_group() as tasks:
            if self.strike is not None and self.strike.label is None:
                tasks.start_soon(self._deal, daemon, self.strike)
            await self._until_settled(daemon, fires)
            tasks.cancel_scope.cancel()
        await self._stop(daemon)
        self._note()
        if daemon.status == 0:
            self.course.faults += left_behind(self.world, self.machine, daemon.pid, before)

    async def _deal(self, daemon: Daemon, strike: Strike) -> None:
        await anyio.sleep(strike.after_seconds)
        if strike.blow.is_polite:
            await until(lambda: daemon.status is not None or hears(daemon.pid))
            for number in strike.blow.signals:
                daemon.signal(number)
            if daemon.status is None:
                self.course.struck.append(strike)
            return
        hit = list(strike.hits(session_processes(daemon.pid)))
        if strike.hits_daemon:
            hit.append(daemon.pid)
        for pid in hit:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if hit:
            self.course.struck.append(strike)

    async def _until_settled(self, daemon: Daemon, fires: int) -> None:
        """Return when a daemon has done what there was to do, or is dead."""
        output, said = self.machine.output(self.course.daemons), 0
        while daemon.status is None:
            # It says what it has committed; looking into the database all the time would slow everybody down.
            before, said = said, output.stat().st_size
            # Of probes and of what they answer it says little.
            if (said > before or self.world.plan.watched) and self._is_settled(fires):
                return
            with anyio.move_on_after(LOOK_SECONDS):
                await daemon.ended.wait()

    def _is_settled(self, fires: int) -> bool:
        # In this order: what is fired is queued in the same moment.
        if self.world.plan.watched and count_of(self.world, TOLD) != len(PROBES):
            return False
        if not self._has_looked(fires) or any(count_of(self.world, query) != 0 for query in (UNFINISHED, UNANSWERED)):
            return False
        return not self.world.plan.hides or self.strike is not None or self._is_amended()

    def _has_looked(self, fires: int) -> bool:
        """Tell whether the schedule has got what it is due: a fire, or none where a daemon is back soon."""
        if self.world.plan.soon and fires:
            return '"schedule_kept"' in self.machine.output(self.course.daemons).read_text(encoding="utf-8")
        return (count_of(self.world, FIRES) or 0) > fires

    def _is_amended(self) -> bool:
        """Tell whether the sessions whose logs are there again have their reports."""
        records = Records(self.world)
        whole = (row for row in records.sessions if records.logs[row["id"]].results)
        return all(row["summary"] is not None for row in whole)

    async def _stop(self, daemon: Daemon) -> None:
        daemon.signal(signal.SIGTERM)
        await daemon.ended.wait()
        assert daemon.status is not None
        if daemon.status != _KILLED:
            self.course.stops.append(daemon.status)

    def _note(self) -> None:
        """Note a strike that was dealt from within."""
        told = self.world.root / STRUCK
        if self.strike is not None and self.strike.label is not None and told.exists():
            told.unlink()
            self.course.struck.append(self.strike)
