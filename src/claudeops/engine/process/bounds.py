"""The bounds of a running session: memory, processes, files; a session that reaches one is stopped, then killed.

The kernel's counters and what is there (processes, files) show that a bound was reached, not what the session prints.
The module also says how much memory the daemon has left, and how many sessions fit into it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
import psutil

from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cgroups import MIB, Bounds, ControlGroup, Exceeded, Groups
from claudeops.engine.cell.own_files import FilesBound, bound_in_memory, prepared_bytes
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.control import StopControl
from claudeops.engine.process.disk_use import DiskPlace, DiskUse, MemoryPlace, Premises
from claudeops.engine.process.leaders import Ahead
from claudeops.engine.process.tree import ProcessTally, tally
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Threads

LOOK_SECONDS: Final = 1.0

HARD: Final = 1.5
"""Times a bound, beyond which a session is killed at once: the machine lacks the seconds that a polite stop takes."""

_PACE: Final = 4
"""Slow looks come less often: the pause is at least this many times the duration of the last look."""

_OWN_TASKS: Final = 16
"""Tasks that went before those that a CLI left could be counted: its own threads, some ten, and what ended with it."""

_LAST_LOOK_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 300.0
"""How long one look may take: far longer than any number of files within the bound needs."""

_CGROUPS: Final = Path("/sys/fs/cgroup")
_FILES: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and use by cgroup v2, and by v1."""


class BoundsFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one look."""

    tasks: int
    memory_mb: int
    disk: DiskUse
    refused: Mapping[Exceeded, int]  # by the kernel, since the start


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A bound that a session has reached."""

    cause: StopCause
    detail: str
    hard: bool = False


@dataclass(kw_only=True, slots=True)
class BoundsWatch:
    """Watches the bounds of one session."""

    control: StopControl
    premises: DiskPlace
    given: DiskUse  # its files before it started, which are not held against it
    bounds: Bounds
    memory_mb: int | None  # MiB; None: not watched
    group: ControlGroup | None
    log: Logger
    events: list[NewEvent] = field(default_factory=list)  # bounds that were reached; others may add to the list
    # One thread per session, so that files which do not answer cost one thread, not one more at each look.
    _threads: Threads = field(init=False, default_factory=lambda: Threads(most=1))

    async def run(self, pid: int) -> None:
        """Look at what is below a process, over and over. Ends with its task group."""
        while True:
            began = anyio.current_time()
            await self._look(partial(tally, pid, self.premises.uid))
            await anyio.sleep(max(LOOK_SECONDS, _PACE * (anyio.current_time() - began)))

    async def move_to(self, root: Path, descriptor: int) -> None:
        """Watch files in memory from now on; those that are there now do not count against the session."""
        place = MemoryPlace(root=root, descriptor=descriptor, file_bytes=self.bounds.file_bytes)
        self.premises, self.given = place, await anyio.to_thread.run_sync(place.measure)

    async def last_look(self, left: int = 0) -> None:
        """Look once more when all processes are gone, so that a bound reached between two looks is still seen.

        ``left``: how many processes the CLI left when it ended. They count: a process that gets no more threads may
        end at once.
        """
        count = left + _OWN_TASKS if left else 0
        found = ProcessTally(pids=(), tasks=count, resident_bytes=0)
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_LOOK_SECONDS):
            await self._look(lambda: found)

    async def _look(self, count: Callable[[], ProcessTally]) -> None:
        try:
            seen = await self._threads.run(
                partial(self._see, count), seconds=_PATIENCE_SECONDS, what="a look at a session"
            )
        except TimeoutError:
            return  # this look found nothing out; the next one may
        for reached in self._reached(seen):
            if self.control.cause is None:
                self._tell(reached, seen)
            self.control.stop(reached.cause)
            if reached.hard:
                self.control.hurry()

    def _see(self, count: Callable[[], ProcessTally]) -> BoundsFindings:
        found = count()
        watches_files = self.bounds.disk_mb is not None or self.bounds.file_mb is not None
        enough = None if self.bounds.disk_bytes is None else int(self.given.used_bytes + self.bounds.disk_bytes * HARD)
        return BoundsFindings(
            tasks=found.tasks,
            memory_mb=0 if self.memory_mb is None else used_mb(found, self.memory_mb),
            disk=self.premises.measure(found.pids, enough_bytes=enough) if watches_files else DiskUse(),
            refused={} if self.group is None else self.group.refusals(),
        )

    def _reached(self, seen: BoundsFindings) -> Iterator[Reached]:
        """Yield the bounds that were reached, the most urgent first."""
        bounds = self.bounds
        if self.memory_mb is not None and (seen.memory_mb > self.memory_mb or Exceeded.MEMORY in seen.refused):
            used = f"its processes used {seen.memory_mb} MiB of memory"
            yield Reached(
                cause=StopCause.OUT_OF_MEMORY,
                detail=f"{used}, more than the {self.memory_mb} MiB of CLAUDEOPS_SESSION_MEMORY_MB",
                hard=seen.memory_mb > self.memory_mb * HARD,
            )
        if bounds.processes is not None and (seen.tasks >= bounds.processes or Exceeded.PROCESS in seen.refused):
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

    def _tell(self, reached: Reached, seen: BoundsFindings) -> None:
        if reached.cause is StopCause.OUT_OF_MEMORY:
            self.log.warning(LogEvent.MEMORY_LIMIT_EXCEEDED, used_mb=seen.memory_mb, limit_mb=self.memory_mb)
        else:
            self.log.warning(LogEvent.BOUND_REACHED, bound=reached.cause.value, detail=reached.detail)
        self.events.append(
            NewEvent(
                level=EventLevel.WARNING, message=f"Session stopped: {reached.detail}.", fingerprint=reached.cause.value
            )
        )


