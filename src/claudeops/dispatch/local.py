"""The dispatcher of a daemon that is alone on its database: it wakes waiters within the process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

IsUnannounced: TypeAlias = Callable[[str, str | None], Awaitable[bool]]
"""Returns whether a session is due that no job of a queue announces, which is that of a site, or of none.

Raises `StoreError`."""


class LocalDispatcher:
    """A `claudeops.engine.ports.Dispatcher` for one process and one event loop.

    An announcement wakes every waiter. When nobody waits, it is kept, and the next `wait` returns at once. Several kept
    announcements count as one, because a waiter looks for everything that is queued.
    """

    def __init__(self, *, interval_seconds: float = 1.0) -> None:
        self._interval_seconds = interval_seconds
        self._announced = anyio.Event()

    async def announce(self) -> None:
        """Announce that a session was queued."""
        self._announced.set()

    def wake(self) -> None:
        """Announce it where nothing can be awaited."""
        self._announced.set()

    async def run(self, is_unannounced: IsUnannounced) -> None:
        """Return at once: what is announced within the process has no need of a listener."""

    async def wait(self) -> None:
        """Return after an `announce`, and at the latest after ``interval_seconds``."""
        announced = self._announced
        with anyio.move_on_after(self._interval_seconds):
            await announced.wait()
        # The first waiter to wake makes room for the next announcement. A cancelled waiter does not get here: the
        # announcement that it would have consumed stays for the next one.
        if announced.is_set() and self._announced is announced:
            self._announced = anyio.Event()
