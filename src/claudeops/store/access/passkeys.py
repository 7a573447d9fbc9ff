"""Passkeys of users: added and removed; what each has signed stands with the answers (`claudeops.store.approvals`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from claudeops.domain.gate.passkey import NewPasskey, Passkey
from claudeops.store.database import Database
from claudeops.store.events import note_deed
from claudeops.store.rows import TableRow
from claudeops.store.tables.web import passkeys

MOST: Final = 20
"""Passkeys of one user."""


class PasskeyStore:
    """Passkeys on record. Every method raises `StoreError` where the database does not take or give it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_user(self, user_id: int) -> Sequence[Passkey]:
        """Return the passkeys of a user, the oldest first."""
        query = select(passkeys).where(passkeys.c.user_id == user_id).order_by(passkeys.c.id)

        def read(connection: Connection) -> Sequence[Passkey]:
            return [_to_passkey(row) for row in connection.execute(query)]

        return await self._database.read(read)

    async def add(self, new: NewPasskey, *, by: str) -> Passkey | None:
        """Add a passkey; None: it is there already, or the user has `MOST` of them."""
        of_user = select(func.count()).where(passkeys.c.user_id == new.user_id)
        same = select(passkeys.c.id).where(passkeys.c.credential_id == new.credential_id)
        values = {
            "user_id": new.user_id,
            "name": new.name,
            "rp_id": new.rp_id,
            "credential_id": new.credential_id,
            "public_key": new.public_key,
            "sign_count": new.sign_count,
            "created_at": new.created_at,
        }

        def write(connection: Connection) -> Passkey | None:
            is_full = connection.execute(of_user).scalar_one() >= MOST
            if is_full or connection.execute(same).first() is not None:
                return None
            key = connection.execute(insert(passkeys).values(values)).inserted_primary_key
            assert key is not None  # noqa: S101 - an insert of one row has one
            note_deed(connection, f"{by} has added the passkey {new.name}", at=new.created_at)
            return _to_passkey(connection.execute(select(passkeys).where(passkeys.c.id == key[0])).one())

        return await self._database.write(write)

    async def remove(self, passkey_id: int, *, user_id: int, by: str, now: datetime) -> Passkey | None:
        """Remove a passkey of a user; None: the user has none of this id."""
        named = (passkeys.c.id == passkey_id) & (passkeys.c.user_id == user_id)

        def write(connection: Connection) -> Passkey | None:
            row = connection.execute(select(passkeys).where(named)).one_or_none()
            if row is None:
                return None
            connection.execute(delete(passkeys).where(named))
            note_deed(connection, f"{by} has removed the passkey {row.name}", at=now)
            return _to_passkey(row)

        return await self._database.write(write)


def _to_passkey(row: TableRow) -> Passkey:
    return Passkey(
        id=row.id,
        user_id=row.user_id,
        name=row.name,
        rp_id=row.rp_id,
        credential_id=row.credential_id,
        public_key=row.public_key,
        sign_count=row.sign_count,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
    )
