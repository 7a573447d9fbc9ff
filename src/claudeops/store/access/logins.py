"""Logins of people: links are made and used, logins begin, are used and end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, delete, insert, or_, select, update

from claudeops.domain.access.logins import IDLE, LONGEST, Login, LoginLink, NewLogin, Role
from claudeops.domain.access.users import User
from claudeops.store.database import Database
from claudeops.store.events import note_deed
from claudeops.store.rows import TableRow
from claudeops.store.tables.web import login_links, users, web_sessions

_USED: Final = (
    update(web_sessions)
    .where(web_sessions.c.id == bindparam("login"), bindparam("at") > web_sessions.c.last_used_at)
    .values(last_used_at=bindparam("at"))
)


class StoredLogins:
    """Logins on record. Every method raises `StoreError` where the database does not take or give it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.changes = 0  # logins that began or ended by way of us

    async def make_link(self, link: LoginLink) -> None:
        """Keep a link; those that are over go."""
        values = {
            "name": link.name,
            "role": link.role.value,
            "digest": link.digest,
            "created_at": link.created_at,
            "expires_at": link.expires_at,
            "user_id": link.user_id,
        }

        def write(connection: Connection) -> None:
            connection.execute(delete(login_links).where(login_links.c.expires_at <= link.created_at))
            connection.execute(insert(login_links).values(values))

        await self._database.write(write)

    async def use_link(self, digest: str, new: NewLogin) -> Login | None:
        """Begin the login that a link is for; None: there is no such link, it was used, or it is over."""
        used = login_links.c.digest == digest

        def write(connection: Connection) -> Login | None:
            link = connection.execute(select(login_links).where(used)).one_or_none()
            connection.execute(delete(login_links).where(used))
            if link is None or link.expires_at <= new.at:
                return None
            if link.user_id is None:
                return _begin(connection, link.name, Role(link.role), new)
            user = connection.execute(_active_user(link.user_id)).one_or_none()
            return None if user is None else _begin(connection, user.name, Role(user.role), new, user_id=user.id)

        begun = await self._database.write(write)
        self.changes += 1
        return begun

    async def log_in(self, user: User, new: NewLogin) -> Login | None:
        """Begin the login of a user whose password was right; None: the user is not as it was then."""
        if user.password_hash is None:
            return None
        named = _active_user(user.id).where(users.c.password_hash == user.password_hash)

        def write(connection: Connection) -> Login | None:
            found = connection.execute(named).one_or_none()
            return None if found is None else _begin(connection, found.name, Role(found.role), new, user_id=found.id)

        begun = await self._database.write(write)
        self.changes += 1
        return begun

    async def log_in_by(self, provider: str, user: User, new: NewLogin) -> Login | None:
        """Begin the login of a user for whom a provider vouches; None: the user was removed."""

        def write(connection: Connection) -> Login | None:
            found = connection.execute(_active_user(user.id)).one_or_none()
            if found is None:
                return None
            return _begin(connection, found.name, Role(found.role), new, user_id=found.id, way=f" by {provider}")

        begun = await self._database.write(write)
        self.changes += 1
        return begun

    async def active(self, now: datetime) -> Mapping[str, Login]:
        """Return the logins that open something now, by the digest of their cookie; users have the role of now."""
        columns = web_sessions.c
        query = (
            select(web_sessions, users.c.role.label("users_role"))
            .outerjoin(users, users.c.id == columns.user_id)
            .where(
                columns.ended_at.is_(None),
                columns.expires_at > now,
                columns.last_used_at > now - IDLE,
                or_(columns.user_id.is_(None), users.c.id.is_not(None) & users.c.disabled_at.is_(None)),
            )
        )
        return await self._database.read(
            lambda connection: {
                row.digest: _to_login(row, role=row.users_role or row.role) for row in connection.execute(query)
            }
        )

    async def used(self, last: Mapping[int, datetime]) -> None:
        """Note when logins were last used, by id; an earlier time changes nothing."""
        rows = [{"login": login, "at": at} for login, at in last.items()]

        def write(connection: Connection) -> None:
            connection.execute(_USED, rows)

        if rows:
            await self._database.write(write)

    async def end(self, login_id: int, *, now: datetime) -> None:
        """Let a login open nothing from now on."""
        named = (web_sessions.c.id == login_id) & web_sessions.c.ended_at.is_(None)

        def write(connection: Connection) -> None:
            connection.execute(update(web_sessions).where(named).values(ended_at=now))

        await self._database.write(write)
        self.changes += 1


def _active_user(user_id: int) -> Select[Any]:
    return select(users).where(users.c.id == user_id, users.c.disabled_at.is_(None))


def _begin(
    connection: Connection, name: str, role: Role, new: NewLogin, *, user_id: int | None = None, way: str = ""
) -> Login:
    note_deed(connection, f"{name} has logged in as {role.value}{way}", at=new.at)
    values = {
        "name": name,
        "role": role.value,
        "digest": new.digest,
        "created_at": new.at,
        "expires_at": new.at + LONGEST,
        "last_used_at": new.at,
        "user_id": user_id,
        "look_only": new.look_only,
    }
    over = (web_sessions.c.expires_at <= new.at) | web_sessions.c.ended_at.is_not(None)
    connection.execute(delete(web_sessions).where(over))
    key = connection.execute(insert(web_sessions).values(values)).inserted_primary_key
    assert key is not None  # noqa: S101 - an insert of one row has one
    row = connection.execute(select(web_sessions).where(web_sessions.c.id == key[0])).one()
    return _to_login(row, role=row.role)


def _to_login(row: TableRow, *, role: str) -> Login:
    return Login(
        id=row.id,
        name=row.name,
        role=Role(role),
        digest=row.digest,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        ended_at=row.ended_at,
        user_id=row.user_id,
        look_only=bool(row.look_only),
    )
