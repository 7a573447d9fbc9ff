"""The memory of a session's processes together, while it runs; and how many sessions a machine has memory for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import psutil

from claudeops.domain.outcome import StopCause
from claudeops.engine import process
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claudeops.engine.control import Control
    from claudeops.engine.process import Child
    from claudeops.logs import Logger

LOOK_SECONDS: Final = 1.0

HARD: Final = 1.5
"""At so many times the limit a session is killed at once: the polite way takes seconds that the machine lacks."""

MIB: Final = 1024 * 1024
_CGROUPS: Final = Path("/sys/fs/cgroup")
_FILES: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and use by cgroup v2, and by v1."""


async def watch(child: Child, control: Control, *, limit_mb: int, log: Logger) -> None:
    """Stop a session whose tree outgrows ``limit_mb`` (MiB), politely and then hard. Ends with its task group."""
    told = False
    while True:
        used = await anyio.to_thread.run_sync(used_mb, child.pid, limit_mb)
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
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    resident = sum(_resident(member) for member in members)
    if resident <= worth_knowing_mb * MIB:
        return resident // MIB
    return sum(_proportional(member) for member in members) // MIB


def available_mb() -> int:
    """Return the memory (MiB) that processes of ours can still get: the machine's, or what its cgroups leave."""
    left = [limit - used for limit, used in _limits()]
    return max(0, min([psutil.virtual_memory().available, *left])) // MIB


def fitting_slots(wanted: int, *, session_mb: int, free_mb: int) -> int:
    """Return how many sessions of ``session_mb`` fit into ``free_mb`` (both MiB), at most ``wanted``, at least one."""
    return max(1, min(wanted, free_mb // session_mb))


def _resident(member: psutil.Process) -> int:
    try:
        return int(member.memory_info().rss)
    except psutil.Error:
        return 0


def _proportional(member: psutil.Process) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{member.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident(member)  # another user's, or gone


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
