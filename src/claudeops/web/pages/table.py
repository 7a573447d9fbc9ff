"""The rows of the table of endpoints that are pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from starlette.responses import Response

from claudeops.domain.web.token import ScopeKind
from claudeops.web.endpoints import Call, Endpoint, Query
from claudeops.web.pages import login
from claudeops.web.pages.now import now
from claudeops.web.pages.site import Site

_READ: Final = ScopeKind.READ.value

Answering = Callable[[Site, Call], Awaitable[Response]]


def page_endpoints(site: Site) -> Sequence[Endpoint]:
    """Return every page, what logs people in and out, and the files that pages load."""
    page = partial(_page, site)
    return (
        *_logins(site),
        page("/", now, "The state of everything: what is wrong, who is on it, what waits for a person."),
    )


def _page(site: Site, path: str, answering: Answering, summary: str, *, query: Query = None) -> Endpoint:
    return Endpoint(
        method="GET",
        path=path,
        scope=_READ,
        page=True,
        query=query,
        answer=str,
        handler=partial(answering, site),
        summary=summary,
    )


def _logins(site: Site) -> Sequence[Endpoint]:
    return (
        Endpoint(
            method="GET",
            path="/static/{name}",
            scope=None,
            asks_name=False,
            answer=bytes,
            handler=site.pages.files.serve,
            summary="A file that pages load.",
        ),
        Endpoint(
            method="GET",
            path="/login",
            scope=None,
            page=True,
            query=login.After,
            answer=str,
            handler=partial(login.login_page, site),
            summary="How to log in.",
        ),
        Endpoint(
            method="GET",
            path="/setup/{once}",
            scope=None,
            asks_name=False,
            page=True,
            query=login.After,
            answer=str,
            handler=partial(login.link_page, site),
            summary="A link of `claudeops login-link`: the button that uses it.",
        ),
        Endpoint(
            method="POST",
            path="/setup/{once}",
            scope=None,
            asks_name=False,
            page=True,
            body=bytes,
            answer=str,
            status=303,
            handler=partial(login.use_link, site),
            summary="Logs a browser in by a link, which is used up.",
        ),
        Endpoint(
            method="POST",
            path="/logout",
            scope=None,
            page=True,
            body=bytes,
            answer=str,
            status=303,
            handler=partial(login.log_out, site),
            summary="Ends the login of the browser.",
        ),
    )
