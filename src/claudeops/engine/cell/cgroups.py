"""Bounds on what one session may use besides memory, and control groups in which the kernel counts and bounds that.

Each session has a control group of its own, which also bounds its memory. Groups are used where the kernel's tree of
them is ours to change: as a delegated service of systemd (``Delegate=``), in a container, or on a machine without
systemd. Elsewhere the groups belong to the service manager, which would take back what is changed behind its back. Both
versions of the interface are supported; of version 1 only processes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import AsyncIterator
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

MIB: Final = 1024 * 1024

_MACHINE: Final = Path("/")
_DELEGATED: Final = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd marks a group whose contents it leaves alone."""

_DAEMON: Final = "daemon"  # the group that the daemon moves into: a group that has groups below may hold no process
_FAMILY: Final = "claudeops-"
_FORGOTTEN_SECONDS: Final = 3600.0  # a group without processes gets this old only if its daemon is gone
_REMOVE_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
_HEADROOM: Final = 1.5
"""Times the memory limit, the kernel's own bound: it leaves room to stop a session over the limit politely."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What one session may use at most; ``None``: no bound."""

    processes: int | None = None  # at once; threads count, as they do for the kernel
    file_mb: int | None = None  # MiB of one file
    disk_mb: int | None = None  # MiB of all that it keeps on disk

    @property
    def file_bytes(self) -> int | None:
        """Return the size that a file may have, in bytes."""
        return None if self.file_mb is None else self.file_mb * MIB

    @property
    def disk_bytes(self) -> int | None:
        """Return the disk space in bytes."""
        return None if self.disk_mb is None else self.disk_mb * MIB


def allowed(limit: int, wanted: int) -> int:
    """Return ``wanted``, or the daemon's own hard limit (`resource.RLIMIT_FSIZE` …) if that is lower.

    Without a privilege a process cannot give another one more than it has itself.
    """
    hard = resource.getrlimit(limit)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


class Exceeded(Enum):
    """What the kernel refused a session."""

    PROCESS = "process"
    MEMORY = "memory"  # it killed a process instead


class ControlGroup(msgspec.Struct, frozen=True):
    """The group of one session."""

    directory: Path

    @property
    def door(self) -> Path:
        """Return the file to which a process writes ``0`` to join."""
        return self.directory / "cgroup.procs"

    def take(self, pid: int) -> None:
        """Have a process join, for which the kernel waits for all processors, 6 to 20 ms; raises `OSError`."""
        _write(self.door, str(pid))

    def bound(self, processes: int | None, memory_mb: int | None, *, files_mb: int = 0) -> None:
        """Bound its processes, and its memory somewhat above a session's own limit; raises `OSError`.

        ``files_mb``: what its files in memory may take (MiB). Where the kernel counts memory, they are part of it.
        """
        if processes is not None:
            _write(self.directory / "pids.max", str(processes))
        if memory_mb is not None and (limit := self.directory / "memory.max").exists():
            _write(limit, str((int(memory_mb * _HEADROOM) + files_mb) * MIB))

    def refusals(self) -> dict[Exceeded, int]:
        """Return how often the kernel refused what, without zeros. Reads two files of the kernel."""
        found = {
            Exceeded.PROCESS: _count(self.directory / "pids.events", "max"),
            Exceeded.MEMORY: _count(self.directory / "memory.events", "oom_kill"),
        }
        return {what: count for what, count in found.items() if count}


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The place below which sessions get groups, each with a number: one may be there before its session is known."""

    place: Path
    prefix: str  # of this daemon's groups; another daemon may use the same place

    @contextlib.asynccontextmanager
    async def lease(self) -> AsyncIterator[ControlGroup]:
        """Make a group, and remove it when the block is left; it must be empty by then. Raises `OSError`."""
        group = await anyio.to_thread.run_sync(self._make)
        try:
            yield group
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove, group.directory, _REMOVE_SECONDS)

    def clear(self) -> None:
        """Remove groups that killed daemons left: this daemon's, and those of others that have long been empty."""
        for left in self.place.glob(f"{_FAMILY}*"):
            with contextlib.suppress(FileNotFoundError):
                if left.name.startswith(f"{self.prefix}-") or time.time() - left.stat().st_ctime > _FORGOTTEN_SECONDS:
                    _remove(left, 0)  # the kernel keeps a group that holds processes

    def _make(self) -> ControlGroup:
        places = (self.place / f"{self.prefix}-{number}" for number in count(1))
        return ControlGroup(next(filter(_is_made, places)))


def _is_made(directory: Path) -> bool:
    """Make a directory; return whether it is new. Raises `OSError`."""
    try:
        directory.mkdir()
    except FileExistsError:
        return False
    return True


class Hierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """One tree of groups, and this process's place in it."""

    own: Path  # the directory of our own group
    unified: bool  # version 2


