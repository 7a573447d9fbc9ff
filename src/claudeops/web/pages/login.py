"""Logging in by a link or a password, and out.

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
from claudeops.web.connection import NOT_ENCRYPTED
from claudeops.web.doorkeeper import NO_ROW
from claudeops.web.endpoints import Call
from claudeops.web.pages.rendering import see_other
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError

_WRONG: Final = "The name or the password is wrong."
_IN_THE_CLEAR: Final = (
    "No password is taken here: this connection is not encrypted, so others could read it. Open the pages by https, or "
    "on the machine itself; where the network is trusted, CLAUDEOPS_DASHBOARD_INSECURE=true says so."
)
_OVER: Final = "This link was used, or is over: `claudeops login-link` makes another."


class After(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go after the login."""

    next: str = "/"


async def login_page(site: Site, call: Call) -> Response:
    """Answer how to log in; whoever is logged in goes on."""
    if call.caller is not None and call.caller.login is not None:
        return see_other(next_path(call.asked(After).next))
    return _login_form(site, call, wanted=call.asked(After).next)


async def use_password(site: Site, call: Call) -> Response:
    """Log a browser in by name and password. Raises `RefusedError` where none is taken, or for too many tries."""
    if site.passwords is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, "People log in by links here.", kind=ErrorKind.AUTH)
    if not call.connection.is_private:
        raise RefusedError(HTTPStatus.FORBIDDEN, _IN_THE_CLEAR, kind=ErrorKind.AUTH)
    sent = _form(call)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewLogin(digest=digest_of(secret), at=call.at)
    name, wanted = sent.get("name", "").strip(), sent.get("next", "/")
    login = await site.passwords.log_in(name, sent.get("password", ""), new, peer=call.connection.peer)
    if login is None:
        answer = _login_form(site, call, wanted=wanted, name=name, wrong=_WRONG)
        answer.status_code = HTTPStatus.FORBIDDEN
        return answer
    return _begin(site, call, secret, wanted)


def _login_form(site: Site, call: Call, *, wanted: str, name: str = "", wrong: str = "") -> Response:
    values = {
        "next": next_path(wanted),
        "has_form": site.passwords is not None and call.connection.is_private,
        "refusal": _IN_THE_CLEAR if site.passwords is not None and not call.connection.is_private else "",
        "name": name[:100],
        "wrong": wrong,
    }
    return site.pages.page(call, "login.html", title="Log in", values=values)


def _form(call: Call) -> dict[str, str]:
    """Return the fields of a form, the first of each name. Raises `RefusedError`."""
    try:
        fields = parse_qs(call.body.decode(), keep_blank_values=True, max_num_fields=10, errors="strict")
    except ValueError:
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "The form cannot be read.") from None
    return {name: values[0] for name, values in fields.items()}


async def link_page(site: Site, call: Call) -> Response:
    """Answer with the button that uses a link."""
    if secret_of(call.params["once"]) is None:
        raise RefusedError(404, _OVER, kind=ErrorKind.AUTH)
    values = {"next": next_path(call.asked(After).next), "warning": "" if call.connection.is_private else NOT_ENCRYPTED}
    return site.pages.page(call, "setup.html", title="Log in", values=values)


async def use_link(site: Site, call: Call) -> Response:
    """Log a browser in by a link. Raises `RefusedError` for one that is over."""
    once = secret_of(call.params["once"])
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewLogin(digest=digest_of(secret), at=call.at, look_only=not call.connection.is_private)
    login = None if once is None else await site.logins.use_link(digest_of(once), new)
    if login is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, _OVER, kind=ErrorKind.AUTH)
    return _begin(site, call, secret, parse_qs(call.body.decode(errors="replace")).get("next", ["/"])[0])


def _begin(site: Site, call: Call, secret: str, wanted: str) -> Response:
    """Give a browser the cookie of its login, and lead it on."""
    answer = see_other(next_path(wanted))
    tls = site.is_tls(call)
    name, seconds = SECURE_COOKIE if tls else COOKIE, int(LONGEST.total_seconds())
    # Lax, not strict: a link in a chat leads to a page of ours, and whoever follows it is logged in.
    answer.set_cookie(name, secret, max_age=seconds, path="/", httponly=True, samesite="lax", secure=tls)
    return answer


async def log_out(site: Site, call: Call) -> Response:
    """End the login of the browser."""
    if call.caller is not None and call.caller.login is not None and call.caller.login.id != NO_ROW:
        await site.logins.end(call.caller.login.id, now=call.at)
    answer = see_other("/login")
    tls = site.is_tls(call)
    answer.delete_cookie(SECURE_COOKIE if tls else COOKIE, path="/", httponly=True, samesite="lax", secure=tls)
    return answer
