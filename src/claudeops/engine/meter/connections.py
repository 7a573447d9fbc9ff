"""The connections from the meter to the model API.

Their configuration is apart (``upstream.py``): a start checks it, and an HTTP client takes long to import.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable, Mapping
from typing import Final, Self, TypedDict
from urllib.parse import SplitResult, unquote, urlsplit

import httpcore2

from claudeops.engine.meter.bodies import OutgoingBody
from claudeops.engine.meter.upstream import ModelUpstream, RawHeaders, proxy_of, trusted_certificates

SILENCE_SECONDS: Final = 600.0
"""How long an answer may be silent; the CLI itself waits as long. The API sends a ping every few seconds."""

_CONNECT_SECONDS: Final = 30.0
_TIMEOUTS: Final = {
    "connect": _CONNECT_SECONDS,
    "read": SILENCE_SECONDS,
    "write": SILENCE_SECONDS,
    "pool": SILENCE_SECONDS,
}
_KEPT_CONNECTIONS: Final = 20  # idle ones
_KEPT_SECONDS: Final = 60.0

NEVER_SENT: Final = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout, httpcore2.ProxyError)
"""After these errors the API has received nothing of a request."""

BROKEN: Final = (*NEVER_SENT, httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)
"""Errors that end an exchange before the end of its answer."""


class _Kept(TypedDict):
    """How idle connections are kept, as httpcore2 takes it."""

    max_connections: int | None
    max_keepalive_connections: int
    keepalive_expiry: float


_KEPT: Final = _Kept(max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS, keepalive_expiry=_KEPT_SECONDS)


class ModelApi:
    """The connections to the model API; idle ones are kept for the next call.

    It uses httpcore2 without the client of httpx2 around it: what that adds (redirects, cookies, authentication, the
    texts of answers) is not needed here, and takes as long as the connection itself.
    """

    def __init__(self, upstream: ModelUpstream, *, trusted: ssl.SSLContext | None = None) -> None:
        """Prepare the connections, for the whole life of the meter.

        ``trusted``: what `trusted_certificates` has read, which takes time. Raises `ConfigurationError` if the proxy or
        a file of certificates cannot be used.
        """
        self._upstream = upstream
        self._pool = connection_pool(upstream.url, upstream.network, trusted=trusted)
        base = urlsplit(upstream.url)
        self._path = base.path.encode()
        self._url = _url(base, b"/")
        self._host: RawHeaders = [(b"host", _host(base))]
        if (named := _user_and_password(base)) is not None:
            self._host.append((b"authorization", b"Basic " + base64.b64encode(b":".join(named))))

    async def __aenter__(self) -> Self:
        """Return this object; connections are made when they are needed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._pool.aclose()

    def request(self, path: str, headers: Iterable[tuple[bytes, bytes]], body: OutgoingBody) -> httpcore2.Request:
        """Return a child's request as it goes to the API, with the API's path, the real credential and ``body``."""
        url, target = self._url, self._path + path.encode()
        return httpcore2.Request(
            b"POST",
            httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=target),
            headers=[*self._host, *self._upstream.headers(headers), (b"content-length", str(body.length).encode())],
            content=body,
            extensions={"timeout": _TIMEOUTS},
        )

    async def send(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request; return the head of the answer. The caller closes the answer.

        Raises one of `BROKEN` when the connection breaks or nothing comes.
        """
        return await self._pool.handle_async_request(request)


def connection_pool(
    url: str, network: Mapping[str, str], *, trusted: ssl.SSLContext | None = None
) -> httpcore2.AsyncConnectionPool:
    """Return the connections to a server, through its proxy; ``network`` has proxies and CA files, by variable.

    ``trusted``: what `trusted_certificates` has read, which takes time, for whoever opens more than one.
    Raises `ConfigurationError` if the proxy or a file of certificates cannot be used.
    """
    certificates = trusted or trusted_certificates(network)
    if (through := proxy_of(network, url)) is None:
        return httpcore2.AsyncConnectionPool(ssl_context=certificates, **_KEPT)
    proxy = urlsplit(through)
    return httpcore2.AsyncHTTPProxy(
        _url(proxy, b"/"), proxy_auth=_user_and_password(proxy), ssl_context=certificates, **_KEPT
    )


def _url(parts: SplitResult, target: bytes) -> httpcore2.URL:
    host = (parts.hostname or "").encode("idna")
    return httpcore2.URL(scheme=parts.scheme.encode(), host=host, port=parts.port, target=target)


def _host(parts: SplitResult) -> bytes:
    """Return the value of the Host header: RFC 9110, 7.2."""
    host = (parts.hostname or "").encode("idna")
    host = b"[%s]" % host if b":" in host else host
    return host if parts.port is None else b"%s:%d" % (host, parts.port)


def _user_and_password(parts: SplitResult) -> tuple[bytes, bytes] | None:
    if parts.username is None:
        return None
    return unquote(parts.username).encode(), unquote(parts.password or "").encode()
