"""What is answered where something is refused or fails: a problem document (RFC 9457), in the words of the envelope."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from claudeops.errors import ErrorKind

MEDIA_TYPE: Final = "application/problem+json"

_HINTS: Final = {
    400: "Look at the request; `docs/reference/listener.md` describes what is taken.",
    401: "Send a token as `Authorization: Bearer cops_…`; `claudeops token create` makes one.",
    403: "A token needs the scope (`claudeops token create --scope …`), a person the role.",
    404: "Look at the address; `docs/reference/listener.md` lists them all.",
    409: "Look at how it stands now; the detail says what is in the way.",
    421: "Name the host by which you call in CLAUDEOPS_PUBLIC_URL.",
    503: "Send it again later.",
}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class RefusedError(Exception):
    """A request that is answered with a problem; ``str()`` is the sentence for whoever sent it."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: ErrorKind = ErrorKind.USAGE,
        retry_after: int | None = None,
        allow: str = "",
        closes: bool = False,
        hint: str = "",
    ) -> None:
        """Keep what is answered; ``retry_after`` in seconds, for what may work later; ``allow``: methods.

        ``closes``: the connection ends with the answer. ``hint``: the remedy; empty: the usual one of the status.
        """
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.retry_after = retry_after
        self.allow = allow
        self.closes = closes
        self.hint = hint


def later(detail: str, *, seconds: int, closes: bool = False) -> RefusedError:
    """Return the answer after which senders try again: Alertmanager does so after 5xx alone, and not after 429."""
    return RefusedError(503, detail, kind=ErrorKind.RUNTIME, retry_after=seconds, closes=closes)


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The document."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    operation: str
    retryable: bool
    hint: str


def problem(error: RefusedError, *, instance: str, operation: str) -> Response:
    """Return the answer; ``instance`` is the path, ``operation`` the endpoint's name."""
    document = Problem(
        type=f"urn:claudeops:error:{error.kind.value}",
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=str(error),
        instance=instance,
        operation=operation,
        retryable=error.retry_after is not None,
        hint=error.hint or _HINTS.get(error.status, _HINTS[400]),
    )
    headers = dict(_HEADERS)
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="claudeops"'
    if error.allow:
        headers["Allow"] = error.allow
    if error.closes:
        headers["Connection"] = "close"
    return Response(msgspec.json.encode(document), status_code=error.status, media_type=MEDIA_TYPE, headers=headers)


def answer(value: object, *, status: int) -> Response:
    """Return a value as a JSON answer."""
    return encoded(msgspec.json.encode(value), status=status)


def encoded(content: bytes, *, status: int, media: str = "application/json") -> Response:
    """Return bytes as an answer that a browser neither guesses at nor shows as a page."""
    return Response(content, status_code=status, media_type=media, headers=dict(_HEADERS))
