"""Deletion of sessions by an operator.

The record of tool calls leaves the tombstones that `claudeops.store.retention` leaves, money that was spent stays
booked, and events and memories stay without naming the session. A session whose actions still count towards a limit is
kept: deleting it would hand the limit back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, or_, select

from claudeops.domain.sessions import Status
from claudeops.store.calls import bury
from claudeops.store.database import Database
from claudeops.store.retention import clear_references, references
from claudeops.store.tables.sessions import cooldown_actions, sessions

DELETED: Final = "deleted"
"""The reason on the tombstones."""


class NotDeleted(StrEnum):
    """Why nothing was deleted."""

    UNKNOWN = "unknown"  # there is no such session
    UNDER_WAY = "under_way"  # it runs, or waits in the queue
    FOLLOWED = "followed"  # sessions followed from it, and they were not to go too
    COUNTS = "counts"  # its actions still count towards a limit


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a wish to delete."""

    kept: NotDeleted | None = None  # None: it is gone
    session_ids: tuple[int, ...] = ()  # those that are gone, or that are in the way
    log_paths: tuple[str, ...] = ()  # of those that are gone
    log_nodes: tuple[str | None, ...] = ()  # the machines that have written these


class Deletions:
    """Deletes sessions; for operators, over SQLite or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete(self, session_id: int, *, chain: bool, counted_since: datetime, now: datetime) -> Deletion:
        """Delete a session, or its whole chain, in one transaction; actions after ``counted_since`` may still count."""

        def work(connection: Connection) -> Deletion:
            wanted = _wanted(connection, session_id, chain=chain)
            kept = _in_the_way(connection, wanted, counted_since=counted_since)
            return kept or _deleted(connection, wanted, now=now)

        return await self._database.write(work)


def _wanted(connection: Connection, session_id: int, *, chain: bool) -> Sequence[int]:
    root = connection.execute(
        select(sessions.c.root_session_id).where(sessions.c.id == session_id)
    ).scalar_one_or_none()
    if root is None:
        return []
    if not chain:
        return [session_id]
    members = select(sessions.c.id).where(sessions.c.root_session_id == root).order_by(sessions.c.id)
    return connection.execute(members).scalars().all()


def _in_the_way(connection: Connection, wanted: Sequence[int], *, counted_since: datetime) -> Deletion | None:
    if not wanted:
        return Deletion(kept=NotDeleted.UNKNOWN)
    under_way = select(sessions.c.id).where(sessions.c.id.in_(wanted), sessions.c.status != Status.ENDED.value)
    followed = select(sessions.c.id).where(
        or_(sessions.c.parent_session_id.in_(wanted), sessions.c.root_session_id.in_(wanted)),
        sessions.c.id.not_in(wanted),
    )
    counts = select(cooldown_actions.c.session_id).where(
        cooldown_actions.c.session_id.in_(wanted),
        cooldown_actions.c.cleared_at.is_(None),
        cooldown_actions.c.timestamp > counted_since,
    )
    for why, query in ((NotDeleted.UNDER_WAY, under_way), (NotDeleted.FOLLOWED, followed), (NotDeleted.COUNTS, counts)):
        if found := connection.execute(query.distinct()).scalars().all():
            return Deletion(kept=why, session_ids=tuple(sorted(found)))
    return None


def _deleted(connection: Connection, wanted: Sequence[int], *, now: datetime) -> Deletion:
    own = sessions.c
    logs = select(own.log_path, own.log_node).where(own.id.in_(wanted), own.log_path.is_not(None))
    logged = connection.execute(logs).all()
    bury(connection, wanted, reason=DELETED, at=now)
    for column in references(sessions):
        if column.table is not sessions:
            clear_references(connection, column, wanted)
    connection.execute(delete(sessions).where(sessions.c.id.in_(wanted)))
    return Deletion(
        session_ids=tuple(wanted),
        log_paths=tuple(row.log_path for row in logged),
        log_nodes=tuple(row.log_node for row in logged),
    )
