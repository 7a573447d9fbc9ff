"""How values leave: lists with their cursor, single things with an `ETag`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Final, Generic, TypeVar

import msgspec
from starlette.responses import Response

from claudeops.domain.answers import document, plain
from claudeops.domain.listing import Listing, Page
from claudeops.store.reading import Connection
from claudeops.web.endpoints import JSON, WebCall
from claudeops.web.listings import Paged, cursor, listing
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError, answer, encoded

T = TypeVar("T")
Q = TypeVar("Q", bound=Paged)

NOT_MODIFIED: Final = int(HTTPStatus.NOT_MODIFIED)

Reading = Callable[[Connection, Listing, Q, WebCall], Page[T]]
"""Reads a page of a list: with what the list shows, the query that says it, and the call."""


class Items(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list, newest first."""

    items: tuple[T, ...]
    next: str | None  # `before` of the page that follows; None: this is the last one
    newest: str | None = None  # `after` for what comes later; None: nothing has come yet, or the list is whole


async def list_of(site: Site, query: type[Q], read: Reading[Q, T], call: WebCall) -> Response:
    """Answer with a page of a list."""
    asked = call.asked(query)
    wanted = listing(asked, call.at)
    found = await site.database.read(lambda connection: read(connection, wanted, asked, call))
    return whole(found.items, next_page=cursor(found.before), newest=cursor(found.newest))


def whole(items: Sequence[object], *, next_page: str | None = None, newest: str | None = None) -> Response:
    """Return the answer with a list, or with a page of one."""
    return answer({"items": plain(tuple(items)), "next": next_page, "newest": newest}, status=HTTPStatus.OK)


def single(call: WebCall, value: msgspec.Struct | None, missing: str = "") -> Response:
    """Return the answer with one thing; without a body where the caller has this very one.

    Raises `RefusedError` with the sentence ``missing`` where there is none.
    """
    if value is None:
        raise RefusedError(404, missing)
    return tagged(call, msgspec.json.encode(document(value)))


def tagged(call: WebCall, content: bytes, *, media: str = JSON) -> Response:
    """Return an answer with its `ETag`; without a body where the caller has this very one."""
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    known = [each.strip().removeprefix("W/") for each in call.headers.get("if-none-match", "").split(",")]
    is_known = tag in known or "*" in known
    found = encoded(b"" if is_known else content, status=NOT_MODIFIED if is_known else HTTPStatus.OK, media=media)
    found.headers["ETag"] = tag
    found.headers["Cache-Control"] = "no-cache"
    if is_known:
        del found.headers["Content-Type"]
    return found


async def read_one(
    site: Site, call: WebCall, read: Callable[[Connection], msgspec.Struct | None], missing: str = ""
) -> Response:
    """Answer with one thing of the database."""
    return single(call, await site.database.read(read), missing)
