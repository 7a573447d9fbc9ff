"""The way from the meter to the model API: address, credential, proxy, certificates. Only the daemon knows them."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

from claudeops.errors import ConfigurationError
from claudeops.harness.protocol import CredentialKind

PUBLIC_URL: Final = "https://api.anthropic.com"

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

RawHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelUpstream:
    """The model API as the operator has configured it."""

    base_url: str | None = field(default=None, repr=False)  # None: the public one; no slash at the end
    credential: CredentialKind = CredentialKind.API_KEY
    secret: str | None = field(default=None, repr=False)  # None: a gateway that needs none
    network: Mapping[str, str] = field(default_factory=dict, repr=False)  # proxies and CA files, by variable

    @property
    def url(self) -> str:
        """Return the address below which the API's paths are."""
        return self.base_url or PUBLIC_URL

    @property
    def proxy(self) -> str | None:
        """Return the proxy to use, if any; raises `ConfigurationError` for one that cannot be used."""
        return proxy_of(self.network, self.url)

    def check(self) -> None:
        """Raise `ConfigurationError` for a proxy that cannot be used."""
        _ = self.proxy

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


def answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return the headers of an answer that the child gets."""
    lower = ((name.lower(), value) for name, value in headers)
    return [(name, value) for name, value in lower if name not in _NOT_FOR_CHILDREN]


def _with_oauth(headers: RawHeaders) -> RawHeaders:
    """Return the headers with the beta feature that OAuth needs; a CLI that has a token itself names it already."""
    betas = [value for name, value in headers if name == _BETA]
    if any(_OAUTH_BETA in value for value in betas):
        return headers
    others = [header for header in headers if header[0] != _BETA]
    return [*others, (_BETA, b",".join((_OAUTH_BETA, *betas)))]


def proxy_of(network: Mapping[str, str], url: str) -> str | None:
    """Return the proxy for a server; raises `ConfigurationError` for one that cannot be used."""
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    # Lower case outranks upper case, as everywhere.
    proxy = network.get(name) or network.get(name.upper())
    if not proxy or _is_excepted(parts, network.get("no_proxy") or network.get("NO_PROXY") or ""):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not _is_http(proxy):
        raise ConfigurationError(
            f"{name.upper()} is no http or https proxy (not shown, it may hold a password): set one, or name the "
            f"host {parts.hostname} in NO_PROXY."
        )
    return proxy


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - a port that is no number is only noticed here
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


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
