"""Hosts with ports, as values, each host in one spelling. Imports no policy, which has such values itself."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

import msgspec

from claudeops.domain.estate.strangers import address_in, is_loopback

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

LOCALHOST: Final = "localhost"
USUAL: Final = frozenset({22, 80, 443})
"""Ports of a host that is named without one."""

_SHOWN: Final = 60  # hosts in a sentence
_UNSPECIFIED: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared; connecting there reaches this machine


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts and ports that a session may connect to."""

    host: str  # a name or address, lower case, without brackets; or a network: ``10.0.0.0/8``
    tcp: frozenset[int] = frozenset()
    udp: frozenset[int] = frozenset()
    named: frozenset[int] = frozenset()  # those of ``tcp`` that somebody wrote down: of this machine only they count


def merged(listed: Iterable[Destination]) -> tuple[Destination, ...]:
    """Return destinations by host, each once, in the order of their hosts."""
    found: dict[str, Destination] = {}
    for one in listed:
        other = found.get(one.host, Destination(host=one.host))
        found[one.host] = Destination(
            host=one.host, tcp=one.tcp | other.tcp, udp=one.udp | other.udp, named=one.named | other.named
        )
    return tuple(found[host] for host in sorted(found))


def at_ports(host: str, ports: Iterable[int], *, usual: bool = False) -> Destination:
    """Return a host with ports that somebody wrote down, and with the usual ones unless it is this machine."""
    name, named = plain(host), frozenset(ports)
    return Destination(host=name, tcp=named | USUAL if usual and not is_loopback(name) else named, named=named)


def plain(host: str) -> str:
    """Return a host in its one spelling: lower case, no brackets, addresses in their short form."""
    name = host.strip("[]").rstrip(".").lower()
    address = address_in(name)
    if address is not None:
        name = str(address)
    return LOCALHOST if name in _UNSPECIFIED or name.endswith(".localhost") else name


def in_words(listed: Iterable[Destination], unknown: Iterable[str] = ()) -> str:
    """Return what a session reaches, as it is told of it. ``unknown``: names without an address."""
    gone = frozenset(unknown)
    places = [f"{one.host} ({_ports(one)})" for one in listed if one.host not in gone]
    shown = ", ".join(places[:_SHOWN]) + (f" and {len(places) - _SHOWN} more hosts" if len(places) > _SHOWN else "")
    nameless = f". No address is known for {', '.join(sorted(gone)[:_SHOWN])}" if gone else ""
    return (
        f"network: connections lead to these ports alone: {shown or 'none'}{nameless}. Any other place is refused or "
        "unreachable from here, which says nothing about it; one of these that resets a new connection, or refuses it, "
        "is refused or does not answer outside"
    )


def _ports(one: Destination) -> str:
    return ", ".join([*map(str, sorted(one.tcp)), *(f"{port}/udp" for port in sorted(one.udp))])


def network_in(text: str) -> IPNetwork | None:
    """Return the network that a text is, or None; a single address is none."""
    if "/" not in text or "://" in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
