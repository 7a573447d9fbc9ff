"""A session's processes and what they use together, from one look at the machine's list of processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# Of /proc/<pid>/stat, counted from behind the name, which may hold anything.
_PARENT, _THREADS, _RESIDENT = 1, 17, 21


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """What was found below one process, itself included."""

    pids: tuple[int, ...]
    tasks: int  # threads of all; a zombie is one until it is reaped
    resident_bytes: int  # pages that are shared are counted for each


def tally(pid: int, uid: int | None = None) -> Tally:
    """Return what is below a process, and what belongs to ``uid``; empty when there is nothing. Not for the event loop.

    ``uid``: a user that only this session has.
    """
    found: dict[int, tuple[int, int, int]] = {}
    children: dict[int, list[int]] = {}
    waiting = [pid]
    for name in os.listdir("/proc"):  # noqa: PTH208 - a thousand entries, once a second
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                fields = file.read().rpartition(b")")[2].split()
            if uid is not None and os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116 - as above
                waiting.append(int(name))
        except OSError:
            continue  # gone meanwhile
        found[int(name)] = (int(fields[_PARENT]), int(fields[_THREADS]), int(fields[_RESIDENT]))
        children.setdefault(int(fields[_PARENT]), []).append(int(name))
    members: dict[int, None] = {}
    while waiting:
        member = waiting.pop()
        if member in found and member not in members:
            members[member] = None
            waiting += children.get(member, ())
    return Tally(
        pids=tuple(members),
        tasks=sum(found[member][1] for member in members),
        resident_bytes=sum(found[member][2] for member in members) * _PAGE_BYTES,
    )
