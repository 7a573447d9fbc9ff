"""May this host or URL be asked? Link-local and metadata addresses never are, in whatever spelling.

What counts as one: RFC 3927 and RFC 4291 link-local ranges, and the addresses under which cloud providers serve
credentials to their machines. Numbers are taken only as plain dotted quads, since resolvers read ``0251.0376.1`` too.
"""

from __future__ import annotations

import ipaddress
import posixpath
from typing import Final
from urllib.parse import unquote

from claudeops.domain import regex
from claudeops.domain.policy.secret_names import is_secret_name

_METADATA_HOSTS: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "metadata.internal", "instance-data"}
    | {"instance-data.ec2.internal", "metadata.azure.internal", "metadata.platformequinix.com", "metadata.packet.net"}
)
_METADATA_ADDRESSES: Final = frozenset(
    {"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"}
)
_WRAPPED_ADDRESS: Final = regex.Pattern(r"(?:^|\.)(?:nip\.io|sslip\.io|xip\.io|localtest\.me|lvh\.me|traefik\.me)$")
_HOST: Final = regex.Pattern(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?")
_NUMERIC: Final = regex.Pattern(r"(?:0[xX][0-9A-Fa-f]*|\d+)")
_URL: Final = regex.Pattern(
    r"(?:(?P<scheme>[A-Za-z][\w+.-]*)://)?(?P<host>\[[^]/?#@]*\]|[^/?#:@\\]+)(?::(?P<port>\d{1,5}))?(?P<rest>[/?#].*)?"
)
_RANGE: Final = regex.Pattern(r"\[\w+-\w+")  # curl(1): [1-100] becomes a hundred requests
_INTERFACES: Final = frozenset({"2375", "2376", "4243", "2379", "2380", "10250", "10255"})
"""Ports of docker's engine, etcd and the kubelet."""
_TELLS_STATE: Final = ("/health", "/healthz", "/version", "/_ping", "/livez", "/readyz", "/metrics")
_ENGINE: Final = regex.Pattern(
    r"(?:/v[\d.]+)?(?:/libpod)?/(?:(?:containers|services|tasks|configs|secrets|exec|images|nodes|plugins)/.*json"
    r"|containers/.*/(?:archive|export|top))"
    r"|/v[\d.]+(?:/libpod)?/(?:services|tasks|configs|secrets|swarm|exec)(?:/.*)?"
    r"|(?:/.*)?/(?:actuator|manage|management)/(?:env|configprops|heapdump|threaddump|httptrace)(?:/.*)?"
    r"|(?:/.*)?/(?:phpinfo(?:\.php)?|debug/vars|debug/pprof/.*|v1/kv(?:/.*)?|\.aws/.*|\.git/.*)"
)
"""Paths of docker's engine that tell the environment of a container, and those of others that print their own."""
_DECODED: Final = 2  # times: some servers decode what was decoded before
_GUESSED_SCHEMES: Final = ("ftp.", "dict.", "ldap.", "imap.", "smtp.", "pop3.")  # curl(1), "URL": guessed from the host


def refuse_host(host: str) -> str | None:
    """Return why a host name or address may not be asked, or None."""
    plain = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if ":" in plain:
        return _refuse_address(plain, host)
    if not _HOST.fullmatch(plain):
        return f"{host!r} is no plain host name or address"
    name = plain.rstrip(".").lower()
    if _NUMERIC.fullmatch(name.rpartition(".")[2]):
        return _refuse_address(name, host)
    if name in _METADATA_HOSTS or _WRAPPED_ADDRESS.search(name):
        return f"{host} stands for an address that is never asked"
    return None


def refuse_url(url: str, *, schemes: tuple[str, ...] = ("http", "https")) -> str | None:
    """Return why a URL may not be fetched, or None; without a scheme it counts as http."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return f"{url[:80]!r} is no plain URL: write http(s)://host:port/path without credentials"
    if (parts["scheme"] or "http").lower() not in schemes:
        return f"{parts['scheme']}:// is not allowed: only {' and '.join(schemes)}"
    if not parts["scheme"] and parts["host"].lower().startswith(_GUESSED_SCHEMES):
        return f"{url[:80]}: write the scheme out"
    if _RANGE.search(parts["rest"] or ""):
        return f"{url[:80]}: a range of addresses is not asked at once"
    return refuse_host(parts["host"]) or _refuse_interface(url, parts["port"], parts["rest"] or "")


def _refuse_interface(url: str, port: str | None, rest: str) -> str | None:
    """Return why what a URL names may not be fetched, or None: an interface that tells environments or keys."""
    path = rest.partition("?")[0].partition("#")[0]
    for _ in range(_DECODED):
        path = unquote(path)
    path = posixpath.normpath("/" + path.lower().lstrip("/"))
    if port in _INTERFACES and path not in _TELLS_STATE:
        return f"{url[:80]}: what answers at port {port} would show environments: ask {', '.join(_TELLS_STATE[:3])}"
    if _ENGINE.fullmatch(path) or any(is_secret_name(name) for name in path.split("/") if name):
        return f"{url[:80]} would show environments or secrets, which are never asked for"
    return None


def _refuse_address(text: str, shown: str) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{shown!r} is no plain address: write it as four decimal numbers"
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    if address.is_link_local or inner.is_link_local or str(inner) in _METADATA_ADDRESSES:
        return f"{shown} is a link-local or metadata address, which is never asked"
    if inner.is_multicast or (address.version == 6 and (address.is_reserved or "%" in text)):  # noqa: PLR2004 - IP version
        return f"{shown} is an address that is never asked"
    return None
