"""Logging in by a link, and out.

A link is used by pressing a button on its page: programs that look at links before people do (chats, browsers that read
ahead) would use it up.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

import msgspec
from starlette.responses import Response

from claudeops.domain.web.login import COOKIE, LONGEST, SECURE_COOKIE, NewLogin, next_path, secret_of
from claudeops.domain.web.token import SECRET_BYTES, digest_of
from claudeops.errors import ErrorKind
from claudeops.web.endpoints import Call
from claudeops.web.pages.rendering import see_other
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError

_OVER: Final = "This link was used, or is over: `claudeops login-link` makes another."


class After(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go after the login."""

    next: str = "/"


async def login_page(site: Site, call: Call) -> Response:
    """Answer how to log in; whoever is logged in goes on."""
    if call.caller is not None and call.caller.login is not None:
        return see_other(next_path(call.asked(After).next))
    return site.pages.page(call, "login.html", title="Log in")


async def link_page(site: Site, call: Call) -> Response:
    """Answer with the button that uses a link."""
    if secret_of(call.params["once"]) is None:
        raise RefusedError(404, _OVER, kind=ErrorKind.AUTH)
    return site.pages.page(call, "setup.html", title="Log in", values={"next": next_path(call.asked(After).next)})


async def use_link(site: Site, call: Call) -> Response:
    """Log a browser in by a link. Raises `RefusedError` for one that is over."""
    once = secret_of(call.params["once"])
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewLogin(digest=digest_of(secret), at=call.at)
    login = None if once is None else await site.logins.use_link(digest_of(once), new)
    if login is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, _OVER, kind=ErrorKind.AUTH)
    wanted = parse_qs(call.body.decode(errors="replace")).get("next", ["/"])[0]
    answer = see_other(next_path(wanted))
    tls = site.is_tls(call)
    name, seconds = SECURE_COOKIE if tls else COOKIE, int(LONGEST.total_seconds())
    # Lax, not strict: a link in a chat leads to a page of ours, and whoever follows it is logged in.
    answer.set_cookie(name, secret, max_age=seconds, path="/", httponly=True, samesite="lax", secure=tls)
    return answer


async def log_out(site: Site, call: Call) -> Response:
    """End the login of the browser."""
    if call.caller is not None and call.caller.login is not None:
        await site.logins.end(call.caller.login.id, now=call.at)
    answer = see_other("/login")
    tls = site.is_tls(call)
    answer.delete_cookie(SECURE_COOKIE if tls else COOKIE, path="/", httponly=True, samesite="lax", secure=tls)
    return answer
