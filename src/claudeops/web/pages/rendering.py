"""From values to HTML: templates, what they know, and the headers with which a page is sent.

Every text is made harmless twice: `visible` shows what would hide, and autoescaping makes it text. There is no way
around it: no template marks a text as safe, which a test looks for.
"""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from claudeops.domain.memories.categories import Category
from claudeops.store.reading.calls import CallVerdict
from claudeops.text.escapes import visible
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.navigation import OFTEN, place_of
from claudeops.web.pages.static import Files
from claudeops.web.problems import RefusedError
from claudeops.wording.readable import count_of, length_of, relative, usd
from claudeops.wording.stream import ShownLine
from claudeops.wording.why import DECISIONS, SKIPS

_WORTH_PACKING: Final = 600  # bytes
_LEVEL: Final = 5  # of gzip: two thirds of the best size gain in a fifth of its time
_LOGIN: Final = "/login"


_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class PageState(msgspec.Struct, frozen=True, kw_only=True):
    """What every page carries: the worst that is so now."""

    level: str  # good, warn, bad
    text: str  # one short sentence


@dataclass(kw_only=True)
class Pages:
    """Renders pages."""

    version: str
    files: Files = field(default_factory=Files)

    @cached_property
    def environment(self) -> Environment:
        """What templates are read and filled with."""
        made = Environment(
            loader=PackageLoader("claudeops.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        made.globals |= {
            "file": self.files.address,
            "version": self.version,
            "count_of": count_of,
            "decisions": DECISIONS,
            "categories": tuple(Category),
            "skips": SKIPS,
            "often": OFTEN,
            "place_of": place_of,
        }
        made.filters |= {"usd": usd, "took": _length, "iso": _iso, "path": _path, "clock": _clock, "time": _time}
        return made

    def page(
        self,
        call: WebCall,
        template: str,
        *,
        title: str,
        state: PageState | None = None,
        values: Mapping[str, object] = _NOTHING,
    ) -> Response:
        """Return a page, or for a part of one its content; ``values`` are the template's."""
        nonce = secrets.token_urlsafe(16)
        is_part = call.headers.get("hx-request") == "true"
        text = self.environment.get_template(template).render(
            layout="part.html" if is_part else "page.html",
            title=title,
            state=state,
            nonce=nonce,
            login=None if call.caller is None else call.caller.login,
            cap="" if call.caller is None else call.caller.cap,
            path=call.path,
            address=_address(call.path, call.query),
            query=call.query,
            ago=_Ago(call.at),
            now=call.at,
            **values,
        )
        return html(text, nonce=nonce, status=HTTPStatus.OK, packed="gzip" in call.headers.get("accept-encoding", ""))

    def lines(self, lines: Sequence[ShownLine], verdicts: Mapping[str, CallVerdict]) -> str:
        """Return lines of a session's log as items of a list, without attributes that act."""
        return self.environment.get_template("lines.html").render(lines=lines, verdicts=verdicts)

    def refused(self, error: RefusedError, path: str) -> Response:
        """Return the page for what is refused; whoever must log in first is led there."""
        if error.status == HTTPStatus.UNAUTHORIZED:
            return RedirectResponse(f"{_LOGIN}?next={quote(path, safe='')}", HTTPStatus.SEE_OTHER, headers=_FIXED)
        nonce = secrets.token_urlsafe(16)
        text = self.environment.get_template("refused.html").render(
            layout="page.html",
            title=HTTPStatus(error.status).phrase,
            state=None,
            nonce=nonce,
            login=None,
            cap="",
            path="",
            address="",
            detail=str(error),
        )
        answer = html(text, nonce=nonce, status=error.status, packed=False)
        if error.retry_after is not None:
            answer.headers["Retry-After"] = str(error.retry_after)
        return answer


def see_other(path: str) -> Response:
    """Return the answer after which a browser goes to another page of ours."""
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers=_FIXED)


def html(text: str, *, nonce: str, status: int, packed: bool) -> Response:
    """Return HTML with the headers under which nothing but our own files is loaded, and no text becomes code."""
    body, headers = text.encode(), {**_FIXED, "Content-Security-Policy": _POLICY.format(nonce=nonce)}
    if packed and len(body) >= _WORTH_PACKING:
        body, headers["Content-Encoding"] = gzip.compress(body, _LEVEL, mtime=0), "gzip"
    return Response(body, status_code=status, media_type="text/html; charset=utf-8", headers=headers)


_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx"
)
_FIXED: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Vary": "HX-Request, Accept-Encoding, Cookie",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class _Ago(msgspec.Struct, frozen=True):
    """How long ago a moment was, as seen from when the page was rendered."""

    now: datetime

    def __call__(self, at: datetime) -> str:
        return relative(at, self.now)


def _shown(value: object) -> object:
    """Return what a template shows of a value."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Enum):
        return str(value.value)
    return visible(value) if isinstance(value, str) else value


def _length(value: timedelta | float | None) -> str:
    """Return a length of time; a number is in seconds."""
    return length_of(timedelta(seconds=value) if isinstance(value, int | float) else value)


def _iso(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S}"


def _path(name: str) -> str:
    """Return a name as a part of an address."""
    return quote(name, safe="")


def _address(path: str, query: Mapping[str, str]) -> str:
    pairs: Sequence[str] = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items()]
    return f"{path}?{'&'.join(pairs)}" if pairs else path
