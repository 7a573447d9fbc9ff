"""The part of the store that keeps house: what is too old goes, and SQLite's own log is cut."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from claudeops.errors import DatabaseUnavailableError
from claudeops.store.connections import border, make_room
from claudeops.store.expiry import expire

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import Connection
    from sqlalchemy.engine import URL, Engine

    from claudeops.domain.expiry import Cutoffs, Expired
    from claudeops.store.worker import Writer

T = TypeVar("T")


class SqlKeeping:
    """The part of `SqlStore` that keeps house."""

    _url: URL
    _writing: Engine
    _writer: Writer
    if TYPE_CHECKING:

        async def _write(
            self,
            job: Callable[[Connection], T],
            *,
            urgent: bool = False,
            undo: Callable[[Connection, T], None] | None = None,
        ) -> T: ...
        async def _read(self, query: Callable[[Connection], T]) -> T: ...

    async def expire(self, cutoffs: Cutoffs, *, now: datetime, chains: int) -> Expired:
        """Remove what is too old."""
        return await self._write(partial(expire, cutoffs=cutoffs, now=now, chains=chains))

    async def make_room(self) -> None:
        """Do what makes the first writes as quick as later ones; where that cannot be now, they are slower."""
        with suppress(DatabaseUnavailableError):
            await self._writer.run(self._grow_log)

    async def checkpoint(self) -> bool:
        """Write SQLite's log back into the database and cut it to its usual length."""
        if self._url.get_backend_name() != "sqlite":
            return True
        if not await self._writer.run(self._cut_log):
            return False
        await self.make_room()
        return True

    def _grow_log(self) -> None:
        with border(self._url):
            make_room(self._writing)

    def _cut_log(self) -> bool:
        # Not inside of a transaction, which would be in its own way.
        with border(self._url):
            connection = self._writing.raw_connection()
            try:
                busy, _, _ = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.close()
        return not busy
