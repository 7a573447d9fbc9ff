"""The memory of a session's processes together, while it runs; and how many sessions a machine has memory for."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import psutil

from claudeops.domain.outcome import StopCause
from claudeops.engine import process
from claudeops.engine.tree import members
from claudeops.logs import LogEvent
from claudeops.tasks import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claudeops.engine.control import Control
    from claudeops.engine.process import Child
    from claudeops.logs import Logger

LOOK_SECONDS: Final = 1.0
_LOOK_PATIENCE_SECONDS: Final = 10.0
"""A look that takes longer says nothing; the next one may."""

HARD: Final = 1.5
"""At so many times the limit a session is killed at once: the polite way takes seconds that the machine lacks."""

MIB: Final = 1024 * 1024
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_FILES: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and use by cgroup v2, and by v1."""


async def watch(child: Child, control: Control, *, limit_mb: int, log: Logger) -> None:
    """Stop a session whose tree outgrows ``limit_mb`` (MiB), politely and then hard. Ends with its task group."""
    told = False
    look = Threads(most=1)  # what a process uses may hang with it
    while True:
        used = 0
        with contextlib.suppress(TimeoutError):
            used = await look.run(
                lambda: used_mb(child.pid, limit_mb), seconds=_LOOK_PATIENCE_SECONDS, what="a look at the memory"
            )
        if used > limit_mb and not told:
            told = True
            log.warning(LogEvent.MEMORY_LIMIT_EXCEEDED, used_mb=used, limit_mb=limit_mb)
            control.stop(StopCause.OUT_OF_MEMORY)
        if used > limit_mb * HARD:
            with anyio.CancelScope(shield=True):  # bounded: see `process.kill`
                await process.kill(child)
        await anyio.sleep(LOOK_SECONDS)


def used_mb(pid: int, worth_knowing_mb: int = 0) -> int:
    """Return the memory (MiB) of a process and its descendants, shared pages counted once; 0 when it is gone.

    Up to ``worth_knowing_mb`` the cheaper sum is returned, which counts shared pages for each process.
    """
    found = members(pid)
    resident = sum(_resident(member) for member in found)
    if resident <= worth_knowing_mb * MIB:
        return resident // MIB
    return sum(_proportional(member) for member in found) // MIB


def available_mb() -> int:
    """Return the memory (MiB) that processes of ours can still get: the machine's, or what its cgroups leave."""
    left = [limit - used for limit, used in _limits()]
    return max(0, min([psutil.virtual_memory().available, *left])) // MIB


def fitting_slots(wanted: int, *, session_mb: int, free_mb: int) -> int:
    """Return how many sessions of ``session_mb`` fit into ``free_mb`` (both MiB), at most ``wanted``, at least one."""
    return max(1, min(wanted, free_mb // session_mb))


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    return 0


def _proportional(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(pid)  # another user's, or gone


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
