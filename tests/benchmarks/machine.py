"""The machine that a capacity card is about: without it the numbers mean nothing."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

_FSYNCS: Final = 50
_BLOCK: Final = b"x" * 4096


def facts(directory: Path) -> list[tuple[str, str]]:
    """Return names and values, as they are now."""
    return [
        ("processor", f"{len(os.sched_getaffinity(0))} cores of {_processor()}"),
        ("memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"),
        ("system", f"Linux {platform.release()}, Python {platform.python_version()} ({sys.implementation.name})"),
        ("files", f"{_file_system(directory)}; 4 KiB appended and fsynced in {fsync_milliseconds(directory):.2f} ms"),
        ("load", load()),
    ]


def load() -> str:
    """Return how busy the machine is besides: whatever else runs makes the numbers worse."""
    return f"{os.getloadavg()[0]:.1f} processes on average over the last minute"


def fsync_milliseconds(directory: Path) -> float:
    """Return how long a small append takes until it is on the disk: the median of some."""
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(_FSYNCS):
            started = time.perf_counter()
            file.write(_BLOCK)
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Return the type of the file system that holds a directory."""
    path = directory.resolve()
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    around = [(point, kind) for _, point, kind, *_ in mounts if path.is_relative_to(point)]
    return max(around, key=lambda mount: len(mount[0]))[1]
