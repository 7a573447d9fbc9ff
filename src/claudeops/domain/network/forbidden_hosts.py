"""Addresses that are never asked: metadata services, link-local addresses, and what hides them."""

from __future__ import annotations

import ipaddress
from typing import Final

from claudeops.text import regex

_METADATA_HOSTS: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "metadata.internal", "instance-data"}
    | {"instance-data.ec2.internal", "metadata.azure.internal", "metadata.platformequinix.com", "metadata.packet.net"}
)
METADATA_ADDRESSES: Final = frozenset(
    {"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"}
)
_WRAPPED_ADDRESS: Final = regex.Pattern(r"(?:^|\.)(?:nip\.io|sslip\.io|xip\.io|localtest\.me|lvh\.me|traefik\.me)$")
_HOST: Final = regex.Pattern(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?\.?")
_NUMERIC: Final = regex.Pattern(r"(?:0[xX][0-9A-Fa-f]*|\d+)")


def refuse_host(host: str) -> str | None:
    """Return why a host name or address may not be asked, or None."""
    plain = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if ":" in plain:
        return _refuse_address(plain, host)
    if not _HOST.fullmatch(plain):
        return f"{host!r} is not a plain host name or address"
    name = plain.rstrip(".").lower()
    if _NUMERIC.fullmatch(name.rpartition(".")[2]):
        return _refuse_address(name, host)
    if name in _METADATA_HOSTS or _WRAPPED_ADDRESS.search(name):
        return f"{host} stands for an address that is never asked"
    return None


def _refuse_address(text: str, host: str) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{host!r} is not a plain address: write it as four decimal numbers"
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    if address.is_link_local or inner.is_link_local or str(inner) in METADATA_ADDRESSES:
        return f"{host} is a link-local or metadata address, which is never asked"
    odd = address.version == 6 and ((address.is_reserved and not address.is_loopback) or "%" in text)  # noqa: PLR2004 - IP version
    if inner.is_multicast or odd:
        return f"{host} is an address that is never asked"
    return None
