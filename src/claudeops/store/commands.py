"""What operators ask of daemons: addressed to one, taken once, ended with what came of it.

What a daemon has taken, or what is for it alone, is another one's only when it is dead, which is when it has no row of
``instances``: never while it works on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, or_, select, update

from claudeops.domain.commands import Command, CommandName, StopTarget, stop_target
from claudeops.domain.sessions import Status
from claudeops.errors import StoreError
from claudeops.store.database import Database, unnoticed
from claudeops.store.rows import TableRow
from claudeops.store.tables.columns import Name
from claudeops.store.tables.daemon import commands, instances
from claudeops.store.tables.sessions import sessions

_UNENDED: Final = select(commands).where(commands.c.ended_at.is_(None)).order_by(commands.c.id)


def _is_gone(owner: ColumnElement[str | None]) -> ColumnElement[bool]:
    """Return the condition that a daemon is dead: whoever sees that it is removes its row of ``instances``."""
    return owner.is_not(None) & ~select(instances.c.owner).where(instances.c.owner == owner).exists()


_ME: Final = bindparam("me", type_=Name)
_FREE: Final = commands.c.taken_at.is_(None) | (_is_gone(commands.c.taken_by) & (commands.c.taken_by != _ME))
_WAITING: Final = _UNENDED.where(
    or_(commands.c.for_owner.is_(None), commands.c.for_owner == _ME, _is_gone(commands.c.for_owner)), _FREE
)
_TAKEN_BEFORE: Final = _UNENDED.where(commands.c.taken_at.is_not(None), commands.c.taken_by.is_(None))
"""Taken by a daemon of an earlier version, which left no name."""

_ONE: Final = select(commands).where(commands.c.id == bindparam("command"))


class Commands:
    """What operators ask of the running daemon, from other processes."""

    def __init__(self, database: Database, *, requested: Callable[[], None] = unnoticed) -> None:
        self._database = database
        self._requested = requested  # called in the caller's event loop when a command was written

    async def request(
        self, name: CommandName, *, by: str, now: datetime, arguments: Mapping[str, object] | None = None
    ) -> Sequence[int]:
        """Write a command to every daemon that it is for; return the ids, one at least.

        One that stops whatever runs is for each that has a row. One that names a session or a chain is for the daemon
        that runs it (the first of several: it passes it on). Where none is known, any daemon takes it.
        """
        encoded = msgspec.json.encode(dict(arguments or {})).decode()
        values = {"name": name.value, "arguments": encoded, "requested_by": by, "requested_at": now}

        def write(connection: Connection) -> Sequence[int]:
            if name is CommandName.STOP_SESSIONS:
                owners = connection.execute(select(instances.c.owner).order_by(instances.c.owner)).scalars().all()
            else:
                owners = _owners_of(connection, stop_target(arguments or {}))[:1]
            return [_add(connection, {**values, "for_owner": owner}) for owner in owners or [None]]

        command_ids = await self._database.write(write)
        self._requested()
        return command_ids

    async def pass_on(self, command: Command, *, owners: Collection[str], now: datetime) -> frozenset[str]:
        """Write a command once more for each of some daemons that live, unless it waits or is under way there.

        Returns those that live.
        """
        encoded = msgspec.json.encode(dict(command.arguments)).decode()
        values = {"name": command.name, "arguments": encoded, "requested_by": command.requested_by, "requested_at": now}
        same = (commands.c.name == command.name, commands.c.arguments == encoded)
        at_work = select(func.coalesce(commands.c.taken_by, commands.c.for_owner)).where(
            commands.c.ended_at.is_(None), *same
        )
        living = select(instances.c.owner).where(instances.c.owner.in_(owners)).order_by(instances.c.owner)

        def write(connection: Connection) -> frozenset[str]:
            known, found = set(connection.execute(at_work).scalars()), connection.execute(living).scalars().all()
            for owner in found:
                if owner not in known:
                    _add(connection, {**values, "for_owner": owner})
            return frozenset(found)

        return await self._database.write(write)

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

    async def take(self, owner: str, *, now: datetime, again: bool = False) -> Sequence[Command]:
        """Take the commands that are for the daemon of that name or for any, oldest first; no other caller gets them.

        Those of dead daemons are taken too: what was for them, and what they took and never ended, in which
        ``taken_at`` is set. ``again`` also takes what a daemon of an earlier version took. Where nothing waits nothing
        is written, for this is asked all the time.
        """
        queries = (_WAITING, _TAKEN_BEFORE) if again else (_WAITING,)
        me = {"me": owner}

        def is_anything_asked(connection: Connection) -> bool:
            return any(connection.execute(query.limit(1), me).first() is not None for query in queries)

        def take(connection: Connection) -> Sequence[Command]:
            rows = sorted((row for query in queries for row in connection.execute(query, me)), key=lambda row: row.id)
            taken = update(commands).where(commands.c.id.in_([row.id for row in rows]))
            connection.execute(taken.values(taken_at=now, taken_by=owner))
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


def _add(connection: Connection, values: Mapping[str, object]) -> int:
    key = connection.execute(insert(commands).values(values)).inserted_primary_key
    if key is None:
        raise StoreError("the database gave a new command no id.")
    return int(key.id)


def _owners_of(connection: Connection, target: StopTarget | None) -> Sequence[str]:
    """Return the daemons that live and run what is to be stopped, in the order of their sessions."""
    if target is None:
        return ()
    meant = (
        sessions.c.root_session_id == target.chain if target.session_id is None else sessions.c.id == target.session_id
    )
    running = select(sessions.c.owner).join(instances, instances.c.owner == sessions.c.owner)
    query = running.where(meant, sessions.c.status == Status.RUNNING.value).order_by(sessions.c.id)
    return [owner for owner in connection.execute(query).scalars() if owner is not None]


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
        for_owner=row.for_owner,
        taken_at=row.taken_at,
        ended_at=row.ended_at,
        result=row.result,
        error=row.error,
    )
