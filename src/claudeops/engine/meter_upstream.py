"""The way from the meter to the model API: address, credential, proxy, certificates. Known to the daemon alone."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

import httpx2

from claudeops.errors import ConfigurationError
from claudeops.harness.protocol import CredentialKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PUBLIC_URL: Final = "https://api.anthropic.com"

SILENCE_SECONDS: Final = 600.0
"""How long an answer may say nothing; the CLI itself waits as long. The API sends a ping every few seconds."""

_CONNECT_SECONDS: Final = 30.0
_OAUTH_BETA: Final = b"oauth-2025-04-20"  # without it the API takes no OAuth token
_BETA: Final = b"anthropic-beta"

_HOP_BY_HOP: Final = frozenset(
    # RFC 9110, 7.6.1: of one connection only.
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
_OURS: Final = frozenset((b"host", b"content-length", b"accept-encoding", b"authorization", b"x-api-key", b"cookie"))
"""What a request to the API gets from us alone."""

RawHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """The model API as the operator has it."""

    base_url: str | None = field(default=None, repr=False)  # None: the public one; no slash at the end
    credential: CredentialKind = CredentialKind.API_KEY
    secret: str | None = field(default=None, repr=False)  # None: a gateway that needs none
    network: Mapping[str, str] = field(default_factory=dict, repr=False)  # proxies and CA files, by variable

    def client(self) -> httpx2.AsyncClient:
        """Return a client for the whole life of the meter.

        Raises `ConfigurationError` when the proxy or a file of certificates cannot be used.
        """
        return httpx2.AsyncClient(
            verify=_certificates(self.network),
            proxy=self.proxy,
            trust_env=False,  # the operator's variables come through `network`
            timeout=httpx2.Timeout(SILENCE_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=60.0),
        )

    @property
    def url(self) -> str:
        """Return the address below which the API's paths are."""
        return self.base_url or PUBLIC_URL

    @property
    def proxy(self) -> str | None:
        """Return the proxy on the way there; `ConfigurationError` for one that speaks no HTTP."""
        return _proxy(self.network, self.url)

    def request(self, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> httpx2.Request:
        """Return a child's request as it goes to the API: same path, query and body, our credential."""
        return httpx2.Request("POST", f"{self.url}{path}", headers=self._headers(headers), content=body)

    def _headers(self, headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
        kept = [(name, value) for name, value in headers if name not in _HOP_BY_HOP and name not in _OURS]
        # Usage is read out of what passes by, so it must not be compressed.
        kept.append((b"accept-encoding", b"identity"))
        if self.secret is None:
            return kept
        if self.credential is CredentialKind.OAUTH_TOKEN:
            return [*_with_oauth(kept), (b"authorization", b"Bearer " + self.secret.encode())]
        return [*kept, (b"x-api-key", self.secret.encode())]


def answer_headers(headers: httpx2.Headers) -> RawHeaders:
    """Return the headers of an answer as the child gets them."""
    dropped = {*_HOP_BY_HOP, b"set-cookie"}
    return [(name.lower(), value) for name, value in headers.raw if name.lower() not in dropped]


def _with_oauth(headers: RawHeaders) -> RawHeaders:
    """Return the headers with the beta feature that OAuth needs; a CLI that has a token itself asks for it."""
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
            f"{name.upper()} is no http or https proxy (not shown, it may hold a password): set one, name the host of "
            "the model API in NO_PROXY, or switch CLAUDEOPS_METER off."
        )
    return proxy


def _is_excepted(url: SplitResult, no_proxy: str) -> bool:
    """Tell whether a host is reached without the proxy: it, or a domain it is in, is listed, perhaps with its port."""
    host = (url.hostname or "").lower()
    for entry in (listed.strip().lower().lstrip("*.") or listed.strip() for listed in no_proxy.split(",")):
        name, _, port = entry.partition(":")
        if entry == "*" or (name and (host == name or host.endswith(f".{name}")) and port in {"", str(url.port or "")}):
            return True
    return False


def _certificates(network: Mapping[str, str]) -> ssl.SSLContext:
    """Return what servers are checked against; ``SSL_CERT_*`` replace the system's certificates, others add to them."""
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
