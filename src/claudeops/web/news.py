"""Wakes those who wait for news, a few at a time: what else the event loop has to do comes in between.

A hundred readers that are woken in one turn of the loop take it for ten milliseconds, ten times a second, and a tool
call that waits for the gate waits for them all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import anyio

AT_ONCE: Final = 5
"""Who are woken in one turn; each takes about a tenth of a millisecond."""

PAUSE_SECONDS: Final = 0.001
"""Between those and the next; a timer of the loop takes up to two milliseconds for it."""


class NewsFeed:
    """What some wait for. Everything happens on one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[anyio.Event, None] = {}  # in the order in which they came
        self._due: deque[anyio.Event] = deque()  # there is news for them

    async def wait(self) -> None:
        """Wait until there is news after this moment."""
        mine = anyio.Event()
        self._waiting[mine] = None
        try:
            await mine.wait()
        finally:
            self._waiting.pop(mine, None)

    def tell(self) -> None:
        """Wake everybody who waits now, the one who has waited for longest first."""
        is_telling = bool(self._due)
        self._due.extend(self._waiting)
        self._waiting.clear()
        if not is_telling:
            self._wake()

    def tell_one(self) -> None:
        """Wake the one who has waited for longest."""
        if self._waiting:
            mine = next(iter(self._waiting))
            del self._waiting[mine]
            mine.set()

    def _wake(self) -> None:
        for _ in range(min(AT_ONCE, len(self._due))):
            self._due.popleft().set()
        if self._due:
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._wake)
