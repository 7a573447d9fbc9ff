"""Decides the list of a tier: the hosts and ports that stand on the network of its sessions.

On it are, in this order:

- what the tier's ``network`` says, and the endpoints of the session's own settings, at the ports that are named;
- a host or network among the tier's ``hosts``, at the usual ports and those that manifests and probes name for it;
- a URL pattern among ``urls`` whose host is no pattern, at its port;
- the hosts of the manifests and probes that ``hosts`` or ``urls`` include, at the usual ports and those named for them;
- where ssh connects to for each host with port 22: the address that its configuration has, and the jump hosts.

Patterns and ``{estate}`` list nothing by themselves: they include hosts that something names. Of this machine (its
loopback) only the ports are listed that something names. What is forbidden, what the policy's ``never.hosts`` name
and what ``hosts`` excludes is not listed, whoever names it, and no network contains it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, cast

import msgspec

from claudeops.domain.estate.estate import Estate
from claudeops.domain.estate.strangers import ESTATE, address_in, is_within
from claudeops.domain.network.destination import (
    LOCALHOST,
    USUAL,
    Destination,
    IPNetwork,
    at_ports,
    merged,
    network_in,
    plain,
)
from claudeops.domain.network.forbidden_hosts import METADATA_ADDRESSES, refuse_host
from claudeops.formats.network.addresses import Endpoint
from claudeops.formats.network.ssh_config import SshConfig
from claudeops.policy.policy import TierPolicy
from claudeops.policy.reach import matches
from claudeops.text import regex

MOST: Final = 2_000  # destinations of one list
_MOST_PARTS: Final = 512  # of one network, with what it excludes taken out
_SSH_PORT: Final = 22
_SCHEMES: Final = {"http": 80, "https": 443}
_MOST_PORTS: Final = 16  # of one host that a URL pattern is tried with
_PATTERN: Final = regex.Pattern(r"[*?\[]")
_URL: Final = regex.Pattern(r"([^/]*)://(\[[0-9A-Fa-f:.]+\]|[^/:?#@]+)(?::([^/?#]*))?(?:[/?#].*)?")
_PAGE: Final = regex.Pattern(r"([^!/][^/]*://[^/]*)/.*")  # the part of a pattern in front of a path
_ADDRESSES: Final = regex.Pattern(r"((?:\d{1,3}\.){1,3})\*")

# Below these lies every address that is permitted. What of the first is none (0.0.0.0/8, loopback, link-local,
# multicast, reserved) is taken out, and what of the second wraps an IPv4 address.
_NEVER: Final = tuple(
    map(ipaddress.ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "2002::/16"))
) + tuple(map(ipaddress.ip_network, sorted(METADATA_ADDRESSES)))
_IPV6: Final = tuple(map(ipaddress.IPv6Network, ("2000::/3", "fc00::/7")))


def destinations(
    tier: TierPolicy,
    estate: Estate,
    *,
    endpoints: Iterable[Endpoint] = (),
    ssh: str = "",
    here: Collection[str] = (),
) -> tuple[Destination, ...]:
    """Return the list of a tier, sorted by host.

    ``endpoints``: of the session's settings; ``ssh``: its ssh configuration; ``here``: the names of this machine, whose
    ports count for its loopback too.
    """
    ports = _named_ports(estate, here)
    listed = chain(
        tier.rules.network,
        (at_ports(host, [port]) for host, port in endpoints),
        _written(tier, ports),
        _of_estate(tier, estate, ports),
    )
    found = list(_with_ssh(listed, SshConfig(ssh)))
    unwanted = Exclusions(tier, estate)
    return merged(islice(chain.from_iterable(map(unwanted.left_of, found)), MOST))


class Exclusions(msgspec.Struct, frozen=True):
    """What is on no list of a tier, whoever names it."""

    tier: TierPolicy
    estate: Estate

    def has(self, host: str) -> bool:
        """Whether a name or address may not be reached."""
        if refuse_host(host) is not None or any(matches(host, each) for each in self.tier.policy.never.hosts):
            return True
        return any(
            is_within(host, self.estate) if each == ESTATE else matches(host, each)
            for each in _without_mark(self.tier.rules.hosts)
        )

    def left_of(self, one: Destination) -> Iterator[Destination]:
        """Yield what is left of a destination: all of it, nothing, or the parts of a network."""
        network = network_in(one.host)
        if network is None:
            if (one.tcp or one.udp) and not self.has(one.host):
                yield one
            return
        for part in self._parts(network):
            yield Destination(host=str(part), tcp=one.tcp, udp=one.udp, named=one.named)

    def _parts(self, network: IPNetwork) -> list[IPNetwork]:
        """Return a network without what is excluded; where it falls into too many parts, the largest of them.

        A pattern such as ``10.0.?.5`` is no network: whoever connects to an address of a part asks `has` as well.
        """
        patterns = (*self.tier.policy.never.hosts, *_without_mark(self.tier.rules.hosts))
        parts: list[IPNetwork] = [] if {"*", ESTATE} & {*patterns} else [network]
        if isinstance(network, ipaddress.IPv6Network):
            parts = [_common(network, inner) for inner in _IPV6 if parts and network.overlaps(inner)]
        for gone in (*_NEVER, *(each for each in map(_network_of, patterns) if each is not None)):
            parts = [left for part in parts for left in _minus(part, gone)]
            parts = sorted(parts, key=lambda part: part.prefixlen)[:_MOST_PARTS]
        return parts


def _without_mark(patterns: Iterable[str]) -> Iterator[str]:
    return (pattern[1:] for pattern in patterns if pattern.startswith("!"))


def _network_of(pattern: str) -> IPNetwork | None:
    """Return the network of the addresses that a pattern matches: ``10.0.0.5``, ``10.0.0.0/8``, ``10.*``."""
    star = _ADDRESSES.fullmatch(pattern)
    if star is not None:
        numbers = star[1].strip(".").split(".")
        return network_in(f"{'.'.join([*numbers, *['0'] * (4 - len(numbers))])}/{8 * len(numbers)}")
    address = address_in(pattern)
    return network_in(pattern) if address is None else ipaddress.ip_network(address)


def _minus(part: IPNetwork, gone: IPNetwork) -> Iterator[IPNetwork]:
    """Yield what is left of a network. Of two networks that overlap, one contains the other."""
    if not part.overlaps(gone):
        yield part
    elif part.prefixlen < gone.prefixlen:
        yield from part.address_exclude(cast("Any", gone))  # both are of one version


def _common(one: ipaddress.IPv6Network, other: ipaddress.IPv6Network) -> ipaddress.IPv6Network:
    return one if one.subnet_of(other) else other


def _named_ports(estate: Estate, here: Collection[str]) -> dict[str, set[int]]:
    """Return the ports that manifests and probes name, by host."""
    found: dict[str, set[int]] = {}
    own = {plain(name) for name in here}
    for named in (estate.ports, estate.probed_ports):
        for host, ports in named.items():
            found.setdefault(plain(host), set()).update(ports)
            if plain(host) in own:
                found.setdefault(LOCALHOST, set()).update(ports)
    return found


def _written(tier: TierPolicy, ports: dict[str, set[int]]) -> Iterator[Destination]:
    """Yield what the tier's ``hosts`` and ``urls`` name."""
    for pattern in tier.rules.hosts:
        network = network_in(pattern)
        if network is not None and network.num_addresses > 1:
            yield Destination(host=str(network), tcp=USUAL)
        elif network is not None:
            yield _usual(str(network.network_address), ports)
        elif address_in(pattern) is not None or not (pattern.startswith(("!", "{")) or _PATTERN.search(pattern)):
            yield _usual(pattern, ports)
    for pattern in tier.rules.urls:
        found = _URL.fullmatch(pattern) if not pattern.startswith("!") else None
        if found is None or (_PATTERN.search(found[2]) and not found[2].startswith("[")):
            continue
        if (found[3] or "").isdecimal():
            yield at_ports(found[2], [int(found[3])] if 0 < int(found[3]) <= 65535 else [])  # noqa: PLR2004 - the last port
        elif found[3] is None or _PATTERN.search(found[3]):
            scheme = found[1].lower()
            yield at_ports(found[2], [port for name, port in _SCHEMES.items() if matches(name, scheme)])


