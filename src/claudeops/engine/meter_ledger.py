"""Ends of model calls that the database did not take: kept, counted all the same, and written when it is back.

A call is over when it is over, whatever the database does. Its row goes on to count with the most that it can cost
until its end is written; so whoever asks for the next call brings along what is owed, and both are written in one
transaction, the ends first. Nobody waits for money that his own last call no longer holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from claudeops.errors import StoreError
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from collections.abc import Collection

    from claudeops.domain.budget import CallState
    from claudeops.engine.ports import Store
    from claudeops.logs import Logger

BOOK_SECONDS: Final = 5.0
"""A state that is not written by then is owed, if it is the last one of its call."""

RETRY_FIRST_SECONDS: Final = 0.5
RETRY_LONGEST_SECONDS: Final = 10.0


class Ledger:
    """What one meter has booked and what it owes; states by the ids of their calls."""

    def __init__(self, store: Store, log: Logger) -> None:
        self._store = store
        self._log = log
        self._owed: dict[int, CallState] = {}
        self._grown = anyio.Event()

    @property
    def owed(self) -> tuple[CallState, ...]:
        """The ends that are not written yet."""
        return tuple(self._owed.values())

    def owed_of(self, calls: Collection[int]) -> tuple[CallState, ...]:
        """Return the ends of some calls that are not written yet."""
        return tuple(state for call, state in self._owed.items() if call in calls)

    async def note(self, state: CallState) -> None:
        """Write how a call that goes on stands; what cannot be written of it is written at its end."""
        await self._book(state)

    async def end(self, state: CallState) -> None:
        """Write how a call ended, whoever is cancelled; bounded. What the database does not take is owed."""
        with anyio.CancelScope(shield=True):
            if not await self._book(state):
                self._owed[state.id] = state
                self._grown.set()

    def settled(self, states: Collection[CallState]) -> None:
        """Note that somebody else has written them."""
        for state in states:
            self._owed.pop(state.id, None)

    async def run(self) -> None:
        """Write what is owed until cancelled, as soon as the database takes it."""
        while True:
            await self._grown.wait()
            self._grown = anyio.Event()
            delay = RETRY_FIRST_SECONDS
            while self._owed:
                await anyio.sleep(delay)
                delay = min(delay * 2, RETRY_LONGEST_SECONDS)
                await self._write_owed()
            self._log.info(LogEvent.DATABASE_RECOVERED, while_doing="book")

    async def _write_owed(self) -> None:
        for state in self.owed:
            if not await self._book(state):
                return
            self.settled((state,))

    async def _book(self, state: CallState) -> bool:
        try:
            with anyio.fail_after(BOOK_SECONDS):
                await self._store.book_model_call(state)
        except (StoreError, TimeoutError) as error:
            self._log.error(LogEvent.DATABASE_UNAVAILABLE, while_doing="book", error=str(error))
            return False
        return True
