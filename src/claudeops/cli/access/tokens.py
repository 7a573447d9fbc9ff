"""``claudeops token`` and ``login-link``: which programs may call the daemon, and for what; which browsers are let in.

Works with and without a running daemon, which reads tokens and logins again every second.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from claudeops.cli.access.users import user_not_found
from claudeops.cli.operator import CommandResult, not_found, now, operators_name, refused, run_on_database
from claudeops.cli.text.layout import Cell, Column, Style, table
from claudeops.cli.text.screen import looks_of
from claudeops.domain.gate.approval import visible
from claudeops.domain.text import NAME_LENGTH
from claudeops.domain.web.login import LINK_SECONDS, LoginLink, Role
from claudeops.domain.web.token import (
    MOST_SCOPES,
    SECRET_BYTES,
    ApiToken,
    NewToken,
    TokenState,
    digest_of,
    written,
)
from claudeops.domain.web.user import User
from claudeops.settings import Settings
from claudeops.store.store import SqlStore

_CREATE: Final = "token create"
_LIST: Final = "token list"
_REVOKE: Final = "token revoke"
_LINK: Final = "login-link"
_OFF: Final = "There are no pages: CLAUDEOPS_LISTENER or CLAUDEOPS_DASHBOARD is off."
_ANY_PORT: Final = "The daemon takes any free port, which only its log names."


def make_token(*, name: str, scopes: Sequence[str], expires_at: datetime | None, as_json: bool) -> int:
    """Make a token and print it; return the exit status."""
    work = partial(_made, " ".join(name.split()), tuple(dict.fromkeys(scopes)), expires_at)
    return run_on_database(_CREATE, work, as_json=as_json, target=name)


def print_tokens(*, everything: bool, as_json: bool) -> int:
    """Print the tokens in force, or all of them; return the exit status."""
    return run_on_database(_LIST, partial(_listed, everything), as_json=as_json)


def revoke(token_id: int, *, as_json: bool) -> int:
    """Revoke a token; return the exit status."""
    return run_on_database(_REVOKE, partial(_revoked, token_id), as_json=as_json, target=str(token_id))


async def _made(
    name: str, scopes: tuple[str, ...], expires_at: datetime | None, _settings: Settings, store: SqlStore
) -> CommandResult:
    if not name or len(name) > NAME_LENGTH:
        return refused(_CREATE, name, f"A token's name has 1 to {NAME_LENGTH} characters.", hint="Name who gets it.")
    if len(scopes) > MOST_SCOPES:
        return refused(_CREATE, name, f"A token has at most {MOST_SCOPES} scopes.", hint="Make several tokens.")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewToken(
        name=name,
        scopes=scopes,
        digest=digest_of(secret),
        created_at=now(),
        created_by=operators_name(),
        expires_at=expires_at,
    )
    made = await store.tokens.create(new)
    text = written(made.id, secret)
    # The token alone on a line of its own, so that it can be cut out.
    lines = (
        text,
        f"token {made.id} for {visible(made.name)}: {', '.join(made.scopes)}; keep it, it is not shown again",
        f'send it as the header "Authorization: Bearer {text}"',
    )
    return CommandResult(
        text="\n".join(lines), body={"handled": True, "token": text, **_document(made, made.created_at)}
    )


async def _listed(everything: bool, _settings: Settings, store: SqlStore) -> CommandResult:  # noqa: FBT001 - bound by name
    at = now()
    shown = [one for one in await store.tokens.known() if everything or one.state(at) is TokenState.ACTIVE]
    return CommandResult(
        text=_table(shown, at), body={"tokens_count": len(shown), "tokens": [_document(one, at) for one in shown]}
    )


async def _revoked(token_id: int, _settings: Settings, store: SqlStore) -> CommandResult:
    at = now()
    revoked = await store.tokens.revoke(token_id, by=operators_name(), now=at)
    if revoked is not None:
        text = f"token {revoked.id} ({visible(revoked.name)}): revoked by {revoked.revoked_by}"
        return CommandResult(text=text, body={"handled": True, **_document(revoked, at)})
    if not any(one.id == token_id for one in await store.tokens.known()):
        return not_found("token_not_found", str(token_id), f"There is no token {token_id}; `claudeops token list`.")
    return refused(_REVOKE, str(token_id), f"Token {token_id} is revoked already.")


def _table(tokens: Sequence[ApiToken], at: datetime) -> str:
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
            str(one.id),
            Cell(visible(one.name), Style.NAME),
            " ".join(one.scopes),
            one.state(at).value,
            "never" if one.expires_at is None else looks.time(one.expires_at),
            "never" if one.last_used_at is None else looks.time(one.last_used_at),
        )
        for one in tokens
    ]
    return "\n".join(table(columns, rows, looks)) or "no tokens"


def _document(token: ApiToken, at: datetime) -> dict[str, object]:
    return {
        "token_id": token.id,
        "token_name": visible(token.name),
        "scopes": list(token.scopes),
        "state": token.state(at).value,
        "created_at": token.created_at,
        "created_by": visible(token.created_by),
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "revoked_at": token.revoked_at,
        "revoked_by": visible(token.revoked_by) or None,
    }


# --- links for people


def print_link(name: str | None, *, as_json: bool) -> int:
    """Make a link and print it, for a user or for whoever runs the command; return the exit status."""
    return run_on_database(_LINK, partial(_linked, name), as_json=as_json, target=name or "")


async def _linked(name: str | None, settings: Settings, store: SqlStore) -> CommandResult:
    if not (settings.listener and settings.dashboard):
        return refused(_LINK, _LINK, _OFF, hint="Switch both on, and start the daemon again.")
    if settings.public_url is None and not settings.dashboard_port:
        return refused(_LINK, _LINK, _ANY_PORT, hint="Set CLAUDEOPS_DASHBOARD_PORT or CLAUDEOPS_PUBLIC_URL.")
    user = None if name is None else await store.users.named(name)
    if name is not None and user is None:
        return user_not_found(name)
    link, url = await make_link(store, base_url(settings), user=user)
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


async def make_link(store: SqlStore, base: str, *, user: User | None = None) -> tuple[LoginLink, str]:
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


def base_url(settings: Settings) -> str:
    """Return where people reach the pages: as the operator says, else on this machine."""
    if settings.public_url is not None:
        return settings.public_url
    address = ipaddress.ip_address(settings.dashboard_host)
    is_here = address.is_loopback or address.is_unspecified  # passkeys work for a name, and for no address
    host = "localhost" if is_here else f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004
    return f"http://{host}:{settings.dashboard_port}"
