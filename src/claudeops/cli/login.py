"""``claudeops login-link``: a link by which one browser logs in, once, within a minute.

Whoever may read the daemon's settings and database may do everything already; so the command asks for nothing else.
"""

from __future__ import annotations

import ipaddress
import secrets
from datetime import timedelta
from functools import partial
from typing import Final

from claudeops.cli.operator import CommandResult, now, operators_name, refused, run_on_database
from claudeops.domain.web.login import LINK_SECONDS, LoginLink, Role
from claudeops.domain.web.token import SECRET_BYTES, digest_of
from claudeops.settings import Settings
from claudeops.store.store import SqlStore

_NAME: Final = "login-link"
_OFF: Final = "There are no pages: CLAUDEOPS_LISTENER or CLAUDEOPS_DASHBOARD is off."
_ANY_PORT: Final = "The daemon takes any free port, which only its log names."


def print_link(*, as_json: bool) -> int:
    """Make a link and print it; return the exit status."""
    return run_on_database(_NAME, partial(_made), as_json=as_json)


async def _made(settings: Settings, store: SqlStore) -> CommandResult:
    if not (settings.listener and settings.dashboard):
        return refused(_NAME, _NAME, _OFF, hint="Switch both on, and start the daemon again.")
    if settings.public_url is None and not settings.dashboard_port:
        return refused(_NAME, _NAME, _ANY_PORT, hint="Set CLAUDEOPS_DASHBOARD_PORT or CLAUDEOPS_PUBLIC_URL.")
    link, url = await make_link(store, base_url(settings))
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


async def make_link(store: SqlStore, base: str) -> tuple[LoginLink, str]:
    """Keep a new link; return it, and its address below ``base``."""
    secret, at = secrets.token_urlsafe(SECRET_BYTES), now()
    link = LoginLink(
        name=operators_name(),
        role=Role.ADMIN,
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
