"""What a process holds of the machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a process held at one moment."""

    sessions: int  # that it had run by then
    descriptors: int
    threads: int
    resident_mib: float
    own_mib: float  # without pages that it shares


def held(pid: int, *, sessions: int) -> Held:
    """Look at a process."""
    process = Path(f"/proc/{pid}")
    resident, _, own = held_mib(pid)
    return Held(
        sessions=sessions,
        descriptors=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())),
        resident_mib=resident,
        own_mib=own,
    )


def held_mib(pid: int) -> tuple[float, float, float]:
    """Return what a process holds, in MiB: resident, its share of shared pages counted, and without shared ones."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    kib = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}
    own = kib["Private_Clean"] + kib["Private_Dirty"]
    return kib["Rss"] / 1024, kib["Pss"] / 1024, own / 1024


def shared_mib(pid: int) -> float:
    """Return what a process and all below it hold together, in MiB, each with its share of shared pages."""
    process, total = psutil.Process(pid), 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(OSError):  # it has ended
            total += held_mib(each.pid)[1]
    return total
