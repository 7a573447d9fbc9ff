"""Logins of people: links that begin one, how long one lasts, and what each role may do.

A link is used once, within a minute: whoever may read the daemon's state directory makes it. A login is a row with the
SHA-256 digest of a random secret, which a browser keeps as a cookie; it can be ended at any time, as no signed cookie
can. See `claudeops.domain.access.tokens` for why the digest is no slow one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from claudeops.closed_set import ClosedSet
from claudeops.domain.access.tokens import ScopeKind
from claudeops.text import regex

COOKIE: Final = "claudeops_session"
SECURE_COOKIE: Final = "__Host-claudeops_session"
"""Over TLS: a browser takes it from the very host alone, and gives it back over TLS alone."""
LINK_SECONDS: Final = 60
"""For which a link may be used."""

IDLE: Final = timedelta(hours=12)
LONGEST: Final = timedelta(days=7)

_LONGEST_PATH: Final = 500  # characters
_SECRET: Final = regex.Pattern(r"[A-Za-z0-9_-]{43}")
_PATH: Final = regex.Pattern(r"/[A-Za-z0-9._~/?=&%:@,+-]*")


class Role(ClosedSet):
    """What a person may do; each may do all that the one before may."""

    VIEWER = "viewer", "look"
    OPERATOR = "operator", "start, stop, silence, acknowledge"
    APPROVER = "approver", "answer approvals"
    ADMIN = "admin", "everything"

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of endpoints that are open to it."""
        return _SCOPES[self]


_OPERATORS: Final = (ScopeKind.READ, ScopeKind.METRICS, ScopeKind.TRIGGER, ScopeKind.STOP, ScopeKind.OPERATE)
_SCOPES: Final = {
    Role.VIEWER: frozenset({ScopeKind.READ.value, ScopeKind.METRICS.value}),
    Role.OPERATOR: frozenset(scope.value for scope in _OPERATORS),
    Role.APPROVER: frozenset(scope.value for scope in (*_OPERATORS, ScopeKind.APPROVE)),
    Role.ADMIN: frozenset(scope.value for scope in (*_OPERATORS, ScopeKind.APPROVE, ScopeKind.ADMIN)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginLink:
    """A link that begins one login."""

    name: str  # of the person
    role: Role
    digest: str = field(repr=False)  # of the secret in its address
    created_at: datetime
    expires_at: datetime
    user_id: int | None = (
        None  # of `claudeops.domain.access.users.User`, whose role counts; None: an operator of the machine
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NewLogin:
    """What a browser gets when it uses a link, or sends a password."""

    digest: str = field(repr=False)  # of the secret in its cookie
    at: datetime
    look_only: bool = False  # its cookie crosses a network in the clear, so it opens no more than looking, ever


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """A person's login in one browser, on record."""

    id: int
    name: str
    role: Role
    digest: str = field(repr=False)
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    ended_at: datetime | None = None
    user_id: int | None = None  # None: an operator of the machine, whom no user stands for
    look_only: bool = False  # whatever the role is

    def is_active(self, now: datetime) -> bool:
        """Return whether it opens anything now."""
        return self.ended_at is None and now < self.expires_at and now - self.last_used_at < IDLE


def secret_of(cookie: str) -> str | None:
    """Return the secret that a cookie or an address is; None for what is none."""
    return cookie if _SECRET.fullmatch(cookie) else None


def next_path(wanted: str) -> str:
    """Return where to go after the login: a path of ours, never another site's."""
    parts = urlsplit(wanted) if _PATH.fullmatch(wanted) else None
    if parts is None or parts.netloc or parts.scheme or wanted.startswith("//") or len(wanted) > _LONGEST_PATH:
        return "/"
    return wanted
