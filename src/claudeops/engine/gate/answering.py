"""The calls of this process that wait for a person's answer, and how they are woken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from claudeops.tasks import Waiter

LOOK_SECONDS: Final = 0.5
"""Between two looks for an answer, where nothing wakes a call after another process has written one."""


class AnswerWaker(msgspec.Struct, kw_only=True):
    """Wakes the calls of this process that wait for an answer; for one event loop."""

    look_seconds: float = LOOK_SECONDS
    _waiting: dict[int, Waiter] = msgspec.field(default_factory=dict)

    @contextmanager
    def listening(self, approval_id: int) -> Iterator[Waiter]:
        """Listen for news of a question while the block runs."""
        self._waiting[approval_id] = waiter = Waiter(longest_seconds=self.look_seconds)
        try:
            yield waiter
        finally:
            self._waiting.pop(approval_id, None)

    def wake(self, approval_id: int) -> None:
        """Wake whoever waits for an answer to this question, if anybody does."""
        if (waiter := self._waiting.get(approval_id)) is not None:
            waiter.wake()

    def wake_all(self) -> None:
        """Wake all of them: another process may have written an answer to any."""
        for waiter in self._waiting.values():
            waiter.wake()
