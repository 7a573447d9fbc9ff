"""The memory of a session's processes together; and how many sessions a machine has memory for."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from claudeops.engine.bounds import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claudeops.engine.tally import Tally

_CGROUPS: Final = Path("/sys/fs/cgroup")
_FILES: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Limit and use by cgroup v2, and by v1."""


def used_mb(found: Tally, worth_knowing_mb: int = 0) -> int:
    """Return the memory (MiB) of processes together, shared pages counted once. Not for the event loop.

    Up to ``worth_knowing_mb`` the cheaper sum is returned, which counts shared pages for each process.
    """
    if found.resident_bytes <= worth_knowing_mb * MIB:
        return found.resident_bytes // MIB
    return sum(_proportional(pid) for pid in found.pids) // MIB


def available_mb() -> int:
    """Return the memory (MiB) that processes of ours can still get: the machine's, or what its cgroups leave."""
    left = [limit - used for limit, used in _limits()]
    return max(0, min([psutil.virtual_memory().available, *left])) // MIB


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
