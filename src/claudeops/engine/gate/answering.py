"""The calls of this process that wait for a person's answer, and how they are woken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio


@dataclass(kw_only=True, slots=True)
class Listening:
    """A call that waits for news of its question."""

    _news: anyio.Event = field(default_factory=anyio.Event)

    def tell(self) -> None:
        """Say that there is news."""
        self._news.set()

    async def pause(self, seconds: float) -> None:
        """Return after some seconds, or at once when there is news, also if it came before this was called."""
        with anyio.move_on_after(seconds):
            await self._news.wait()
        self._news = anyio.Event()


@dataclass(kw_only=True, slots=True)
class AnswerWaker:
    """Wakes the calls of this process that wait for an answer; for one event loop."""

    _waiting: dict[int, Listening] = field(default_factory=dict)

    @contextmanager
    def listening(self, approval_id: int) -> Iterator[Listening]:
        """Listen for news of a question while the block runs."""
        self._waiting[approval_id] = listening = Listening()
        try:
            yield listening
        finally:
            self._waiting.pop(approval_id, None)

    def wake(self, approval_id: int) -> None:
        """Wake whoever waits for an answer to this question, if anybody does."""
        if (listening := self._waiting.get(approval_id)) is not None:
            listening.tell()
