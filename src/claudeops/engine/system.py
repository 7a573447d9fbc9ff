"""The machine and this process: the limit of descriptors, memory that is free, and the wish to stop.

`Shutdown` is the wish to stop as a value on which everything that waits can wait.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from claudeops.errors import StoppedError
from claudeops.tasks import open_tasks

MOST_DESCRIPTORS: Final = 65_536
"""Upper bound: sessions inherit the limit, and some programs walk through all of it, with a billion for minutes."""


GROWN_BYTES: Final = 8 * 1024 * 1024
"""Growth from which on it pays to look for free memory."""

_M_TRIM_THRESHOLD: Final = -1  # of malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 1024 * 1024

BEFORE_ANYTHING: Final = "stopped before anything was started."


def raise_descriptor_limit() -> int:
    """Let this process open as many files and connections as it may, up to `MOST_DESCRIPTORS`; return that number.

    The usual 1024 exist for programs that use ``select``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def keep_one_heap() -> None:
    """Let all threads of this process share one heap, and large pieces of memory be no part of it.

    A heap of a thread's own keeps what is free at its end, for ever. With another C library than glibc nothing happens.
    Call it before there are threads.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, GROWN_BYTES)


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def give_memory_back() -> None:
    """Give the kernel what is free; takes some milliseconds, and does nothing with another C library than glibc."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


class FreeMemory:
    """Gives memory that is free back to the kernel; the C library keeps it otherwise, for what never comes."""

    def __init__(self, resident: Callable[[], int] = _resident, trim: Callable[[], object] = give_memory_back) -> None:
        self._resident = resident
        self._trim = trim
        self._before = resident()

    async def give_back(self) -> None:
        """Give it back if this process has grown by `GROWN_BYTES` since the last time."""
        if self._resident() - self._before > GROWN_BYTES:
            await anyio.to_thread.run_sync(self._trim)
            self._before = self._resident()


class Shutdown:
    """The wish to stop: the first request drains, the second one hurries."""

    def __init__(self) -> None:
        self.requested = anyio.Event()
        self.hurried = anyio.Event()

    def request(self) -> None:
        """Ask for a stop; a second call asks for a quick one."""
        (self.hurried if self.requested.is_set() else self.requested).set()

    def check(self) -> None:
        """Raise `StoppedError` if a stop was requested, so that the next step does not begin."""
        if self.requested.is_set():
            raise StoppedError(BEFORE_ANYTHING)

    @asynccontextmanager
    async def stoppable(
        self, *, patience_seconds: float = 0, grace_seconds: float = 0, otherwise: str = BEFORE_ANYTHING
    ) -> AsyncIterator[None]:
        """Cut the block off ``patience_seconds`` after a stop is requested, or at once on a second request.

        A short block that is better finished gets ``grace_seconds`` on top, even on a second request. Raises
        `StoppedError` with the sentence ``otherwise`` when the block was cut off.
        """
        was_cut_off = False
        async with open_tasks() as tasks:

            async def cut_off() -> None:
                nonlocal was_cut_off
                await self.requested.wait()
                with anyio.move_on_after(patience_seconds):
                    await self.hurried.wait()
                await anyio.sleep(grace_seconds)
                was_cut_off = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(cut_off)
            yield
            tasks.cancel_scope.cancel()
        if was_cut_off:
            raise StoppedError(otherwise)
