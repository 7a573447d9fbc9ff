"""Logging in by a link, a password or an identity provider, and out.

A link is used by pressing a button on its page: programs that look at links before people do (chats, browsers that read
ahead) would use it up.

A login at a provider begins by a link and not by a form: under `form-action 'self'` a form must not lead to another
site, neither by itself nor by a redirect.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
from starlette.requests import cookie_parser
from starlette.responses import Response

from claudeops.domain.access.logins import COOKIE, LONGEST, SECURE_COOKIE, NewLogin, next_path, secret_of
from claudeops.domain.access.tokens import SECRET_BYTES, digest_of
from claudeops.errors import ErrorKind
from claudeops.formats.oidc import PENDING_TIME, LoginCallback, LoginFailure
from claudeops.structs import replace
from claudeops.web.authentication import NO_ROW
from claudeops.web.connection import NOT_ENCRYPTED
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.rendering import see_other
from claudeops.web.pages.site import Site
from claudeops.web.ports import ProviderLogin
from claudeops.web.problems import RefusedError

_WRONG: Final = "The name or the password is wrong."
_IN_THE_CLEAR: Final = (
    "No password is taken here: this connection is not encrypted, so others could read it. Open the pages by https, or "
    "on the machine itself; where the network is trusted, CLAUDEOPS_DASHBOARD_INSECURE=true says so."
)
_NO_PROVIDER: Final = "People log in by links or passwords here."
_BEGIN: Final = "/login/oidc"
_PENDING: Final = "claudeops_login"
_SECURE_PENDING: Final = "__Host-claudeops_login"
"""The cookies of a login that was begun at the provider."""

_OVER: Final = "This link was used, or is over: `claudeops login-link` makes another."


class After(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go after the login."""

    next: str = "/"


