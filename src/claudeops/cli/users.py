"""``claudeops user``: which people may log in, and what each may do.

Works with and without a running daemon, which reads users again every second.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from claudeops.cli.on_database import now, operators_name, run_on_database
from claudeops.cli.reply import CommandResult, not_found, refused
from claudeops.cli.text.layout import Column, Style, TableCell, table
from claudeops.cli.text.screen import looks_of
from claudeops.domain.access.logins import Role
from claudeops.domain.access.users import NewUser, User, password_fault, user_name_fault
from claudeops.store.access.users import Users
from claudeops.store.database import Database
from claudeops.text.escapes import visible

_ADD: Final = "user add"
_LIST: Final = "user list"
_SET: Final = "user set"
_REMOVE: Final = "user remove"


def add(name: str, role: Role, password: str | None, *, as_json: bool) -> int:
    """Add a user; return the exit status."""
    return run_on_database(_ADD, partial(_added, name, role, password), as_json=as_json, target=name)


def print_users(*, as_json: bool) -> int:
    """Print the users in force; return the exit status."""
    return run_on_database(_LIST, _listed, as_json=as_json)


def change(name: str, role: Role | None, password: str | None, *, as_json: bool) -> int:
    """Change the role, the password, or both; return the exit status."""
    return run_on_database(_SET, partial(_changed, name, role, password), as_json=as_json, target=name)


def remove(name: str, *, as_json: bool) -> int:
    """Remove a user; return the exit status."""
    return run_on_database(_REMOVE, partial(_removed, name), as_json=as_json, target=name)


def user_not_found(name: str) -> CommandResult:
    """Return the result for a user that is not there."""
    shown = visible(name)
    return not_found(
        "user_not_found", shown, f"There is no user {shown}; `claudeops user list`, or `claudeops user add {shown}`."
    )


async def _added(name: str, role: Role, password: str | None, database: Database) -> CommandResult:
    if fault := user_name_fault(name):
        return refused(_ADD, visible(name), fault, hint="Write a name like ada or ada@example.com.")
    if password is not None and (fault := password_fault(password)):
        return refused(_ADD, name, fault, hint="Take another password; a sentence is easy to remember.")
    hashed = None if password is None else _hash_of(password)
    new = NewUser(name=name, role=role, password_hash=hashed, created_at=now(), created_by=operators_name())
    user = await Users(database).add(new)
    if user is None:
        hint = f"Change it with `claudeops user set {name}`."
        return refused(_ADD, name, f"There is a user {name} already, whatever its capitals.", hint=hint)
    way = "logs in with the password" if hashed else f"logs in by `claudeops login-link --name {name}`"
    return CommandResult(text=f"user {user.name} ({user.role}): {way}", body={"handled": True, **_document(user)})


async def _listed(database: Database) -> CommandResult:
    users = list((await Users(database).active()).values())
    return CommandResult(
        text=_table(users), body={"users_count": len(users), "users": [_document(user) for user in users]}
    )


async def _changed(name: str, role: Role | None, password: str | None, database: Database) -> CommandResult:
    if password is not None and (fault := password_fault(password)):
        return refused(_SET, visible(name), fault, hint="Take another password; a sentence is easy to remember.")
    hashed = None if password is None else _hash_of(password)
    user = await Users(database).change(name, role=role, password_hash=hashed, by=operators_name(), now=now())
    if user is None:
        return user_not_found(name)
    after = "; the new password counts from now on, and earlier logins are over" if hashed else ""
    return CommandResult(text=f"user {user.name}: {user.role}{after}", body={"handled": True, **_document(user)})


async def _removed(name: str, database: Database) -> CommandResult:
    user = await Users(database).remove(name, by=operators_name(), now=now())
    if user is None:
        return user_not_found(name)
    return CommandResult(
        text=f"user {user.name}: removed; its logins are over", body={"handled": True, **_document(user)}
    )


def _hash_of(password: str) -> str:
    from claudeops.web.passwords import hash_of  # noqa: PLC0415 - links and lists need no hashes

    return hash_of(password)


def _table(users: Sequence[User]) -> str:
    looks = looks_of()
    columns = [Column("NAME", shrinks=True), Column("ROLE"), Column("PASSWORD"), Column("ADDED"), Column("BY")]
    rows = [
        (
            TableCell(visible(user.name), Style.NAME),
            user.role.value,
            "yes" if user.password_hash else "no",
            looks.time(user.created_at),
            visible(user.created_by),
        )
        for user in users
    ]
    return "\n".join(table(columns, rows, looks)) or "no users"


def _document(user: User) -> dict[str, object]:
    return {
        "user_name": visible(user.name),
        "role": user.role.value,
        "has_password": user.password_hash is not None,
        "created_at": user.created_at,
        "created_by": visible(user.created_by),
        "disabled_at": user.disabled_at,
        "disabled_by": visible(user.disabled_by) or None,
    }
