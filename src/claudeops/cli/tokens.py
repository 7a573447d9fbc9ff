"""``claudeops token`` and ``login-link``: which programs may call the daemon, and for what; which browsers are let in.

Works with and without a running daemon, which reads tokens and logins again every second.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from claudeops.cli.on_database import CommandResult, not_done, now, operators_name, refused, run_on_database
from claudeops.cli.text.layout import Column, Style, TableCell, table
from claudeops.cli.text.screen import looks_of
from claudeops.cli.users import user_not_found
from claudeops.domain.access.logins import LINK_SECONDS, LoginLink, Role
from claudeops.domain.access.tokens import SECRET_BYTES, digest_of
from claudeops.domain.access.users import User
from claudeops.domain.answers import document
from claudeops.settings import Settings
from claudeops.store.acts import Refusal
from claudeops.store.acts import tokens as acts
from claudeops.store.acts.tokens import TokenEntry
from claudeops.store.store import Store
from claudeops.text.escapes import visible

_CREATE: Final = "token create"
_LIST: Final = "token list"
_REVOKE: Final = "token revoke"
_LINK: Final = "login-link"
_OFF: Final = "There are no pages: CLAUDEOPS_LISTENER or CLAUDEOPS_DASHBOARD is off."
_ANY_PORT: Final = "The daemon takes any free port, which only its log names."


def make_token(*, name: str, scopes: Sequence[str], expires_at: datetime | None, as_json: bool) -> int:
    """Make a token and print it; return the exit status."""
    work = partial(_made, name, scopes, expires_at)
    return run_on_database(_CREATE, work, as_json=as_json, target=name)


def print_tokens(*, everything: bool, as_json: bool) -> int:
    """Print the tokens in force, or all of them; return the exit status."""
    return run_on_database(_LIST, partial(_listed, everything), as_json=as_json)


def revoke(token_id: int, *, as_json: bool) -> int:
    """Revoke a token; return the exit status."""
    return run_on_database(_REVOKE, partial(_revoked, token_id), as_json=as_json, target=str(token_id))


async def _made(
    name: str, scopes: Sequence[str], expires_at: datetime | None, _settings: Settings, store: Store
) -> CommandResult:
    done = await acts.make_token(store, name=name, scopes=scopes, expires_at=expires_at, by=operators_name(), now=now())
    if isinstance(done, Refusal):
        return not_done(_CREATE, done)
    scopes_text = ", ".join(done.scopes)
    # The token alone on a line of its own, so that it can be cut out.
    lines = (
        done.token,
        f"token {done.token_id} for {visible(done.token_name)}: {scopes_text}; keep it, it is not shown again",
        f'send it as the header "Authorization: Bearer {done.token}"',
    )
    return CommandResult(text="\n".join(lines), body=document(done))


async def _listed(everything: bool, _settings: Settings, store: Store) -> CommandResult:  # noqa: FBT001 - bound by name
    shown = await acts.list_tokens(store, everything=everything, now=now())
    return CommandResult(
        text=_table(shown), body={"tokens_count": len(shown), "tokens": [document(one) for one in shown]}
    )


async def _revoked(token_id: int, _settings: Settings, store: Store) -> CommandResult:
    done = await acts.revoke_token(store, token_id, by=operators_name(), now=now())
    if isinstance(done, Refusal):
        return not_done(_REVOKE, done)
    text = f"token {done.token_id} ({visible(done.token_name)}): revoked by {done.revoked_by}"
    return CommandResult(text=text, body=document(done))


def _table(tokens: Sequence[TokenEntry]) -> str:
    looks = looks_of()
    columns = [
        Column("ID"),
        Column("NAME", shrinks=True),
        Column("FOR"),
        Column("STATE"),
        Column("EXPIRES"),
        Column("LAST USED"),
    ]
    rows = [
        (
            str(one.token_id),
            TableCell(visible(one.token_name), Style.NAME),
            " ".join(one.scopes),
            one.state.value,
            "never" if one.expires_at is None else looks.time(one.expires_at),
            "never" if one.last_used_at is None else looks.time(one.last_used_at),
        )
        for one in tokens
    ]
    return "\n".join(table(columns, rows, looks)) or "no tokens"


# --- links for people


def print_link(name: str | None, *, as_json: bool) -> int:
    """Make a link and print it, for a user or for whoever runs the command; return the exit status."""
    return run_on_database(_LINK, partial(_linked, name), as_json=as_json, target=name or "")


async def _linked(name: str | None, settings: Settings, store: Store) -> CommandResult:
    if not (settings.listener.enabled and settings.listener.dashboard):
        return refused(_LINK, _LINK, _OFF, hint="Switch both on, and start the daemon again.")
    if settings.listener.public_url is None and not settings.listener.port:
        return refused(_LINK, _LINK, _ANY_PORT, hint="Set CLAUDEOPS_DASHBOARD_PORT or CLAUDEOPS_PUBLIC_URL.")
    user = None if name is None else await store.users.named(name)
    if name is not None and user is None:
        return user_not_found(name)
    link, url = await make_link(store, settings.listener.pages_url, user=user)
    return CommandResult(
        text=f"{url}\nlogs one browser in as {link.name} ({link.role}), once, within {LINK_SECONDS} s",
        body={
            "handled": True,
            "url": url,
            "login_name": link.name,
            "role": link.role.value,
            "expires_at": link.expires_at,
        },
    )


async def make_link(store: Store, base: str, *, user: User | None = None) -> tuple[LoginLink, str]:
    """Keep a new link; return it, and its address below ``base``. ``None``: whoever runs the command, as admin."""
    secret, at = secrets.token_urlsafe(SECRET_BYTES), now()
    link = LoginLink(
        name=operators_name() if user is None else user.name,
        role=Role.ADMIN if user is None else user.role,
        user_id=None if user is None else user.id,
        digest=digest_of(secret),
        created_at=at,
        expires_at=at + timedelta(seconds=LINK_SECONDS),
    )
    await store.logins.make_link(link)
    return link, f"{base}/setup/{secret}"
