"""The hosts that ``{estate}`` stands for in a policy, and the reason that refuses what is not in the estate.

A host is within the estate by its exact name: ``a.shop.example.com`` is another host than ``shop.example.com``, because
a session could write what it has read into the names below a host that it knows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from claudeops.domain.estate.estate import Estate

ESTATE: Final = "{estate}"
"""Stands for the hosts of the estate, this machine and private networks among a tier's ``hosts`` and ``urls``."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PRIVATE: Final = tuple(
    map(
        ipaddress.ip_network,
        # Loopback, RFC 1918, RFC 6598 (carriers' and overlay networks), RFC 4193.
        ("127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    )
)
_KEPT: Final = 4096  # parsed addresses in the cache
_LONGEST: Final = 80  # characters of a host in a sentence


class Stranger(str):
    """A reason: a host or directory that the estate does not name. A tier may put it to a person; no other can be."""

    __slots__ = ()


def stranger(host: str, *, tier: int, key: str) -> Stranger:
    """Return the reason for a host outside of the estate; ``key`` is the tier's key that would allow it."""
    return Stranger(
        f"{host[:_LONGEST]} is not in the estate: name it in a CLAUDE-OPS.md below the repositories directory, or add "
        f"it to tiers.{tier}.{key} of the policy"
    )


def is_within(host: str, estate: Estate) -> bool:
    """Whether a host is this machine, in a private network, or named by the estate or the operator's probes."""
    name = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    address = address_in(name)
    if address is not None:
        named = (address_in(other) for other in (*estate.hosts, *estate.probed))
        return any(address in network for network in _PRIVATE) or address in named
    if name == "localhost" or name in estate.hosts or name in estate.probed:
        return True
    return "." not in name and name in _names(estate)


def is_loopback(host: str) -> bool:
    """Whether a host, lower case and without brackets, is this machine by a name or an address of its loopback."""
    address = address_in(host)
    return host == "localhost" or host.endswith(".localhost") if address is None else address.is_loopback


@lru_cache(maxsize=_KEPT)
def address_in(text: str) -> Address | None:
    """Return the address that a text is, or None; an IPv4 address within an IPv6 one counts as that."""
    try:
        address = ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _names(estate: Estate) -> Iterator[str]:
    """Yield what services are called: inside a compose network or a cluster these are names of hosts."""
    return (name.lower() for service in estate.services for name in (service.name, *service.aliases))