class Back(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser brings back from the identity provider; what else it brings says nothing to us."""

    code: str = ""
    state: str = ""
    error: str = ""
    iss: str | None = None


async def login_page(site: Site, call: WebCall) -> Response:
    """Answer how to log in; whoever is logged in goes on."""
    if call.caller is not None and call.caller.login is not None:
        return see_other(next_path(call.asked(After).next))
    return _login_form(site, call, wanted=call.asked(After).next)


async def use_password(site: Site, call: WebCall) -> Response:
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


async def begin_at_provider(site: Site, call: WebCall) -> Response:
    """Lead a browser to the identity provider. Raises `RefusedError` for one try too many."""
    provider, wanted = _provider(site), next_path(call.asked(After).next)
    if call.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return see_other(_with_next("/login", wanted))  # a person begins a login, no other site does
    host, peer = call.headers.get("host", ""), call.connection.peer
    begun = await provider.begin(host=host, wanted=wanted, peer=peer, at=call.at)
    if isinstance(begun, LoginFailure):
        return _not_logged_in(site, call, begun, wanted)
    answer = see_other(begun.address)
    tls, seconds = site.is_tls(call), int(PENDING_TIME.total_seconds())
    # Lax, not strict: it has to come along when the provider leads the browser back.
    answer.set_cookie(
        _pending_cookie(tls=tls), begun.secret, max_age=seconds, path="/", httponly=True, samesite="lax", secure=tls
    )
    return answer


async def end_at_provider(site: Site, call: WebCall) -> Response:
    """Log a browser in that comes back from the identity provider. Raises `RefusedError`."""
    provider, back, tls = _provider(site), call.asked(Back), site.is_tls(call)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewLogin(digest=digest_of(secret), at=call.at, look_only=not call.connection.is_private)
    ended = await provider.end(
        LoginCallback(state=back.state, code=back.code, error=back.error, issuer=back.iss),
        secret=cookie_parser(call.headers.get("cookie", "")).get(_pending_cookie(tls=tls), ""),
        new=new,
    )
    if isinstance(ended, LoginFailure):
        return _not_logged_in(site, call, ended, "/")
    return _begin(site, call, secret, ended.wanted)


def _provider(site: Site) -> ProviderLogin:
    if site.provider is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, _NO_PROVIDER, kind=ErrorKind.AUTH)
    return site.provider


def _pending_cookie(*, tls: bool) -> str:
    return _SECURE_PENDING if tls else _PENDING


def _not_logged_in(site: Site, call: WebCall, why: LoginFailure, wanted: str) -> Response:
    """Answer with the login page, which says why, and has nothing of the address, in which there may be a code."""
    answer = _login_form(site, replace(call, path="/login", query={}), wanted=wanted, wrong=why.sentence)
    answer.status_code = HTTPStatus.FORBIDDEN if why.is_refused else HTTPStatus.SERVICE_UNAVAILABLE
    return answer


def _with_next(path: str, wanted: str) -> str:
    return f"{path}?next={quote(wanted, safe='')}"


def _provider_link(provider: ProviderLogin, call: WebCall, wanted: str) -> str:
    """Return where a login begins: by the name by which it ends, since the cookie is of that name."""
    host, public = call.headers.get("host", ""), provider.begins_at(call.headers.get("host", ""))
    is_there = urlsplit(public).netloc.lower() == host.lower()
    return _with_next(_BEGIN if is_there else public + _BEGIN, wanted)


def _login_form(site: Site, call: WebCall, *, wanted: str, name: str = "", wrong: str = "") -> Response:
    wanted, is_private = next_path(wanted), call.connection.is_private
    provider = site.provider
    values = {
        "next": wanted,
        "provider": "" if provider is None else provider.host,
        "provider_link": "" if provider is None else _provider_link(provider, call, wanted),
        "warning": "" if provider is None or is_private else NOT_ENCRYPTED,
        "has_form": site.passwords is not None and is_private,
        "refusal": _IN_THE_CLEAR if site.passwords is not None and not is_private else "",
        "name": name[:100],
        "wrong": wrong,
    }
    return site.pages.page(call, "login.html", title="Log in", values=values)


def _form(call: WebCall) -> dict[str, str]:
    """Return the fields of a form, the first of each name. Raises `RefusedError`."""
    try:
        fields = parse_qs(call.body.decode(), keep_blank_values=True, max_num_fields=10, errors="strict")
    except ValueError:
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "The form cannot be read.") from None
    return {name: values[0] for name, values in fields.items()}


async def link_page(site: Site, call: WebCall) -> Response:
    """Answer with the button that uses a link."""
    if secret_of(call.params["once"]) is None:
        raise RefusedError(404, _OVER, kind=ErrorKind.AUTH)
    values = {"next": next_path(call.asked(After).next), "warning": "" if call.connection.is_private else NOT_ENCRYPTED}
    return site.pages.page(call, "setup.html", title="Log in", values=values)


async def use_link(site: Site, call: WebCall) -> Response:
    """Log a browser in by a link. Raises `RefusedError` for one that is over."""
    once = secret_of(call.params["once"])
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewLogin(digest=digest_of(secret), at=call.at, look_only=not call.connection.is_private)
    login = None if once is None else await site.logins.use_link(digest_of(once), new)
    if login is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, _OVER, kind=ErrorKind.AUTH)
    return _begin(site, call, secret, parse_qs(call.body.decode(errors="replace")).get("next", ["/"])[0])


def _begin(site: Site, call: WebCall, secret: str, wanted: str) -> Response:
    """Give a browser the cookie of its login, and lead it on."""
    answer = see_other(next_path(wanted))
    tls = site.is_tls(call)
    name, seconds = SECURE_COOKIE if tls else COOKIE, int(LONGEST.total_seconds())
    # Lax, not strict: a link in a chat leads to a page of ours, and whoever follows it is logged in.
    answer.set_cookie(name, secret, max_age=seconds, path="/", httponly=True, samesite="lax", secure=tls)
    return answer


async def log_out(site: Site, call: WebCall) -> Response:
    """End the login of the browser."""
    if call.caller is not None and call.caller.login is not None and call.caller.login.id != NO_ROW:
        await site.logins.end(call.caller.login.id, now=call.at)
    answer = see_other("/login")
    tls = site.is_tls(call)
    answer.delete_cookie(SECURE_COOKIE if tls else COOKIE, path="/", httponly=True, samesite="lax", secure=tls)
    return answer
