"""Tokens of those who call the daemon: made, listed, revoked, and when each was last used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, and_, bindparam, insert, or_, select, update

from claudeops.domain.access.tokens import ApiToken, NewToken
from claudeops.store.database import Database
from claudeops.store.events import note_deed
from claudeops.store.rows import TableRow
from claudeops.store.tables.web import api_tokens

_LAST_USED: Final = api_tokens.c.last_used_at
_USED: Final = (
    update(api_tokens)
    .where(api_tokens.c.id == bindparam("token"), or_(_LAST_USED.is_(None), bindparam("at") > _LAST_USED))
    .values(last_used_at=bindparam("at"))
)


class Tokens:
    """Tokens on record. Every method raises `StoreError` where the database does not take or give it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewToken) -> ApiToken:
        """Keep a token; its id is part of what its owner gets."""
        values = {
            "name": new.name,
            "scopes": " ".join(new.scopes),
            "digest": new.digest,
            "created_at": new.created_at,
            "created_by": new.created_by,
            "expires_at": new.expires_at,
        }

        def write(connection: Connection) -> ApiToken:
            key = connection.execute(insert(api_tokens).values(values)).inserted_primary_key
            assert key is not None  # noqa: S101 - an insert of one row has one
            made = f"{new.created_by} has made token {key[0]} for {new.name}: {', '.join(new.scopes)}"
            note_deed(connection, made, at=new.created_at)
            return _to_token(connection.execute(select(api_tokens).where(api_tokens.c.id == key[0])).one())

        return await self._database.write(write)

    async def known(self) -> Sequence[ApiToken]:
        """Return every token there ever was, the oldest first."""
        query = select(api_tokens).order_by(api_tokens.c.id)
        return await self._database.read(lambda connection: tuple(map(_to_token, connection.execute(query))))

    async def active(self, now: datetime) -> Mapping[int, ApiToken]:
        """Return the tokens that open something now, by id."""
        columns = api_tokens.c
        query = select(api_tokens).where(
            columns.revoked_at.is_(None), or_(columns.expires_at.is_(None), columns.expires_at > now)
        )
        return await self._database.read(
            lambda connection: {row.id: _to_token(row) for row in connection.execute(query)}
        )

    async def revoke(self, token_id: int, *, by: str, now: datetime) -> ApiToken | None:
        """Let a token open nothing from now on; ``None`` if there is none, or it is revoked already."""
        named = and_(api_tokens.c.id == token_id, api_tokens.c.revoked_at.is_(None))

        def write(connection: Connection) -> ApiToken | None:
            if not connection.execute(update(api_tokens).where(named).values(revoked_at=now, revoked_by=by)).rowcount:
                return None
            revoked = _to_token(connection.execute(select(api_tokens).where(api_tokens.c.id == token_id)).one())
            note_deed(connection, f"{by} has revoked token {token_id} for {revoked.name}", at=now)
            return revoked

        return await self._database.write(write)

    async def used(self, last: Mapping[int, datetime]) -> None:
        """Note when tokens were last used, by id; an earlier time changes nothing."""
        rows = [{"token": token, "at": at} for token, at in last.items()]

        def write(connection: Connection) -> None:
            connection.execute(_USED, rows)

        if rows:
            await self._database.write(write)


def _to_token(row: TableRow) -> ApiToken:
    return ApiToken(
        id=row.id,
        name=row.name,
        scopes=tuple(row.scopes.split()),
        digest=row.digest,
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        revoked_by=row.revoked_by or "",
        last_used_at=row.last_used_at,
    )