def find(owner: str, machine: Path = _MACHINE) -> Groups | str:
    """Return where sessions can get groups, or the reason why they cannot, without a full stop. Changes nothing.

    ``owner``: a word that is unique to this daemon. ``machine``: the directory of ``/proc``, ``/sys`` and ``/run``.
    """
    why = "the kernel offers no control groups that count processes"
    for hierarchy in _hierarchies(machine):
        found = _usable(hierarchy, machine)
        if isinstance(found, Path):
            return Groups(place=found, prefix=_FAMILY + owner)
        why = found
    return why


def prepare(groups: Groups) -> str | None:
    """Make the kernel count in groups below the place; return the reason if it cannot.

    Moves this process into a group of its own beside those of the sessions, where version 2 requires that.
    """
    switch = groups.place / "cgroup.subtree_control"
    if not switch.exists():  # version 1
        return None
    try:
        if "pids" not in _words(switch):
            _make_way(groups.place)
            _write(switch, "+pids")
        if "memory" in _words(groups.place / "cgroup.controllers"):
            with contextlib.suppress(OSError):  # the watch looks at the memory in any case
                _write(switch, "+memory")
    except OSError as error:
        return f"groups for sessions cannot be had in {groups.place} ({error.strerror})"
    return None


def _make_way(place: Path) -> None:
    """Move the processes out of a group that is to have groups below it; raises `OSError`."""
    if not (place / "cgroup.type").exists():
        return  # the root of all groups, which may hold both processes and groups
    leaf = place / _DAEMON
    leaf.mkdir(exist_ok=True)
    for pid in _words(place / "cgroup.procs"):
        _write(leaf / "cgroup.procs", pid)


def _can_make_way(place: Path) -> bool:
    """Return whether a group holds only this process and its descendants, or may keep the processes it has."""
    if "pids" in _words(place / "cgroup.subtree_control") or not (place / "cgroup.type").exists():
        return True
    inside = map(int, _words(place / "cgroup.procs"))
    return all(pid == os.getpid() or _descends(pid) for pid in inside)


def _descends(pid: int) -> bool:
    """Return whether a process is a descendant of this one."""
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        pid = int(status.rpartition(")")[2].split()[1])
        if pid == os.getpid():
            return True
    return False


def _usable(hierarchy: Hierarchy, machine: Path) -> Path | str:
    """Return the directory below which groups may be made, or why there is none."""
    place = hierarchy.own
    if (machine / "run/systemd/system").is_dir():
        mine = [directory for directory in (place, place.parent) if _delegated(directory)]
        if not mine:
            return "the service manager has not left its control groups to us (Delegate=pids memory in the unit)"
        place = mine[0]
    if hierarchy.unified and "pids" not in _words(place / "cgroup.controllers"):
        return f"processes are not counted in the control group {place}"
    needed = [place, place / "cgroup.procs", *([place / "cgroup.subtree_control"] if hierarchy.unified else [])]
    if not all(os.access(path, os.W_OK) for path in needed):
        return f"the control group {place} cannot be changed by user {os.geteuid()}"
    if hierarchy.unified and not _can_make_way(place):
        return f"other programs are in the control group {place}"
    return place


def _hierarchies(machine: Path) -> list[Hierarchy]:
    """Return the trees that can count processes, version 2 first."""
    paths: dict[str, str] = {}  # our group, by controller; version 2 has none in this list
    for line in _lines(machine / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    found: list[Hierarchy] = []
    for line in _lines(machine / "proc/self/mountinfo"):
        before, _, behind = line.partition(" - ")
        kind, _, options = behind.split(" ", 2)
        unified = kind == "cgroup2"
        if not unified and (kind != "cgroup" or "pids" not in options.split(",")):
            continue
        inside = paths.get("" if unified else "pids")
        root, place = before.split(" ")[3:5]
        if inside is None or not Path(inside).is_relative_to(root):
            continue
        top = machine / place.lstrip("/")
        hierarchy = Hierarchy(own=top / Path(inside).relative_to(root), unified=unified)
        if not unified or "pids" in _words(top / "cgroup.controllers"):
            found.append(hierarchy)
    return sorted(found, key=lambda hierarchy: not hierarchy.unified)


def _delegated(directory: Path) -> bool:
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(directory, name) == b"1":
                return True
    return False


def _count(file: Path, name: str) -> int:
    """Return a counter from a file of events; 0 when there is no such file."""
    for line in _lines(file):
        word, _, number = line.partition(" ")
        if word == name:
            return int(number)
    return 0


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _write(file: Path, text: str) -> None:
    with file.open("w", encoding="ascii") as opened:  # cannot create one: the kernel makes all files here
        opened.write(text)


def _remove(directory: Path, seconds: float) -> None:
    """Remove a group; a killed process leaves it only a moment later."""
    deadline = time.monotonic() + seconds
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() >= deadline:
                return  # the next start of the daemon tries again
            time.sleep(_POLL_SECONDS)
