"""The wish to stop, as a value that everything which waits can wait on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.errors import StoppedError
from claudeops.tasks import open_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


BEFORE_ANYTHING: Final = "stopped before anything was started."


class Shutdown:
    """A first request drains, a second one hurries."""

    def __init__(self) -> None:
        self.requested = anyio.Event()
        self.hurried = anyio.Event()

    def request(self) -> None:
        """Ask for a stop; asked again, for a quick one."""
        (self.hurried if self.requested.is_set() else self.requested).set()

    def check(self) -> None:
        """Raise `StoppedError` if a stop was requested: what comes next is not to begin."""
        if self.requested.is_set():
            raise StoppedError(BEFORE_ANYTHING)

    @asynccontextmanager
    async def stoppable(
        self, *, patience_seconds: float = 0, grace_seconds: float = 0, otherwise: str = BEFORE_ANYTHING
    ) -> AsyncIterator[None]:
        """Cut the block off when a stop is requested, or so much later, or when a second request comes.

        What is short and better finished gets ``grace_seconds`` on top, even when it has to hurry. Raises
        `StoppedError` with the sentence ``otherwise`` where it was cut off.
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