def _of_estate(tier: TierPolicy, estate: Estate, ports: dict[str, set[int]]) -> Iterator[Destination]:
    """Yield the hosts of manifests and probes that the tier's ``hosts`` or ``urls`` include."""
    # The ports of this machine's own names are there even where nothing calls it localhost.
    here = (LOCALHOST,) if ports.get(LOCALHOST) else ()
    for written in (*estate.hosts, *estate.probed, *here):
        host = plain(written)
        if _is_included(host, tier, sorted(ports.get(host, ()))[:_MOST_PORTS]):
            yield _usual(host, ports)


def _is_included(host: str, tier: TierPolicy, ports: Iterable[int]) -> bool:
    """Whether ``hosts`` includes a host of the estate, or ``urls`` some page at it."""
    if _includes(tier.rules.hosts, host):
        return True
    place = f"[{host}]" if ":" in host else host
    urls = (*tier.rules.urls, *(f"{found[1]}/" for found in map(_PAGE.fullmatch, tier.rules.urls) if found is not None))
    tried = (f"{scheme}://{place}{port}/" for scheme in _SCHEMES for port in ("", *(f":{each}" for each in ports)))
    return any(_includes(urls, url) for url in tried)


def _includes(patterns: Iterable[str], subject: str) -> bool:
    """Whether patterns include a host of the estate or a page of it."""
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    return any(each == ESTATE or matches(subject, each) for each in wanted) and not any(
        each == ESTATE or matches(subject, each) for each in _without_mark(patterns)
    )


def _with_ssh(listed: Iterable[Destination], config: SshConfig) -> Iterator[Destination]:
    """Yield destinations, each with the places that ssh connects to for it where its configuration names others."""
    for one in listed:
        yield one
        if _SSH_PORT in one.tcp and network_in(one.host) is None:
            elsewhere = (hop for hop in config.route(one.host) if hop != (one.host, _SSH_PORT))
            yield from (at_ports(host, [port]) for host, port in elsewhere)


def _usual(host: str, ports: dict[str, set[int]]) -> Destination:
    return at_ports(host, ports.get(plain(host), ()), usual=True)
