"""The part of the store that keeps house: what is too old goes, and SQLite's own log is cut."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine import URL, Engine

from claudeops.domain.retention import Aged, Cutoffs, Expired
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.database import border, make_room
from claudeops.store.expiry import Step, look, remove
from claudeops.store.writer import Writer

T = TypeVar("T")

_CUT_MILLISECONDS: Final = 100  # for readers to get out of the way of the log's cut


class SqlRetention:
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

    async def expire(self, aged: Aged, cutoffs: Cutoffs, *, now: datetime, rows: int) -> Expired:
        """Remove what is too old of a kind: what a reader found, in one short transaction."""
        found = await self._read(partial(look, aged=aged, cutoffs=cutoffs, limit=rows))
        if not found:
            return Expired()

        def step(connection: Connection) -> Expired:
            within = Step(rows=rows, awaited=self._writer.is_awaited)
            return remove(connection, aged, found, cutoffs=cutoffs, now=now, step=within)

        return await self._write(step)

    async def make_room(self) -> None:
        """Do what makes the first writes as quick as later ones; where that cannot be now, they are slower."""
        with suppress(DatabaseUnavailableError):
            await self._writer.run(self._grow_log)

    async def checkpoint(self) -> bool:
        """Write SQLite's log back into the database and cut it to its usual length."""
        if self._url.get_backend_name() != "sqlite":
            return True
        await self._read(_copy_log)  # most of the work, while others write
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
                cursor = connection.cursor()
                (usual,) = cursor.execute("PRAGMA busy_timeout").fetchone()
                # Whoever reads may read for long, and verdicts wait behind this.
                cursor.execute(f"PRAGMA busy_timeout = {_CUT_MILLISECONDS}")
                try:
                    busy, _, _ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    cursor.execute(f"PRAGMA busy_timeout = {usual}")
            finally:
                connection.close()
        return not busy


def _copy_log(connection: Connection) -> None:
    """Write as much of SQLite's log back as nobody is in the way of."""
    connection.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")  # not inside of a transaction either
