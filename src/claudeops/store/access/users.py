"""Users: people with a role and, where they have one, a password; those who were removed stay on record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from claudeops.domain.access.logins import Role
from claudeops.domain.access.users import NewUser, User, name_key
from claudeops.store.database import Database
from claudeops.store.events import note_deed
from claudeops.store.rows import TableRow
from claudeops.store.tables.web import login_links, users, web_sessions


class Users:
    """Users in force. Every method raises `StoreError` where the database does not take or give it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, new: NewUser) -> User | None:
        """Add a user; None: there is one of this name, whatever the capitals."""
        values = {
            "name": new.name,
            "name_key": name_key(new.name),
            "role": new.role.value,
            "password_hash": new.password_hash,
            "created_at": new.created_at,
            "created_by": new.created_by,
        }

        def write(connection: Connection) -> User | None:
            if _find(connection, new.name) is not None:
                return None
            connection.execute(insert(users).values(values))
            note_deed(
                connection, f"{new.created_by} has added the user {new.name} as {new.role.value}", at=new.created_at
            )
            return _find(connection, new.name)

        return await self._database.write(write)

    async def active(self) -> Mapping[str, User]:
        """Return the users in force by `name_key`, in its order."""
        query = select(users).where(users.c.disabled_at.is_(None)).order_by(users.c.name_key)

        def read(connection: Connection) -> Mapping[str, User]:
            return {row.name_key: _to_user(row) for row in connection.execute(query)}

        return await self._database.read(read)

    async def named(self, name: str) -> User | None:
        """Return the user in force of a name, whatever its capitals."""
        return await self._database.read(lambda connection: _find(connection, name))

    async def change(
        self, name: str, *, role: Role | None, password_hash: str | None, by: str, now: datetime
    ) -> User | None:
        """Change what is given; a new password ends the logins so far. None: there is no such user."""
        values = {"role": role and role.value, "password_hash": password_hash}
        what = [f"the role {role.value}"] if role is not None else []
        what += ["a new password"] if password_hash is not None else []

        def write(connection: Connection) -> User | None:
            user = _find(connection, name)
            if user is None:
                return None
            given = {column: value for column, value in values.items() if value is not None}
            if given:
                connection.execute(update(users).where(users.c.id == user.id).values(given))
                note_deed(connection, f"{by} has given the user {user.name} {' and '.join(what)}", at=now)
            if password_hash is not None:
                _end_logins(connection, user.id, now)
            return _find(connection, name)

        return await self._database.write(write)

    async def remove(self, name: str, *, by: str, now: datetime) -> User | None:
        """Let a user and its logins open nothing from now on; None: there is no such user."""

        def write(connection: Connection) -> User | None:
            user = _find(connection, name)
            if user is None:
                return None
            of_it = users.c.id == user.id
            connection.execute(update(users).where(of_it).values(disabled_at=now, disabled_by=by, password_hash=None))
            _end_logins(connection, user.id, now)
            note_deed(connection, f"{by} has removed the user {user.name}", at=now)
            return _to_user(connection.execute(select(users).where(of_it)).one())

        return await self._database.write(write)


def _named(name: str) -> ColumnElement[bool]:
    return and_(users.c.name_key == name_key(name), users.c.disabled_at.is_(None))


def _find(connection: Connection, name: str) -> User | None:
    row = connection.execute(select(users).where(_named(name))).one_or_none()
    return None if row is None else _to_user(row)


def _end_logins(connection: Connection, user_id: int, now: datetime) -> None:
    """End the logins of a user, and take back the links that would begin one."""
    begun = (web_sessions.c.user_id == user_id) & web_sessions.c.ended_at.is_(None)
    connection.execute(update(web_sessions).where(begun).values(ended_at=now))
    connection.execute(delete(login_links).where(login_links.c.user_id == user_id))


def _to_user(row: TableRow) -> User:
    return User(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        password_hash=row.password_hash,
        created_at=row.created_at,
        created_by=row.created_by,
        disabled_at=row.disabled_at,
        disabled_by=row.disabled_by or "",
    )
