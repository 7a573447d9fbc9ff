"""``claudeops login-link``: which browsers are let in to the pages.

Works with and without a running daemon, which reads logins again every second.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from functools import partial
from typing import Final

from claudeops.cli.on_database import now, operators_name
from claudeops.cli.on_store import run_on_store
from claudeops.cli.reply import CommandResult, refused
from claudeops.cli.users import user_not_found
from claudeops.domain.access.logins import LINK_SECONDS, LoginLink, Role
from claudeops.domain.access.tokens import SECRET_BYTES, digest_of
from claudeops.domain.access.users import User
from claudeops.settings import Settings
from claudeops.store.store import Store

_LINK: Final = "login-link"
_OFF: Final = "There are no pages: CLAUDEOPS_LISTENER or CLAUDEOPS_DASHBOARD is off."
_ANY_PORT: Final = "The daemon takes any free port, which only its log names."


def print_link(name: str | None, *, as_json: bool) -> int:
    """Make a link and print it, for a user or for whoever runs the command; return the exit status."""
    return run_on_store(_LINK, partial(_linked, name), as_json=as_json, target=name or "")


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
