"""The part of the store without a database that keeps house."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain.expiry import Expired
from claudeops.store.in_memory_expiry import expire

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from claudeops.domain.expiry import Aged, Cutoffs
    from claudeops.store.in_memory_tables import PlainTables


class InMemoryKeeping:
    """The part of `InMemoryStore` that keeps house."""

    tables: PlainTables
    _transaction: Callable[[], AbstractAsyncContextManager[None]]

    async def expire(self, aged: Aged, cutoffs: Cutoffs, *, now: datetime, rows: int) -> Expired:
        """Remove what is too old of a kind."""
        async with self._transaction():
            done = expire(self.tables, aged, cutoffs=cutoffs, now=now, rows=rows)
            return Expired(done=done, more=done > 0)

    async def checkpoint(self) -> bool:
        """Do nothing: there is no log."""
        async with self._transaction():
            return True
