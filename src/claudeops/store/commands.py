"""What operators ask of the daemon: asked for, taken once, ended with what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, select, update

from claudeops.domain.commands import Command, CommandName
from claudeops.errors import StoreError
from claudeops.store.database import Database, unnoticed
from claudeops.store.rows import TableRow
from claudeops.store.tables.daemon import commands

_UNENDED: Final = select(commands).where(commands.c.ended_at.is_(None)).order_by(commands.c.id)
_UNTAKEN: Final = _UNENDED.where(commands.c.taken_at.is_(None))
_ONE: Final = select(commands).where(commands.c.id == bindparam("command"))


class Commands:
    """What operators ask of the running daemon, from other processes."""

    def __init__(self, database: Database, *, requested: Callable[[], None] = unnoticed) -> None:
        self._database = database
        self._requested = requested  # called in the caller's event loop when a command was written

    async def request(
        self, name: CommandName, *, by: str, now: datetime, arguments: Mapping[str, object] | None = None
    ) -> int:
        """Write a command to the daemon; return its id."""
        encoded = msgspec.json.encode(dict(arguments or {})).decode()
        asked = {"name": name.value, "arguments": encoded, "requested_by": by, "requested_at": now}

        def write(connection: Connection) -> int:
            key = connection.execute(insert(commands).values(asked)).inserted_primary_key
            if key is None:
                raise StoreError("the database gave a new command no id.")
            return int(key.id)

        command_id = await self._database.write(write)
        self._requested()
        return command_id

    async def find(self, command_id: int) -> Command | None:
        """Return a command as it stands; ``None`` if there is none."""

        def look(connection: Connection) -> Command | None:
            row = connection.execute(_ONE, {"command": command_id}).one_or_none()
            return None if row is None else _to_command(row)

        return await self._database.read(look)

    async def withdraw(self, command_id: int, *, why: str, now: datetime) -> bool:
        """End a command that no daemon has taken, with ``why`` as its error; ``False``: one was faster."""
        ended = (
            update(commands)
            .where(commands.c.id == command_id, commands.c.taken_at.is_(None), commands.c.ended_at.is_(None))
            .values(ended_at=now, error=why)
        )
        return await self._database.write(lambda connection: connection.execute(ended).rowcount == 1)

    async def take(self, *, now: datetime, again: bool = False) -> Sequence[Command]:
        """Take the commands that were not taken yet, oldest first; no other caller gets them.

        ``again`` also takes those that an earlier daemon took and never ended; in them ``taken_at`` is set. Where
        nothing waits nothing is written, for this is asked all the time.
        """
        waiting = _UNENDED if again else _UNTAKEN

        def is_anything_asked(connection: Connection) -> bool:
            return connection.execute(waiting.limit(1)).first() is not None

        def take(connection: Connection) -> Sequence[Command]:
            rows = connection.execute(waiting).all()
            connection.execute(update(commands).where(commands.c.id.in_([row.id for row in rows])).values(taken_at=now))
            return tuple(map(_to_command, rows))

        return await self._database.write(take) if await self._database.read(is_anything_asked) else ()

    async def finish(
        self, command_id: int, *, taken_at: datetime, result: str | None, error: str | None, now: datetime
    ) -> bool:
        """Write what came of a command, or why nothing did; ``False``: it was taken again since ``taken_at``."""
        ended = (
            update(commands)
            .where(commands.c.id == command_id, commands.c.taken_at == taken_at)
            .values(ended_at=now, result=result, error=error)
        )
        return await self._database.write(lambda connection: connection.execute(ended).rowcount == 1)


def _to_command(row: TableRow) -> Command:
    """Return a row as a value; arguments that cannot be read count as none, so that their command is refused."""
    try:
        arguments = msgspec.json.decode(row.arguments, type=dict[str, object])
    except msgspec.MsgspecError:
        arguments = {}
    return Command(
        id=row.id,
        name=row.name,
        arguments=arguments,
        requested_by=row.requested_by,
        requested_at=row.requested_at,
        taken_at=row.taken_at,
        ended_at=row.ended_at,
        result=row.result,
        error=row.error,
    )
