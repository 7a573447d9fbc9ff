"""Process trees: finding the processes of a session, ending them, reaping its orphans and counting what they use.

A session's processes are found in two ways, because each misses some: by descent (misses what was re-parented) and by
the session mark in the environment (misses what cleared its environment). The cost of descent grows with the tree: the
kernel lists each process's children. The mark costs a look at every process of the machine, so it is used seldom. All
of it reads ``/proc``, which may take long, or hang on a process that hangs: call it off the event loop.

The daemon is the subreaper of its sessions: their orphans become its children, and it kills and reaps those alone.
Every CLI and guardian starts as the leader of a kernel session of its own, and what is below it stays outside the
daemon's. So a child of this process that is neither in this process's kernel session nor was registered here at its
start is an orphan of a session whose chain of parents broke. Only those are reaped, each by its pid: a wait for any
child would take an exit status away from the code that waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec
import psutil

from claudeops.engine.process import SESSION_MARK
from claudeops.tasks import check_abandoned

_FIRST_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.1
"""Pauses between two looks at processes that are ending; each is twice the one before."""

_STATE: Final = 0
_STARTED: Final = 19
"""Fields of ``/proc/<pid>/stat``, counted from behind the name, which may hold anything; 3 and 22 in proc(5)."""

_DEAD: Final = frozenset({b"Z", b"X"})

_KERNEL_LISTS_CHILDREN: Final = os.path.exists("/proc/thread-self/children")  # noqa: PTH110 - at import, once

_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37

_started: set[int] = set()
"""Pids of the session leaders that this process started. Global, because the children of a process are."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# Of /proc/<pid>/stat, counted from behind the name, which may hold anything.
_PARENT, _THREADS, _RESIDENT = 1, 17, 21


def session_mark(sessions_dir: Path, session_id: int, attempt: int) -> str:
    """Return the mark of a session; it begins with `marks_below` of the same directory."""
    return f"{marks_below(sessions_dir)}{session_id}.{attempt};"


def marks_below(sessions_dir: Path) -> str:
    """Return the common prefix of the marks of all sessions whose workspaces lie below a directory."""
    return f"{sessions_dir}#"


class ProcessId(msgspec.Struct, frozen=True):
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
    """Return the pids of a process's children, zombies included, in the order in which each thread had them.

    A child that ends during the look may hide the one behind it: callers that must find every child look twice.
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


def first_in_namespace(pid: int) -> int:
    """Return the pid of the command that bubblewrap started, given bubblewrap's own pid; else that pid itself.

    bubblewrap's child is the first process of the namespace, which reaps; the oldest child of that one is the command.
    Orphans become children of the same process, but later.
    """
    below = children(pid)
    inside = [found for child in (children(below[0]) if below else []) if (found := _identify(child)) is not None]
    return min(inside, key=lambda process: (process.started, process.pid)).pid if inside else pid


def open_namespace(pid: int) -> int | None:
    """Return a descriptor of the first process of the namespace that bubblewrap has made, given bubblewrap's own pid.

    It is readable once all processes there have ended: the kernel ends the first one last. ``None``: there is none, or
    the kernel has no such descriptors.
    """
    for child in children(pid)[:1]:
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(child)
            if _is_first(child, of=pid):  # looked at by now: else another process may have got the pid
                return descriptor
            os.close(descriptor)
    return None


def has_ended(namespace: int, seconds: float) -> bool:
    """Wait for the end of all processes of a namespace, and reap what this process has inherited of it."""
    with select.epoll() as ended:
        ended.register(namespace, select.EPOLLIN)
        if not ended.poll(seconds):
            return False
    reap(inherited())
    return True


def _is_first(pid: int, *, of: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", "rb") as status:  # noqa: PTH123 - ten times cheaper than pathlib
            fields = dict(line.split(b":", 1) for line in status.read().splitlines())
    except OSError:  # gone
        return False
    return int(fields[b"PPid"]) == of and fields.get(b"NSpid", b"").split()[1:][-1:] == [b"1"]


def marked(beginning: str) -> frozenset[ProcessId]:
    """Return every process but this one whose session mark has this prefix. Looks at every process of the machine."""
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
    """SIGKILL every process that is still the same one; return how many were."""
    killed = 0
    for process in processes:
        if not still_there(process):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
    return killed


def await_end(processes: Iterable[ProcessId], seconds: float) -> None:
    """Return once all of these processes have gone, after ``seconds`` at the latest. Blocks."""
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


def become_subreaper() -> None:
    """Make orphans of sessions children of this process instead of init; raises `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel knows no child subreapers")


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Start the leader of a kernel session in this block, and register it with `own` before the block ends."""
    _Starts.begun += 1
    _Starts.under_way += 1
    try:
        yield
    finally:
        _Starts.under_way -= 1


def own(pid: int) -> None:
    """Register the leader of a kernel session whose exit this process waits for."""
    _started.add(pid)


def disown(pid: int) -> None:
    """Forget a leader whose exit status was taken."""
    _started.discard(pid)


def inherited() -> frozenset[int]:
    """Return the children of this process that it did not start, zombies included. Callable from any thread.

    Empty if this process is no subreaper, and while something is being started, or was during the look: a new process
    is a child before its pid is registered.
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
    """Take the exit status of those that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)


class ProcessTally(msgspec.Struct, frozen=True, kw_only=True):
    """The processes below one process, itself included, and what they use together."""

    pids: tuple[int, ...]
    tasks: int  # threads of all; a zombie counts as one until it is reaped
    resident_bytes: int  # shared pages count once for each process


def tally(pid: int, uid: int | None = None) -> ProcessTally:
    """Return what is below a process or belongs to ``uid``, in one look; empty when there is nothing.

    ``uid``: a user that only this session has. Call it off the event loop.
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
    return ProcessTally(
        pids=tuple(members),
        tasks=sum(found[member][1] for member in members),
        resident_bytes=sum(found[member][2] for member in members) * _PAGE_BYTES,
    )


def _identify(pid: int) -> ProcessId | None:
    fields = _stat(pid)
    return None if fields is None else ProcessId(pid, int(fields[_STARTED]))


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of a process's ``stat`` from behind its name; ``None`` when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - ten times cheaper than pathlib
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return None


class _Starts:
    under_way = 0
    begun = 0  # ever


def _is_subreaper() -> bool:
    answer = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)
