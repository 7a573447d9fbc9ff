"""The machine and this process: the limit of descriptors, and the wish to stop.

`Shutdown` is the wish to stop as a value on which everything that waits can wait.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from claudeops.errors import StoppedError
from claudeops.tasks import open_tasks

MOST_DESCRIPTORS: Final = 65_536
"""Upper bound: sessions inherit the limit, and some programs walk through all of it, with a billion for minutes."""


_M_ARENA_MAX: Final = -8  # in malloc.h

BEFORE_ANYTHING: Final = "stopped before anything was started."


def share_one_heap() -> None:
    """Have all threads allocate from one heap, and give what is free at its end back; for a process of many threads.

    The C library gives each thread a heap of its own, up to eight for each processor, and each keeps what it has freed.
    Threads that hold Python's lock gain nothing by that. A library other than glibc has no such heaps.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Give the machine what was freed in between, which the C library keeps; takes a few milliseconds."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


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
