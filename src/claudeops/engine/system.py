"""The machine and this process: the clock, the limit of descriptors, the daemon's identity, and the wish to stop.

An `Owner` tells this process apart from every other that ever ran here. `Shutdown` is the wish to stop as a value on
which everything that waits can wait.
"""

from __future__ import annotations

import os
import resource
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import psutil

from claudeops.domain.model import Owner
from claudeops.errors import StoppedError
from claudeops.tasks import open_tasks

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
MOST_DESCRIPTORS: Final = 65_536
"""Upper bound: sessions inherit the limit, and some programs walk through all of it, with a billion for minutes."""

_SAME_START_SECONDS: Final = 1.0  # clock ticks, and a database's rounding

BEFORE_ANYTHING: Final = "stopped before anything was started."


class SystemClock:
    """The `Clock` port over the machine's own clocks."""

    def now(self) -> datetime:
        """Return the wall clock, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


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


def this_owner() -> Owner:
    """Return this process as an owner of sessions; every call gives it a new name."""
    return Owner(
        name=uuid.uuid4().hex,
        pid=os.getpid(),
        process_started_at=psutil.Process().create_time(),
        boot_id=_boot_id(),
    )


def alive(owner: Owner) -> bool:
    """Return whether an owner's process still runs on this machine, since the same boot.

    An owner on another machine counts as dead: only one daemon works on a database at a time.
    """
    if owner.boot_id != _boot_id():
        return False
    try:
        process = psutil.Process(owner.pid)
        return (
            abs(process.create_time() - owner.process_started_at) < _SAME_START_SECONDS
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


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


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
