"""Calls that are made once, however often a program sends them: what was answered is kept for a day.

The key is on record before anything is done, so that of two calls at once one is done. A daemon that ends in between
leaves a key without an answer: nothing is known of that call then, and it is not made again.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from claudeops.domain.retention import KEYS_KEPT
from claudeops.store.database import Database
from claudeops.store.tables.web import idempotency_keys

_COLUMNS: Final = idempotency_keys.c


class KeyState(StrEnum):
    """What is known of a key."""

    NEW = "new"  # the call may be made
    ANSWERED = "answered"
    UNKNOWN = "unknown"  # it is being made, or nothing is known of what came of it
    TAKEN = "taken"  # another call was made with it


class KeyedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call with a key, and what was answered to it."""

    id: int
    state: KeyState
    status: int = 0
    answer: str = ""  # JSON


class Idempotency:
    """Keys on record. Every method raises `StoreError` where the database does not take or give it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, caller: str, key: str, digest: str, *, now: datetime) -> KeyedCall:
        """Keep a key before its call is made; ``digest`` is of the call."""

        def write(connection: Connection) -> KeyedCall:
            connection.execute(delete(idempotency_keys).where(_COLUMNS.created_at <= now - KEYS_KEPT))
            named = select(idempotency_keys).where(_COLUMNS.caller == caller, _COLUMNS.key == key)
            row = connection.execute(named).one_or_none()
            if row is None:
                values = {"caller": caller, "key": key, "digest": digest, "created_at": now}
                made = connection.execute(insert(idempotency_keys).values(values)).inserted_primary_key
                assert made is not None  # noqa: S101 - an insert of one row has one
                return KeyedCall(id=made[0], state=KeyState.NEW)
            if row.digest != digest:
                return KeyedCall(id=row.id, state=KeyState.TAKEN)
            if row.status is None:
                return KeyedCall(id=row.id, state=KeyState.UNKNOWN)
            return KeyedCall(id=row.id, state=KeyState.ANSWERED, status=row.status, answer=row.answer or "")

        return await self._database.write(write)

    async def answered(self, call: KeyedCall, status: int, answer: str) -> None:
        """Keep what was answered."""
        values = {"status": status, "answer": answer}
        await self._database.write(
            lambda connection: connection.execute(update(idempotency_keys).where(_COLUMNS.id == call.id).values(values))
        )

    async def forget(self, call: KeyedCall) -> None:
        """Let a key be used again: nothing was done."""
        await self._database.write(
            lambda connection: connection.execute(delete(idempotency_keys).where(_COLUMNS.id == call.id))
        )
