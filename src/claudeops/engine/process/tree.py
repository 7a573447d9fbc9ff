"""Process trees: who belongs to a session, and the end of all of them.

A session's processes are found in two ways, because each misses some: by descent (misses what was re-parented) and by
the session mark in the environment (misses what cleared its environment). Descent costs as much as the tree is large:
the kernel lists each process's children. The mark costs a look at every process of the machine, so it is asked for
seldom. All of it reads ``/proc``, which may take long, or hang on a process that hangs: off the event loop.

The daemon as the one to whom the orphans of its sessions fall: it kills and reaps them, and nobody else.

Every CLI and guardian is started in a session (of processes) of its own, and so is everything below it. So a child of
this process that neither is in this process's session nor was registered here at its start was inherited from a
session whose chain of parents broke. Only those are reaped, each by its number: a wait for any child would take away
the exit status of a process whose owner waits for it.

A session's processes and what they use together, from one look at the machine's list of processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from claudeops.tasks import check_abandoned

SESSION_MARK: Final = "CLAUDEOPS_SESSION_MARK"
"""The environment variable that every process of a session inherits."""

_FIRST_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.1
"""Between two looks at processes that are ending; each pause is twice the one before."""

_STATE: Final = 0
_STARTED: Final = 19
"""Fields of ``/proc/<pid>/stat`` behind the name, which may hold anything: proc(5) counts them as 3 and 22."""

_DEAD: Final = frozenset({b"Z", b"X"})


def session_mark(sessions_dir: Path, session_id: int, attempt: int) -> str:
    """Return a session's mark; it begins with `marks_below` of the same directory."""
    return f"{marks_below(sessions_dir)}{session_id}.{attempt};"


def marks_below(sessions_dir: Path) -> str:
    """Return how the marks of all sessions begin whose workspaces lie below a directory."""
    return f"{sessions_dir}#"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told apart from a later one with the same pid by its start time."""

    pid: int
    started: int  # clock ticks since the machine was booted


def tree_of(pid: int) -> frozenset[ProcessId]:
    """Return the process and its descendants as they are now; empty when it is gone."""
    return frozenset(found for member in members(pid) if (found := _identify(member)) is not None)


def members(pid: int) -> list[int]:
    """Return the pids of a process and its descendants as they are now, parents first."""
    found = [pid]
    known = {pid}
    for member in found:
        new = [child for child in children(member) if child not in known]
        found += new
        known.update(new)
    return found


def children(pid: int) -> list[int]:
    """Return the pids of a process's children, the dead ones too, in the order in which each thread had them.

    A child that ends during the look may hide the one behind it: who has to find everybody looks again.
    """
    if not _KERNEL_LISTS_CHILDREN:
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
        return []
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - ten times cheaper than pathlib
            with (
                contextlib.suppress(OSError),  # that thread has ended
                open(f"/proc/{pid}/task/{thread}/children", "rb") as listed,  # noqa: PTH123 - as above
            ):
                found += map(int, listed.read().split())
    return found


def first_inside(pid: int) -> int:
    """Return the process that bubblewrap was asked to start, by bubblewrap's own pid; else that pid itself.

    Below it stands the first process of the namespace, which reaps; the oldest child of that one is what was asked for.
    Orphans fall to the same parent, but later.
    """
    below = children(pid)
    inside = [found for child in (children(below[0]) if below else []) if (found := _identify(child)) is not None]
    return min(inside, key=lambda process: (process.started, process.pid)).pid if inside else pid


def marked(beginning: str) -> frozenset[ProcessId]:
    """Return every process but this one whose session mark begins so. Looks at every process of the machine."""
    wanted = f"{SESSION_MARK}={beginning}".encode()
    later = b"\0" + wanted
    found: set[ProcessId] = set()
    for pid in psutil.pids():
        check_abandoned()
        if pid == os.getpid():
            continue
        # Reading the file is ten times cheaper than psutil's parsed dictionary.
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as environ:  # noqa: PTH123 - as above
                variables = environ.read()
            if variables.startswith(wanted) or later in variables:
                identity = _identify(pid)
                if identity is not None:
                    found.add(identity)
    return frozenset(found)


def kill_all(processes: Iterable[ProcessId]) -> int:
    """SIGKILL every process that is still the one it was; return how many were."""
    killed = 0
    for process in processes:
        if not still_there(process):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    return killed


def await_end(processes: Iterable[ProcessId], seconds: float) -> None:
    """Return once none of these processes is there any more, at the latest after ``seconds``. Blocks."""
    left = set(processes)
    deadline, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while left := {process for process in left if still_there(process)}:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return
        check_abandoned()
        time.sleep(min(pause, remaining))
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def still_there(process: ProcessId) -> bool:
    """Return whether that very process still runs; a zombie does not."""
    fields = _stat(process.pid)
    return fields is not None and int(fields[_STARTED]) == process.started and fields[_STATE] not in _DEAD


def _identify(pid: int) -> ProcessId | None:
    fields = _stat(pid)
    return None if fields is None else ProcessId(pid, int(fields[_STARTED]))


def _stat(pid: int) -> list[bytes] | None:
    """Return what the kernel tells of a process behind its name; ``None`` when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - ten times cheaper than pathlib
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return None


_KERNEL_LISTS_CHILDREN: Final = os.path.exists("/proc/thread-self/children")  # noqa: PTH110 - at import, once


_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37

_started: set[int] = set()
"""Pids of this process's own sessions. As wide as what it tells apart: the children of one process."""


class _Starts:
    under_way = 0
    begun = 0  # ever


def become_subreaper() -> None:
    """Have orphans of sessions fall to this process instead of to init; raises `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel knows no child subreapers")


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Start a leader of a session of processes in this block, and register it by `own` before the block is left."""
    _Starts.begun += 1
    _Starts.under_way += 1
    try:
        yield
    finally:
        _Starts.under_way -= 1


def own(pid: int) -> None:
    """Register the leader of a session of processes that somebody here waits for."""
    _started.add(pid)


def disown(pid: int) -> None:
    """Forget it; its status was taken."""
    _started.discard(pid)


def inherited() -> frozenset[int]:
    """Return the children of this process that it did not start, the dead ones too. From any thread.

    Empty if it is no subreaper, and while something is being started: that is a child before its number is known. The
    same holds for what was begun during the look.
    """
    begun = _Starts.begun
    if _Starts.under_way or not _is_subreaper():
        return frozenset()
    mine, pid = os.getsid(0), os.getpid()
    found: set[int] = set()
    for child in {*children(pid), *children(pid)}:  # twice: a child that ends may hide another from one look
        with contextlib.suppress(OSError):
            if child not in _started and os.getsid(child) != mine:
                found.add(child)
    return frozenset(found) if _Starts.begun == begun else frozenset()


def reap(pids: AbstractSet[int]) -> None:
    """Take the status of those that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


def _is_subreaper() -> bool:
    answer = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


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
