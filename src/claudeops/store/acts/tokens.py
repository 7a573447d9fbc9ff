"""Tokens of programs: made and revoked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from claudeops.domain.access.tokens import (
    MOST_SCOPES,
    SECRET_BYTES,
    ApiToken,
    NewToken,
    TokenState,
    digest_of,
    scope_fault,
    written,
)
from claudeops.store.access.tokens import Tokens
from claudeops.store.acts import Refusal, missing, refused
from claudeops.text import NAME_LENGTH


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A token on record; its secret is kept nowhere."""

    token_id: int
    token_name: str  # for people
    scopes: tuple[str, ...]
    state: TokenState
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None  # to the minute
    revoked_at: datetime | None
    revoked_by: str | None


class TokenAct(TokenEntry, frozen=True, kw_only=True):
    """A token after it was revoked."""

    handled: bool = True


class MadeToken(TokenEntry, frozen=True, kw_only=True):
    """A new token, shown once."""

    handled: bool = True
    token: str


async def make_token(
    tokens: Tokens, *, name: str, scopes: Sequence[str], expires_at: datetime | None, by: str, now: datetime
) -> MadeToken | Refusal:
    """Make a token; the answer alone has its secret."""
    said = " ".join(name.split())
    if not said or len(said) > NAME_LENGTH:
        sentence = f"A token's name has 1 to {NAME_LENGTH} characters."
        return refused("token", said, sentence, hint="Name who gets it.")
    kept = tuple(dict.fromkeys(scopes))
    if not kept or len(kept) > MOST_SCOPES:
        sentence = f"A token has 1 to {MOST_SCOPES} scopes."
        return refused("token", said, sentence, hint="Make several tokens.")
    if fault := next(filter(None, map(scope_fault, kept)), ""):
        return refused("token", said, fault)
    if expires_at is not None and expires_at <= now:
        return refused("token", said, "Its time would be over already.")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    made = await tokens.create(
        NewToken(name=said, scopes=kept, digest=digest_of(secret), created_at=now, created_by=by, expires_at=expires_at)
    )
    return MadeToken(token=written(made.id, secret), **_fields(made, now))


async def revoke_token(tokens: Tokens, token_id: int, *, by: str, now: datetime) -> TokenAct | Refusal:
    """Let a token open nothing from now on."""
    revoked = await tokens.revoke(token_id, by=by, now=now)
    if revoked is not None:
        return TokenAct(**_fields(revoked, now))
    if not any(one.id == token_id for one in await tokens.known()):
        return missing("token", token_id, f"There is no token {token_id}; `claudeops token list`.")
    return refused("token", token_id, f"Token {token_id} is revoked already.")


async def list_tokens(tokens: Tokens, *, everything: bool, now: datetime) -> Sequence[TokenEntry]:
    """Return the tokens in force, or all of them."""
    known = [TokenEntry(**_fields(one, now)) for one in await tokens.known()]
    return [one for one in known if everything or one.state is TokenState.ACTIVE]


def _fields(token: ApiToken, now: datetime) -> dict[str, Any]:
    return {
        "token_id": token.id,
        "token_name": token.name,
        "scopes": token.scopes,
        "state": token.state(now),
        "created_at": token.created_at,
        "created_by": token.created_by,
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "revoked_at": token.revoked_at,
        "revoked_by": token.revoked_by or None,
    }
