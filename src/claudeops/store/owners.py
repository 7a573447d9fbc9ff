"""The part of the store that knows who runs what, and what the dead have left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection

from claudeops.domain.escalation import EscalationRules
from claudeops.domain.model import NewEvent, Owner, Session, ToolEnd
from claudeops.store import orphans

T = TypeVar("T")


class SqlOwners:
    """The part of `SqlStore` that knows who runs what."""

    if TYPE_CHECKING:

        async def _write(
            self,
            job: Callable[[Connection], T],
            *,
            urgent: bool = False,
            undo: Callable[[Connection, T], None] | None = None,
        ) -> T: ...
        async def _read(self, query: Callable[[Connection], T]) -> T: ...

    async def reconcile(self, owner: Owner, *, now: datetime, alive: Callable[[Owner], bool]) -> Sequence[Session]:
        """Register ``owner`` and take over what dead owners left; ``alive`` is called in the writer's thread."""
        return await self._write(partial(orphans.reconcile, owner=owner, now=now, alive=alive))

    async def mark_lost(
        self,
        session: Session,
        *,
        rules: EscalationRules,
        now: datetime,
        tool_ends: Sequence[ToolEnd] = (),
        events: Sequence[NewEvent] = (),
    ) -> Session:
        """End a session of which no result is known, and queue what follows."""
        return await self._write(
            partial(orphans.mark_lost, lost=session, rules=rules, tool_ends=tool_ends, events=events, now=now)
        )

    async def unrecovered_sessions(self) -> Sequence[Session]:
        """Return the lost sessions whose log was not taken up as a complete one."""
        return await self._read(orphans.lost)

    async def renew_lease(self, owner: Owner, *, now: datetime) -> frozenset[tuple[int, int]]:
        """Note that ``owner`` lives; return what it runs."""
        return await self._write(partial(orphans.renew_lease, owner=owner, now=now))

    async def skip_ids(self, highest: int) -> None:
        """Give no new session an id up to ``highest``."""
        await self._write(partial(orphans.skip_ids, highest=highest))

    async def depart(self, owner: Owner) -> None:
        """Remove ``owner`` from the running instances."""
        await self._write(partial(orphans.depart, owner=owner))
