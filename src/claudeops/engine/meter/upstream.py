"""The way from the meter to the model API: address, credential, proxy, certificates. Only the daemon knows them."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypedDict
from urllib.parse import SplitResult, unquote, urlsplit

import httpcore2

from claudeops.engine.meter.bodies import OutgoingBody
from claudeops.errors import ConfigurationError
from claudeops.harness.protocol import CredentialKind

PUBLIC_URL: Final = "https://api.anthropic.com"

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
_OAUTH_BETA: Final = b"oauth-2025-04-20"  # without it the API takes no OAuth token
_BETA: Final = b"anthropic-beta"

_HOP_BY_HOP: Final = frozenset(
    # RFC 9110, 7.6.1: they apply to one connection only.
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_PASSED: Final = frozenset(
    (
        *(b"accept", b"user-agent", b"x-app", b"anthropic-version", b"anthropic-beta"),
        *(b"anthropic-dangerous-direct-browser-access", b"traceparent", b"tracestate"),
    )
)
"""The headers of a child that go to the API; others could change what is asked for, and its price."""

_PASSED_TOO: Final = (b"x-stainless-", b"x-claude-code-")

_NOT_FOR_CHILDREN: Final = _HOP_BY_HOP | {b"set-cookie"}

NEVER_SENT: Final = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout, httpcore2.ProxyError)
"""After these errors the API has received nothing of a request."""

BROKEN: Final = (*NEVER_SENT, httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)
"""Errors that end an exchange before the end of its answer."""

RawHeaders = list[tuple[bytes, bytes]]


class _Kept(TypedDict):
    """How idle connections are kept, as httpcore2 takes it."""

    max_connections: int | None
    max_keepalive_connections: int
    keepalive_expiry: float


_KEPT: Final = _Kept(max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS, keepalive_expiry=_KEPT_SECONDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelUpstream:
    """The model API as the operator has configured it."""

    base_url: str | None = field(default=None, repr=False)  # None: the public one; no slash at the end
    credential: CredentialKind = CredentialKind.API_KEY
    secret: str | None = field(default=None, repr=False)  # None: a gateway that needs none
    network: Mapping[str, str] = field(default_factory=dict, repr=False)  # proxies and CA files, by variable

    def connections(self, *, trusted: ssl.SSLContext | None = None) -> ModelApi:
        """Return the connections to the model API, for the whole life of the meter.

        ``trusted``: what `trusted_certificates` has read, which takes time. Raises `ConfigurationError` if the proxy or
        a file of certificates cannot be used.
        """
        return ModelApi(self, connection_pool(self.url, self.network, trusted=trusted))

    @property
    def url(self) -> str:
        """Return the address below which the API's paths are."""
        return self.base_url or PUBLIC_URL

    @property
    def proxy(self) -> str | None:
        """Return the proxy to use, if any; raises `ConfigurationError` for one that does not speak HTTP."""
        return _proxy(self.network, self.url)

    def headers(self, headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
        """Return a child's headers as they go to the API, with the real credential instead of its token."""
        kept = [(name, value) for name, value in headers if name in _PASSED or name.startswith(_PASSED_TOO)]
        # The answer must not be compressed, because the meter reads the usage from it.
        kept += [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        if self.secret is None:
            return kept
        if self.credential is CredentialKind.OAUTH_TOKEN:
            return [*_with_oauth(kept), (b"authorization", b"Bearer " + self.secret.encode())]
        return [*kept, (b"x-api-key", self.secret.encode())]


class ModelApi:
    """The connections to the model API; idle ones are kept for the next call.

    It uses httpcore2 without the client of httpx2 around it: what that adds (redirects, cookies, authentication, the
    texts of answers) is not needed here, and takes as long as the connection itself.
    """

    def __init__(self, upstream: ModelUpstream, pool: httpcore2.AsyncConnectionPool) -> None:
        self._upstream = upstream
        self._pool = pool
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
    if (through := _proxy(network, url)) is None:
        return httpcore2.AsyncConnectionPool(ssl_context=certificates, **_KEPT)
    proxy = urlsplit(through)
    return httpcore2.AsyncHTTPProxy(
        _url(proxy, b"/"), proxy_auth=_user_and_password(proxy), ssl_context=certificates, **_KEPT
    )


def answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers of an answer that the child gets."""
    lower = ((name.lower(), value) for name, value in headers)
    return [(name, value) for name, value in lower if name not in _NOT_FOR_CHILDREN]


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


def _with_oauth(headers: RawHeaders) -> RawHeaders:
    """Return the headers with the beta feature that OAuth needs; a CLI that has a token itself names it already."""
    betas = [value for name, value in headers if name == _BETA]
    if any(_OAUTH_BETA in value for value in betas):
        return headers
    others = [header for header in headers if header[0] != _BETA]
    return [*others, (_BETA, b",".join((_OAUTH_BETA, *betas)))]


def _proxy(network: Mapping[str, str], url: str) -> str | None:
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    # Lower case outranks upper case, as everywhere.
    proxy = network.get(name) or network.get(name.upper())
    if not proxy or _is_excepted(parts, network.get("no_proxy") or network.get("NO_PROXY") or ""):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if urlsplit(proxy).scheme not in {"http", "https"}:
        raise ConfigurationError(
            f"{name.upper()} is no http or https proxy (not shown, it may hold a password): set one, or name the "
            f"host {parts.hostname} in NO_PROXY."
        )
    return proxy


def _is_excepted(url: SplitResult, no_proxy: str) -> bool:
    """Return whether a host is reached without the proxy: it or a domain above it is listed, perhaps with its port."""
    host = (url.hostname or "").lower()
    for entry in (listed.strip().lower().lstrip("*.") or listed.strip() for listed in no_proxy.split(",")):
        name, _, port = entry.partition(":")
        if entry == "*" or (name and (host == name or host.endswith(f".{name}")) and port in {"", str(url.port or "")}):
            return True
    return False


def trusted_certificates(network: Mapping[str, str]) -> ssl.SSLContext:
    """Return the trusted certificates; ``SSL_CERT_*`` replace the system's, the other variables add to them.

    Raises `ConfigurationError` if a file cannot be used.
    """
    file, directory = network.get("SSL_CERT_FILE"), network.get("SSL_CERT_DIR")
    try:
        context = ssl.create_default_context(cafile=file, capath=directory)
    except OSError as error:
        raise ConfigurationError(
            f"SSL_CERT_FILE or SSL_CERT_DIR cannot be read ({error}): correct or unset it."
        ) from error
    for name in ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"):
        if (more := network.get(name)) is not None:
            try:
                context.load_verify_locations(more)
            except OSError as error:
                raise ConfigurationError(f"{name} cannot be read ({error}): correct or unset it.") from error
    return context