async def watch_over(
    workspace: Workspace,
    *,
    bounds: Bounds,
    memory_mb: int | None,
    group: ControlGroup | None,
    control: StopControl,
    log: Logger,
) -> BoundsWatch:
    """Return the watch over a session that is about to start; the files it has by now do not count against it."""
    premises = Premises(root=workspace.root, uid=workspace.uid)
    return BoundsWatch(
        control=control,
        premises=premises,
        given=await anyio.to_thread.run_sync(premises.measure),
        bounds=bounds,
        memory_mb=memory_mb,
        group=group,
        log=log,
    )


@contextlib.asynccontextmanager
async def open_group(groups: Groups | None, ahead: Ahead | None) -> AsyncIterator[ControlGroup | None]:
    """Hold a session's control group for the length of the block, if there are groups; raises `OSError`.

    It is that of what was started ahead of the session, where that has one.
    """
    if groups is None or (ahead is not None and ahead.group is not None):
        yield None if ahead is None else ahead.group
        return
    async with groups.lease() as group:
        yield group


async def bounded_by_kernel(
    workspace: Workspace, group: ControlGroup | None, bounds: Bounds, *, memory_mb: int | None, room_mb: int
) -> FilesBound | None:
    """Have the kernel bound a session that has a group, with its files in memory; raises `OSError`.

    Returns the bound of its files in memory; ``None`` where they stay on the disk, as they do without ``room_mb``.
    """

    def bound() -> FilesBound | None:
        given = prepared_bytes(workspace) if room_mb else 0
        files = bound_in_memory(bounds.disk_bytes, given_bytes=given, room_mb=room_mb) if room_mb else None
        if group is not None:
            group.bound(bounds.processes, memory_mb, files_mb=0 if files is None else files.memory_mb)
        return files

    return await workspaces.SESSION_FILES.run(bound, seconds=workspaces.LOOK_SECONDS, what="bounding a session")


def used_mb(found: ProcessTally, worth_knowing_mb: int = 0) -> int:
    """Return the memory (MiB) of processes together, shared pages counted once. Call it off the event loop.

    Where the cheaper sum, which counts shared pages once for each process, is at most ``worth_knowing_mb``, returns
    that sum.
    """
    if found.resident_bytes <= worth_knowing_mb * MIB:
        return found.resident_bytes // MIB
    return sum(_proportional(pid) for pid in found.pids) // MIB


def available_mb() -> int:
    """Return the memory (MiB) that this process and its children can still get, from the machine and its cgroups."""
    left = [limit - used for limit, used in _limits()]
    return max(0, min([psutil.virtual_memory().available, *left])) // MIB


def machine_mb() -> int:
    """Return the memory (MiB) that this process and its children may have in all, by the machine and its cgroups."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _limits())]) // MIB


def fitting_slots(wanted: int, *, session_mb: int, free_mb: int) -> int:
    """Return how many sessions of ``session_mb`` fit into ``free_mb`` (both MiB), at most ``wanted``, at least one."""
    return max(1, min(wanted, free_mb // session_mb))


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(psutil.Error):  # another user's
        return int(psutil.Process(pid).memory_info().rss)
    return 0  # gone


def _limits() -> Iterator[tuple[int, int]]:
    """Yield limit and use, in bytes, of every cgroup that this process is in and of those above it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, inside = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top = _CGROUPS / ("memory" if controllers else "")
            group = top / inside.strip("/")
            for directory in (group, *group.parents):
                if directory.is_relative_to(top):
                    yield from _limit_of(directory)


def _limit_of(directory: Path) -> Iterator[tuple[int, int]]:
    for limit, used in _FILES:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            yield (
                int((directory / limit).read_text(encoding="ascii")),
                int((directory / used).read_text(encoding="ascii")),
            )
