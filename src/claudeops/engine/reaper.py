"""The daemon as the one to whom the orphans of its sessions fall: it kills and reaps them, and nobody else.

Every CLI and guardian is started in a session (of processes) of its own, and so is everything below it. So a child of
this process that neither is in this process's session nor was registered here at its start was inherited from a
session whose chain of parents broke. Only those are reaped, each by its number: a wait for any child would take away
the exit status of a process whose owner waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Final

from claudeops.engine.tree import children

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

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
