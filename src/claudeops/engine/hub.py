"""What sessions do, told live to any number of readers within the process.

Telling never waits: a reader that is too slow loses its oldest facts, and is told how many. Without a reader a
fact costs one look at an empty tuple; who has to work to make one asks `Hub.listening` first.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.live import LinesLost
from claudeops.logs import LogEvent, get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from claudeops.domain.live import LiveFact

KEPT: Final = 1000
"""Facts that wait for a reader; a session of half an hour has about so many."""


class Subscription:
    """One reader's view: facts in order, and a mark where some were lost. For one reader; from any thread."""

    def __init__(self, kept: int, wake: Callable[[], None]) -> None:
        self._facts: deque[LiveFact] = deque(maxlen=kept)
        self._lost = 0
        self._lock = threading.Lock()  # held for a few instructions: the sessions' event loop takes it too
        self._wake = wake
        self._arrived = anyio.Event()

    def give(self, fact: LiveFact) -> None:
        """Take one fact; of too many the oldest goes. On the event loop only."""
        with self._lock:
            if len(self._facts) == self._facts.maxlen:
                self._lost += 1
            self._facts.append(fact)
        self._arrived.set()
        self._wake()

    def take(self) -> LiveFact | None:
        """Return the next fact, or `LinesLost` where some are missing before it; ``None``: nothing new."""
        with self._lock:
            if self._lost:
                lost, self._lost = self._lost, 0
                return LinesLost(at=self._facts[0].at, count=lost)
            return self._facts.popleft() if self._facts else None

    async def receive(self) -> LiveFact:
        """Wait for the next fact. The waiter's task group bounds the wait."""
        while (fact := self.take()) is None:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return fact


def _nobody() -> None:
    return


class Hub:
    """Hands every fact to every reader there is. All on one event loop, the one of the sessions."""

    def __init__(self) -> None:
        self._readers: tuple[Subscription, ...] = ()

    @property
    def listening(self) -> bool:
        """Whether anybody reads; what nobody reads need not be made."""
        return bool(self._readers)

    def publish(self, fact: LiveFact) -> None:
        """Give a fact to all readers. Never waits, never raises: what is told has happened, heard or not."""
        for reader in self._readers:
            try:
                reader.give(fact)
            except Exception as error:  # noqa: BLE001 - see above
                get_logger().error(LogEvent.LISTENER_FAILED, error=f"{type(error).__name__}: {error}")

    def from_threads(self) -> Callable[[LiveFact], None]:
        """Return what publishes from other threads; to be called on the event loop of the sessions."""
        loop = asyncio.get_running_loop()

        def publish(fact: LiveFact) -> None:
            if self.listening:
                loop.call_soon_threadsafe(self.publish, fact)

        return publish

    @contextmanager
    def subscribe(self, *, kept: int = KEPT, wake: Callable[[], None] = _nobody) -> Iterator[Subscription]:
        """Read from now on until the block is left; ``wake`` is called on the event loop when something came."""
        reader = Subscription(kept, wake)
        self._readers = (*self._readers, reader)
        try:
            yield reader
        finally:
            self._readers = tuple(other for other in self._readers if other is not reader)
