"""Watches the free space of the disks that are written to, also while sessions run.

Below the floor none is started. Those that run go on, for whoever fills the disk need not be one of them; below half of
the floor they are stopped politely, and below a quarter killed, before the machine is full.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio import TASK_STATUS_IGNORED

from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.outcome import StopCause
from claudeops.engine.trouble import DatabaseTrouble
from claudeops.errors import StoreError
from claudeops.logs import LogEvent
from claudeops.tasks import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from anyio.abc import TaskStatus

    from claudeops.engine.ports import Clock, Store
    from claudeops.logs import Logger

LOOK_SECONDS: Final = 1.0
"""Between two looks: a disk is filled by hundreds of MiB a second."""

STOP: Final = 0.5
KILL: Final = 0.25
"""At so much of the floor running sessions are stopped, and killed."""

_ANSWER_SECONDS: Final = 10.0  # a network disk that gives no answer is neither full nor free
_ENOUGH: Final = 1.1  # times the floor: what hovers at it must not start and stop sessions by the minute
_MIB: Final = 1024 * 1024


def free_bytes(directory: Path) -> int:
    """Return the free space of the disk that a directory is on; raises `OSError`."""
    return shutil.disk_usage(directory).free


def _nobody_runs(_cause: StopCause) -> int:
    return 0


def _nothing() -> None:
    return


@dataclass(kw_only=True, slots=True)
class DiskFloor:
    """Holds the queue while a disk is too full, with one critical event each time; ends sessions before it is full."""

    store: Store
    clock: Clock
    directories: Collection[Path]
    floor_bytes: int  # 0: no floor
    log: Logger
    stop_all: Callable[[StopCause], int] = _nobody_runs  # politely; returns how many run
    kill_all: Callable[[], None] = _nothing
    free: Callable[[Path], int] = free_bytes
    # A disk that never answers keeps one thread, not one more at each look, and no other disk from being looked at.
    _threads: dict[Path, Threads] = field(init=False)
    _low: Path | None = field(init=False, default=None)  # the disk for which the hold stands, if it stands
    _ending: bool = field(init=False, default=False)  # whether it was said that sessions are ended
    _released: bool = field(init=False, default=False)  # whether an earlier daemon's hold was looked for
    _trouble: DatabaseTrouble = field(init=False)

    def __post_init__(self) -> None:
        self._trouble = DatabaseTrouble(self.log, "disk floor")
        self._threads = {directory: Threads(most=1) for directory in self.directories}

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Look again and again until cancelled; it has started once the first look is done."""
        await self.look()
        task_status.started()
        while True:
            await anyio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once. While the database is away the hold waits for it: without it nothing starts anyway."""
        found: list[tuple[int, Path]] = []
        for directory in self.directories:
            free = await self._answer(directory)
            if free is not None:
                found.append((free, directory))
        if not found or not self.floor_bytes:
            return
        free, directory = min(found)
        # First, and without the database: its disk may be the one that is full.
        self._end_sessions(free, directory)
        try:
            if free < self.floor_bytes and self._low is None:
                await self._stop(free, directory)
            elif free >= self.floor_bytes * (_ENOUGH if self._low else 1) and (self._low or not self._released):
                await self._go_on(free)
        except StoreError as error:
            self._trouble.failed(error)
        else:
            self._trouble.over()

    async def _answer(self, directory: Path) -> int | None:
        """Return what is free there, or None where the disk says nothing."""
        try:
            return await self._threads[directory].run(
                partial(self.free, directory), seconds=_ANSWER_SECONDS, what=f"asking what is free at {directory}"
            )
        except TimeoutError:
            return None  # it is asked again at the next look
        except OSError as error:
            self.log.error(LogEvent.UPKEEP_FAILED, path=str(directory), error=str(error))
            return None

    def _end_sessions(self, free: int, directory: Path) -> None:
        if free >= self.floor_bytes * STOP:
            self._ending = False
            return
        running = self.stop_all(StopCause.DISK_LOW)
        if running and not self._ending:
            self._ending = True
            self.log.critical(LogEvent.DISK_NEARLY_FULL, path=str(directory), free_mb=free // _MIB, running=running)
        if free < self.floor_bytes * KILL:
            self.kill_all()

    async def _stop(self, free: int, directory: Path) -> None:
        reason = (
            f"The disk of {directory} has {free // _MIB} MiB left, less than the {self.floor_bytes // _MIB} MiB of "
            "CLAUDEOPS_DISK_FLOOR_MB: no session is started until there is room again."
        )
        self.log.critical(LogEvent.DISK_LOW, path=str(directory), free_mb=free // _MIB)
        now = self.clock.now()
        await self.store.hold(Hold(kind=HoldKind.DISK, reason=reason, since=now), now=now)
        self._low = directory

    async def _go_on(self, free: int) -> None:
        released = await self.store.release(HoldKind.DISK, now=self.clock.now())
        if released:
            self.log.info(LogEvent.DISK_RECOVERED, free_mb=free // _MIB)
        self._low, self._released = None, True
