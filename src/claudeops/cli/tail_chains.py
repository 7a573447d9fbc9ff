"""Every chain that runs, and every one that starts later: told side by side until somebody has seen enough."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.model import Status
from claudeops.errors import DatabaseUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from claudeops.cli.tail import Tail
    from claudeops.domain.account import Place
    from claudeops.domain.model import Session

LOOK_SECONDS: Final = 1.0
"""Between two looks for what has started."""


async def begun(tail: Tail) -> list[Session]:
    """Return the first sessions of the chains that run, oldest first; of the newest chain where none does."""
    newest = await tail.store.newest()
    if newest is None:
        return []
    running = [place.chain for place in await tail.store.under_way(newest.id) if place.status is Status.RUNNING]
    roots = sorted(set(running)) or [newest.root_session_id]
    return [root for number in roots if (root := await tail.store.session(number)) is not None]


@dataclass(kw_only=True)
class Chains:
    """Follows what there is and what is to come."""

    tail: Tail  # that follows
    idle: Callable[[], None]  # called whenever nothing is left to tell for the moment
    _followed: dict[int, int] = field(default_factory=dict)  # chain: the session with which its telling began
    _told: dict[int, int] = field(default_factory=dict)  # chain: the last session that was told
    _after: int = 0  # everything up to this id has been told, or had begun before the first look

    async def run(self) -> None:
        """Follow until cancelled, or nobody reads any more.

        Raises `DatabaseUnavailableError` where the database is away at the beginning; later on it is waited for.
        """
        await self._leave_out_what_is_over()
        roots = await begun(self.tail)
        async with anyio.create_task_group() as tasks:
            for root in roots:
                self._followed[root.id] = root.id
                tasks.start_soon(self._follow, root)
            if not roots:
                self.idle()
            while not self.tail.sink.broken:
                await anyio.sleep(LOOK_SECONDS)
                with suppress(DatabaseUnavailableError):
                    for session in await self._started(await self.tail.store.under_way(self._after)):
                        self._followed[session.root_session_id] = session.id
                        tasks.start_soon(self._follow, session)

    async def _leave_out_what_is_over(self) -> None:
        """Count as told what had ended by now, also where it is younger than what still waits in the queue."""
        newest = await self.tail.store.newest()
        self._after = 0 if newest is None else newest.id
        self._forget(await self.tail.store.under_way(self._after), {})
        for place in await self.tail.store.under_way(self._after):
            if place.status is Status.ENDED:
                self._told[place.chain] = place.session_id

    async def _started(self, places: Sequence[Place]) -> list[Session]:
        """Return where to begin in each chain that has something new to tell and is not followed yet."""
        new: dict[int, int] = {}
        for place in places:
            untold = place.session_id > self._told.get(place.chain, 0)
            if place.status is not Status.QUEUED and untold and place.chain not in self._followed:
                new.setdefault(place.chain, place.session_id)
        self._forget(places, new)
        found = [await self.tail.store.session(number) for number in new.values()]
        return [session for session in found if session is not None]

    def _forget(self, places: Sequence[Place], new: dict[int, int]) -> None:
        """Move on behind what was told: what waits in the queue may have come and gone by the next look."""
        queued = [place.session_id for place in places if place.status is Status.QUEUED]
        pending = [*queued, *self._followed.values(), *new.values()]
        last = max([self._after, *(place.session_id for place in places)])
        self._after = min(pending) - 1 if pending else last
        self._told = {chain: told for chain, told in self._told.items() if told > self._after}

    async def _follow(self, session: Session) -> None:
        chain = session.root_session_id
        self._told[chain] = await self.tail.run(session)
        del self._followed[chain]
        if not self._followed and not self.tail.sink.broken:
            self.idle()
