"""A trial with several nodes on one database: whichever daemon comes by a point first is struck, and the others go on.

All daemons of the trial are armed alike. One that has died is followed by the next one on its machine: at once, or when
the others have settled what it left.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import psutil

from claudeops.errors import DatabaseUnavailableError
from kill_matrix.course import Course, has_ended
from kill_matrix.forks import Daemon, Zygote
from kill_matrix.left import left_behind, left_beside, was_ready
from kill_matrix.plan import Blow, Strike
from kill_matrix.points import claim, dealt
from kill_matrix.victims import session_processes
from kill_matrix.world import Machine, World
from support.waiting import hears, until, until_it

_PASSED_BY: Final = "passed by"
_AT_ITS_TIME: Final = "at its time"


@dataclass
class FleetRun:
    """The daemons of a trial, from the first start to the last stop."""

    world: World
    course: Course
    zygote: Zygote
    api_url: str
    _daemons: dict[Machine, Daemon] = field(default_factory=dict)  # those that have not ended
    _wakes: dict[int, float] = field(default_factory=dict)  # when a stopped one goes on, by its pid
    _stops: bool = False  # all of them
    _owed: int = 0  # chains that are to be asked for as soon as there are tables

    async def run(self) -> None:
        """Deal the strikes one after the other, let everything settle, and stop the daemons one after the other."""
        try:
            await self._live()
        finally:  # of a trial that fails they would go on
            for daemon in self._daemons.values():
                daemon.signal(signal.SIGKILL)

    async def _live(self) -> None:
        await self._start_all()
        for number, strike in enumerate(self.world.plan.strikes):
            self._owed += 1
            await self._round(number, strike)
        await until_it(self._is_at_rest, math.inf)
        self._stops = True
        for machine in self.world.machines:
            await self._stop(machine)

    # --- strikes ----------------------------------------------------------------------------------------

    async def _round(self, number: int, strike: Strike) -> None:
        """Return when a strike was dealt, or when there is nothing more to be done and nobody came by."""
        due = time.monotonic() + strike.after_seconds
        await until_it(partial(self._is_over, number, strike, due), math.inf)
        if dealt(self.world.root)[number] != _PASSED_BY:
            self.course.struck.append(strike)

    async def _is_over(self, number: int, strike: Strike, due: float) -> bool:
        root = self.world.root
        has_settled = await self._has_settled()
        if len(dealt(root)) > number:
            return True
        if strike.label is None and time.monotonic() >= due:
            await self._deal(number, strike)
        elif strike.label is not None and has_settled:
            # Some points are of the stop alone.
            await self._start_all()
            await self._stop(self._machine_of(number))
            claim(root, number, _PASSED_BY)
            await self._start_all()
        return len(dealt(root)) > number

    def _machine_of(self, number: int) -> Machine:
        """Return whom a strike is for that no point decides about."""
        return self.world.machines[(self.world.plan.seed + number) % len(self.world.machines)]

    async def _deal(self, number: int, strike: Strike) -> None:
        await self._start_all()
        daemon = self._daemons[self._machine_of(number)]
        if strike.blow is not Blow.KILL:
            await until(lambda: daemon.status is not None or hears(daemon.pid))
        hit = list(strike.hits(session_processes(daemon.pid)))
        claim(self.world.root, number, _AT_ITS_TIME if hit or strike.hits_daemon else _PASSED_BY)
        for pid in hit:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if strike.hits_daemon:
            for signal_number in strike.blow.signals:
                daemon.signal(signal_number)

    # --- daemons ----------------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        for machine in self.world.machines:
            if machine not in self._daemons:
                await self._start(machine)

    async def _start(self, machine: Machine) -> None:
        self.course.daemons += 1
        self._daemons[machine] = await self.zygote.fork(
            environment=self.world.environment(self.api_url, machine),
            directory=machine.root,
            trial=self.world.root,
            output=machine.output(self.course.daemons),
            strikes=self.world.plan.strikes,
            tries=self.world.plan.from_empty,
        )

    async def _stop(self, machine: Machine) -> None:
        """Ask a daemon to stop, and judge what it leaves."""
        daemon = self._daemons[machine]
        await until(lambda: daemon.status is not None or hears(daemon.pid))
        daemon.signal(signal.SIGTERM)
        await until(partial(self._has_ended, daemon), math.inf)
        await self._take_note(machine, daemon)
        if self._stops and daemon.status == -signal.SIGKILL:  # struck at the very end, when all seemed to be at rest
            await self._start(machine)
            await until(partial(self._is_ready, machine))
            await self._stop(machine)

    def _is_ready(self, machine: Machine) -> bool:
        return self._daemons[machine].status is not None or was_ready(machine)

    async def _look_after(self) -> None:
        """Let the next daemons follow those that have ended, and let those go on that stood still for long enough."""
        for machine, daemon in tuple(self._daemons.items()):
            if daemon.status is not None:
                await self._take_note(machine, daemon)
        if self.world.plan.returns or not self._daemons:
            await self._start_all()
        self._wake_up()

    def _has_ended(self, daemon: Daemon) -> bool:
        self._wake_up()  # it may stand still on its way to the end
        return daemon.status is not None

    def _wake_up(self) -> None:
        """Let those go on that have stood still for long enough."""
        for pid in self._stopped():
            if time.monotonic() >= self._wakes.setdefault(pid, time.monotonic() + self._pause()):
                del self._wakes[pid]
                os.kill(pid, signal.SIGCONT)

    async def _take_note(self, machine: Machine, daemon: Daemon) -> None:
        del self._daemons[machine]
        self._wakes.pop(daemon.pid, None)  # it was killed while it stood still
        if daemon.status == -signal.SIGKILL:
            return
        assert daemon.status is not None
        self.course.stops.append(daemon.status)
        if daemon.status != 0:
            return
        judge = (
            partial(left_behind, self.world, machine, daemon.pid, frozenset())
            if self._stops and not self._daemons
            else partial(left_beside, self.world, machine, daemon.pid)
        )
        # In a thread: the others go on meanwhile, and the model that they ask is here.
        self.course.faults += await anyio.to_thread.run_sync(lambda: list(judge()))

    def _stopped(self) -> Iterator[int]:
        for daemon in self._daemons.values():
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(daemon.pid).status() == psutil.STATUS_STOPPED:
                    yield daemon.pid

    def _pause(self) -> float:
        """Return how long the daemon that was stopped last stands still."""
        strikes = self.world.plan.strikes[: len(dealt(self.world.root))]
        return next(strike.seconds for strike in reversed(strikes) if strike.blow is Blow.PAUSE)

    async def _is_at_rest(self) -> bool:
        """Tell whether all is done, every node has a daemon, and the living ones alone are on record."""
        has_settled = await self._has_settled()
        await self._start_all()
        on_record = sorted(int(str(row["pid"])) for row in self.world.database.rows("SELECT pid FROM instances"))
        living = sorted(daemon.pid for daemon in self._daemons.values())
        return has_settled and on_record == living

    # --- what there is to do ----------------------------------------------------------------------------

    async def _has_settled(self) -> bool:
        """Look after the daemons; tell whether they have done what there was to do."""
        await self._look_after()
        if self._owed and self.world.database.exists():
            with suppress(DatabaseUnavailableError):  # as a daemon has it, which stands still or is slow
                await self.world.queue(1)
                self._owed -= 1
        if self._owed or self._wakes:
            return False
        return has_ended(self.world)
