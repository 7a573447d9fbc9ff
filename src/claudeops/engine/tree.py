"""Process trees: who belongs to a session, and the end of all of them.

A session's processes are found in two ways, because each misses some: by descent (misses what was
re-parented) and by the session mark in the environment (misses what cleared its environment).
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SESSION_MARK: Final = "CLAUDEOPS_SESSION_MARK"
"""The environment variable that every process of a session inherits."""

_GONE: Final = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)


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
    created_at: float


def tree_of(pid: int) -> frozenset[ProcessId]:
    """Return the process and its descendants as they are now; empty when it is gone."""
    try:
        root = psutil.Process(pid)
        members = [root, *root.children(recursive=True)]
    except _GONE:
        return frozenset()
    return frozenset(found for process in members if (found := _identify(process)) is not None)


def first_inside(pid: int) -> int:
    """Return the process that bubblewrap was asked to start, by bubblewrap's own pid; else that pid itself.

    Below it stands the first process of the namespace, which reaps; the oldest child of that one is what was asked for.
    Orphans fall to the same parent, but later.
    """
    try:
        children = psutil.Process(pid).children()
        inside = children[0].children() if children else []
        return min(inside, key=lambda process: (process.create_time(), process.pid)).pid if inside else pid
    except _GONE:
        return pid


def marked(beginning: str) -> frozenset[ProcessId]:
    """Return every process but this one whose session mark begins so."""
    wanted = f"{SESSION_MARK}={beginning}".encode()
    found: set[ProcessId] = set()
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        # Reading the file is ten times cheaper than psutil's parsed dictionary.
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as environ:  # noqa: PTH123 - as above
                variables = environ.read().split(b"\0")
            if any(variable.startswith(wanted) for variable in variables):
                with contextlib.suppress(*_GONE):
                    identity = _identify(psutil.Process(pid))
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


def still_there(process: ProcessId) -> bool:
    """Return whether that very process still runs; a zombie does not."""
    try:
        found = psutil.Process(process.pid)
        return found.create_time() == process.created_at and found.status() != psutil.STATUS_ZOMBIE
    except _GONE:
        return False


def _identify(process: psutil.Process) -> ProcessId | None:
    try:
        return ProcessId(process.pid, process.create_time())
    except _GONE:
        return None
