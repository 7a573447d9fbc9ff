"""A running session and its bounds: whoever reaches one is stopped, politely and then hard.

What was reached is told by the kernel's counters and by what there is: processes, files. What the session prints says
nothing about it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from claudeops.domain.model import Level, NewEvent
from claudeops.domain.outcome import StopCause
from claudeops.engine.bounds import MIB, Bounds
from claudeops.engine.cgroups import Refused
from claudeops.engine.disk_use import DiskUse, Premises
from claudeops.engine.memory_watch import used_mb
from claudeops.engine.tally import Tally, tally
from claudeops.logs import LogEvent
from claudeops.tasks import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from claudeops.engine.cgroups import Group
    from claudeops.engine.control import Control
    from claudeops.engine.kit import Kit
    from claudeops.engine.workspace import Workspace
    from claudeops.logs import Logger

LOOK_SECONDS: Final = 1.0

HARD: Final = 1.5
"""At so many times a bound a session is killed at once: the polite way takes seconds that the machine lacks."""

_PACE: Final = 4
"""A look that takes long comes less often: so many times what the last one took is waited, at least."""

_LAST_LOOK_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 300.0
"""For one look: far more than any number of files within the bound takes, so that none is outlasted."""

_NOBODY: Final = Tally(pids=(), tasks=0, resident_bytes=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What one look has found."""

    tasks: int
    memory_mb: int
    disk: DiskUse
    refused: Mapping[Refused, int]  # by the kernel, since the start


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """A bound that a session has reached."""

    cause: StopCause
    detail: str
    hard: bool = False


@dataclass(kw_only=True, slots=True)
class BoundsWatch:
    """One session's."""

    control: Control
    premises: Premises
    given: DiskUse  # what was there before it started
    bounds: Bounds
    memory_mb: int | None  # MiB; None: not watched
    group: Group | None
    log: Logger
    events: list[NewEvent] = field(default_factory=list)  # of bounds that were reached, and of whoever adds to them
    # One thread for a session whose files do not answer, not one more at each look.
    _threads: Threads = field(init=False, default_factory=lambda: Threads(most=1))

    async def run(self, pid: int) -> None:
        """Look again and again at what is below a process. Ends with its task group."""
        while True:
            began = anyio.current_time()
            await self._look(pid)
            await anyio.sleep(max(LOOK_SECONDS, _PACE * (anyio.current_time() - began)))

    async def last_look(self) -> None:
        """Look at what is left when all processes are gone: whether a bound was reached is no matter of the moment."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_LOOK_SECONDS):
            await self._look(None)

    async def _look(self, pid: int | None) -> None:
        try:
            seen = await self._threads.run(
                partial(self._see, pid), seconds=_PATIENCE_SECONDS, what="a look at a session"
            )
        except TimeoutError:
            return  # that look says nothing; the next one may
        for reached in self._reached(seen):
            if self.control.cause is None:
                self._tell(reached, seen)
            self.control.stop(reached.cause)
            if reached.hard:
                self.control.hurry()

    def _see(self, pid: int | None) -> Seen:
        found = _NOBODY if pid is None else tally(pid, self.premises.uid)
        watches_files = self.bounds.disk_mb is not None or self.bounds.file_mb is not None
        enough = None if self.bounds.disk_bytes is None else int(self.given.used_bytes + self.bounds.disk_bytes * HARD)
        return Seen(
            tasks=found.tasks,
            memory_mb=0 if self.memory_mb is None else used_mb(found, self.memory_mb),
            disk=self.premises.measure(found.pids, enough_bytes=enough) if watches_files else DiskUse(),
            refused={} if self.group is None else self.group.refusals(),
        )

    def _reached(self, seen: Seen) -> Iterator[Reached]:
        """Give what was reached, the most urgent first."""
        bounds = self.bounds
        if self.memory_mb is not None and (seen.memory_mb > self.memory_mb or Refused.MEMORY in seen.refused):
            used = f"its processes used {seen.memory_mb} MiB of memory"
            yield Reached(
                cause=StopCause.OUT_OF_MEMORY,
                detail=f"{used}, more than the {self.memory_mb} MiB of CLAUDEOPS_SESSION_MEMORY_MB",
                hard=seen.memory_mb > self.memory_mb * HARD,
            )
        if bounds.processes is not None and (seen.tasks >= bounds.processes or Refused.PROCESS in seen.refused):
            yield Reached(
                cause=StopCause.OUT_OF_PROCESSES,
                detail=f"it reached the {bounds.processes} processes and threads of CLAUDEOPS_SESSION_PROCESSES",
                hard=seen.tasks > bounds.processes * HARD,
            )
        if bounds.file_bytes is not None and seen.disk.grown_to(bounds.file_bytes, self.given):
            yield Reached(
                cause=StopCause.FILE_TOO_LARGE,
                detail=f"one of its files reached the {bounds.file_mb} MiB of CLAUDEOPS_SESSION_FILE_MB",
            )
        if bounds.disk_bytes is not None:
            yield from self._disk(seen.disk, bounds.disk_bytes)

    def _disk(self, found: DiskUse, limit: int) -> Iterator[Reached]:
        used = found.used_bytes - self.given.used_bytes
        if used > limit:
            detail = f"its files take {used // MIB} MiB, more than the {limit // MIB} MiB of CLAUDEOPS_SESSION_DISK_MB"
            yield Reached(cause=StopCause.OUT_OF_DISK, detail=detail, hard=used > limit * HARD)
        elif found.too_deep:
            detail = "it made directories so deep that its files cannot be measured (CLAUDEOPS_SESSION_DISK_MB)"
            yield Reached(cause=StopCause.OUT_OF_DISK, detail=detail)

    def _tell(self, reached: Reached, seen: Seen) -> None:
        if reached.cause is StopCause.OUT_OF_MEMORY:
            self.log.warning(LogEvent.MEMORY_LIMIT_EXCEEDED, used_mb=seen.memory_mb, limit_mb=self.memory_mb)
        else:
            self.log.warning(LogEvent.BOUND_REACHED, bound=reached.cause.value, detail=reached.detail)
        self.events.append(
            NewEvent(
                level=Level.WARNING, message=f"Session stopped: {reached.detail}.", fingerprint=reached.cause.value
            )
        )


async def watch_over(
    workspace: Workspace, kit: Kit, *, group: Group | None, control: Control, log: Logger
) -> BoundsWatch:
    """Return the watch over a session that is about to start: what it was given is not held against it."""
    premises = Premises(root=workspace.root, uid=workspace.uid)
    return BoundsWatch(
        control=control,
        premises=premises,
        given=await anyio.to_thread.run_sync(premises.measure),
        bounds=kit.bounds,
        memory_mb=kit.session_memory_mb,
        group=group,
        log=log,
    )
