"""Tokens of those who call the daemon: their form, what each allows, and for how long.

A token is ``cops_<id>_<secret>``, shown once. Kept is the SHA-256 digest of the secret, which is random and long:
nobody finds it by trying, so a slow hash would protect nothing. The id finds the row without a search by secret.

A scope is a word, or a word and a name (``alerts:prometheus``). Answering approvals and administration have scopes
too, but no token has them: a person's login does (`claudeops.domain.access.logins`).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final

from claudeops.domain.alerts.alert import PROBES
from claudeops.text import regex

PREFIX: Final = "cops_"
SECRET_BYTES: Final = 32
"""Random bytes of a secret, which is written in base64 for URLs."""

MOST_SCOPES: Final = 50
NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")
"""A source, or a heartbeat, in a scope and in an address, of which it is one part."""

_WRITTEN: Final = regex.Pattern(r"cops_([1-9][0-9]{0,8})_([A-Za-z0-9_-]{43})")


class ScopeKind(StrEnum):
    """What a token may be for."""

    READ = "read"  # what the daemon knows of itself
    ALERTS = "alerts"  # send alerts as one source
    HEARTBEATS = "heartbeats"  # be heard as one heartbeat
    METRICS = "metrics"  # read the figures
    TRIGGER = "trigger"  # start sessions
    STOP = "stop"  # stop them
    OPERATE = "operate"  # silence, acknowledge, correct memories, pause
    APPROVE = "approve"  # answer approvals; a person's alone
    ADMIN = "admin"  # give others access; a person's alone


PLAIN_SCOPES: Final = (ScopeKind.READ, ScopeKind.METRICS, ScopeKind.TRIGGER, ScopeKind.STOP, ScopeKind.OPERATE)
"""The scopes that a token may have, and that name nothing."""

PERSONS_SCOPES: Final = (ScopeKind.APPROVE, ScopeKind.ADMIN)
"""The scopes that no token has."""


class TokenState(StrEnum):
    """Whether a token opens anything."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    """A token that is to be made."""

    name: str  # for people
    scopes: tuple[str, ...]
    digest: str = field(repr=False)  # of the secret
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None  # None: never


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiToken:
    """A token on record."""

    id: int
    name: str
    scopes: tuple[str, ...]
    digest: str = field(repr=False)
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""
    last_used_at: datetime | None = None  # to the minute

    def state(self, now: datetime) -> TokenState:
        """Return whether it opens anything now."""
        if self.revoked_at is not None:
            return TokenState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return TokenState.EXPIRED if is_over else TokenState.ACTIVE

    def is_proven_by(self, secret: str) -> bool:
        """Tell whether a secret is its own; the time tells nothing."""
        return hmac.compare_digest(self.digest.encode(), digest_of(secret).encode())


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """A token as somebody presents it."""

    id: int
    secret: str = field(repr=False)


def presented(text: str) -> ParsedToken | None:
    """Return the token that a text is; ``None`` for a text that is none."""
    found = _WRITTEN.fullmatch(text)
    return None if found is None else ParsedToken(int(str(found[1])), str(found[2]))


def written(token_id: int, secret: str) -> str:
    """Return a token as its owner gets it."""
    return f"{PREFIX}{token_id}_{secret}"


def digest_of(secret: str) -> str:
    """Return what is kept of a secret."""
    return sha256(secret.encode()).hexdigest()


def scope_of(kind: ScopeKind, name: str) -> str:
    """Return the scope for one source or one heartbeat."""
    return f"{kind.value}:{name}"


def scope_fault(scope: str) -> str:
    """Return what is wrong with a scope, as a sentence; empty: nothing."""
    word, colon, name = scope.partition(":")
    if word in PLAIN_SCOPES and not colon:
        return ""
    if word in PERSONS_SCOPES:
        return f"{scope!r} is no scope of tokens: only a person's login has it."
    if word not in {ScopeKind.ALERTS.value, ScopeKind.HEARTBEATS.value}:
        return f"{scope!r} is no scope: write {', '.join(PLAIN_SCOPES)}, alerts:<source> or heartbeats:<name>."
    if not NAME.fullmatch(name):
        return f"{scope!r} names nobody: write {word}: and a name of letters, digits and '._:@-'."
    if scope == scope_of(ScopeKind.ALERTS, PROBES):
        return f"{scope!r} is the daemon's own: its probes need no token, and nobody else speaks for them."
    return ""
