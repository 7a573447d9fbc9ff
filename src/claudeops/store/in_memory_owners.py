"""The part of the store without a database that knows who runs what, and what the dead have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.store import in_memory_orphans as orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from claudeops.domain.model import EscalationRules, NewEvent, Owner, Session, ToolEnd
    from claudeops.store.in_memory_tables import PlainTables


class InMemoryOwners:
    """The part of `InMemoryStore` that knows who runs what."""

    tables: PlainTables
    _transaction: Callable[[], AbstractAsyncContextManager[None]]

    async def reconcile(self, owner: Owner, *, now: datetime, alive: Callable[[Owner], bool]) -> Sequence[Session]:
        """Register ``owner`` and take over what dead owners left."""
        async with self._transaction():
            return orphans.reconcile(self.tables, owner, now=now, alive=alive)

    async def lose(
        self,
        session: Session,
        *,
        rules: EscalationRules,
        now: datetime,
        tool_ends: Sequence[ToolEnd] = (),
        events: Sequence[NewEvent] = (),
    ) -> Session:
        """End a session of which no result is known, and queue what follows."""
        async with self._transaction():
            return orphans.lose(self.tables, session, rules=rules, tool_ends=tool_ends, events=events, now=now)

    async def lost(self) -> Sequence[Session]:
        """Return the lost sessions whose log was not taken up as a complete one."""
        async with self._transaction():
            return orphans.lost(self.tables)

    async def keep(self, owner: Owner, *, now: datetime) -> frozenset[tuple[int, int]]:
        """Note that ``owner`` lives; return what it runs."""
        async with self._transaction():
            return orphans.keep(self.tables, owner, now=now)

    async def skip_ids(self, highest: int) -> None:
        """Give no new session an id up to ``highest``."""
        async with self._transaction():
            self.tables.skip_ids("sessions", highest)

    async def depart(self, owner: Owner) -> None:
        """Remove ``owner`` from the running instances."""
        async with self._transaction():
            self.tables.delete("instances", lambda row: row.owner == owner.name)
