"""People who may log in: a name, a role, and a password where they have one.

A user who was removed stays on record, since audits name it; the name is free again for another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from claudeops.domain.access.logins import Role
from claudeops.domain.access.tokens import NAME

FEWEST_CHARACTERS: Final = 12
MOST_CHARACTERS: Final = 1000
"""Of a password."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewUser:
    """A user that is to be added."""

    name: str
    role: Role
    password_hash: str | None = field(default=None, repr=False)  # None: logs in by links, a proxy or a provider
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    """A user on record."""

    id: int
    name: str
    role: Role
    password_hash: str | None = field(default=None, repr=False)  # as argon2 writes it; None: there is no password
    created_at: datetime
    created_by: str
    disabled_at: datetime | None = None  # None: is in force
    disabled_by: str = ""


def name_key(name: str) -> str:
    """Return what two users must not share: names differ by more than capitals."""
    return name.lower()


def user_name_fault(name: str) -> str:
    """Return what is wrong with the name of a user, as a sentence; empty: nothing."""
    if NAME.fullmatch(name):
        return ""
    return "A user's name has 1 to 100 letters, digits and '._:@-', and begins with a letter or a digit."


def password_fault(password: str) -> str:
    """Return what is wrong with a new password, as a sentence that does not repeat it; empty: nothing."""
    if not FEWEST_CHARACTERS <= len(password) <= MOST_CHARACTERS:
        return f"A password has {FEWEST_CHARACTERS} to {MOST_CHARACTERS} characters."
    return ""
