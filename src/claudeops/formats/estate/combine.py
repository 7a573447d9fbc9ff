"""Makes one estate of all manifests: which names mean one service, and which hosts there are.

Every service is counted once, whatever it is called. It is counted by the name that its manifest gives it, `shop`.
To that lead, without regard to case:

- its aliases, and the containers that compose makes of it: ``shop-app``, ``media-shop-1``, ``project:media/shop``;
- all of these with its host in front, as an action over ssh has it: ``web1/shop``, ``web1/shop-app``; and with each
  further name of that host that a manifest gives (``10.0.0.5/shop``).

A service that several repositories describe is one if no two of them name different hosts. Otherwise each is counted
with its host in front (``web1/nginx``, ``web2/nginx``), and the name alone means none of them. What would be two
services' other name belongs to neither, and is a fault: merged by mistake, one would be denied what the other had.

Not covered is what no manifest can say: other ports (``web1:2222/shop``), jump hosts and namespaces stand in front of a
name as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from claudeops.domain.estate.estate import Estate, Fault, Manifest, Prohibition, Service, StatementSource
from claudeops.formats.estate.draft import listed
from claudeops.formats.estate.rules import EVERY_SERVICE
from claudeops.structs import replace
from claudeops.text import casefold_key, unique

_MOST_NAMES: Final = 20_000
_MOST_HOSTS: Final = 5_000
_MOST_PORTS: Final = 128  # of one host


class _One(msgspec.Struct):
    """One service, by whatever number of manifests it is described."""

    main: str  # that it is counted by
    name: str
    described: list[Service]
    own: bool  # its name alone means it
    aliases: dict[str, str] = msgspec.field(default_factory=dict)  # by their key
    more: tuple[str, ...] = ()  # names that compose makes

    @property
    def hosts(self) -> set[str]:
        return {service.host for service in self.described if service.host}


def combine(manifests: Sequence[Manifest]) -> Estate:
    """Return the estate that manifests describe together, their faults with each other included."""
    faults: list[Fault] = []
    ones = list(_ones(manifests, faults))
    dropped = _settle_aliases(ones, faults)
    same = _same_hosts(manifests)
    other_names = _other_names(ones, same)
    known = {casefold_key(name) for name in chain(other_names, (one.name for one in ones), (one.main for one in ones))}
    faults += _unknown(manifests, known)
    return Estate(
        manifests=tuple(_with(manifest, faults, dropped) for manifest in manifests),
        other_names=other_names,
        hosts=_hosts(manifests),
        ports=_ports(manifests, same),
    )


def _ones(manifests: Sequence[Manifest], faults: list[Fault]) -> Iterator[_One]:
    by_name: dict[str, list[tuple[Service, Manifest]]] = {}
    for manifest in manifests:
        for service in manifest.services:
            by_name.setdefault(casefold_key(service.name), []).append((service, manifest))
    for described in by_name.values():
        first = described[0][0]
        hosts = unique(service.host for service, _ in described)
        if len(hosts) <= 1:
            yield _one(first.name, first.name, described, own=True)
            continue
        for host in hosts:
            there = [(service, manifest) for service, manifest in described if service.host == host]
            yield _one(f"{host}/{first.name}", first.name, there, own=False)
        other = next(service for service, _ in described if service.host == hosts[0])
        says = (
            f"on {other.host} there is one too ({other.source.path}:{other.source.line}), and one name cannot mean both"
        )
        faults += [
            Fault(source=service.source, sentence=f"{service.name}: {says}: give each a name of its own")
            for service, _ in described
            if service.host not in {"", other.host}
        ]


def _one(main: str, name: str, described: Sequence[tuple[Service, Manifest]], *, own: bool) -> _One:
    aliases = {
        casefold_key(alias): alias
        for service, _ in described
        for alias in service.aliases
        if casefold_key(alias) != casefold_key(main)
    }
    more = unique(name for service, manifest in described for name in manifest.projects.get(service.name, ()))
    return _One(
        main=main, name=name, described=[service for service, _ in described], own=own, aliases=aliases, more=more
    )


def _settle_aliases(ones: Sequence[_One], faults: list[Fault]) -> set[tuple[StatementSource, str]]:
    """Take away the aliases that are another service's name or alias; return them, each with who claimed it."""
    names: dict[str, _One] = {}
    claims: dict[str, list[_One]] = {}
    for one in ones:
        names.setdefault(casefold_key(one.name), one)
        for key in one.aliases:
            claims.setdefault(key, []).append(one)
    dropped: set[tuple[StatementSource, str]] = set()
    for key, claimants in claims.items():
        owner = names.get(key)
        for one in claimants:
            rivals = [other for other in (owner, *claimants) if other is not None and other is not one]
            if not rivals:
                continue
            alias = one.aliases.pop(key)
            for service in one.described:
                if key in map(casefold_key, service.aliases):
                    dropped.add((service.source, key))
                    faults.append(_claimed(service, alias, rivals[0], is_name=owner is not None))
    return dropped


def _claimed(service: Service, alias: str, rival: _One, *, is_name: bool) -> Fault:
    source = rival.described[0].source
    what = "is the name of another service" if is_name else f"is an alias of {rival.name} as well"
    return Fault(
        source=service.source,
        sentence=f"the alias {alias} of {service.name} {what} ({source.path}:{source.line}), so it counts for neither: "
        "take it away from one of them",
    )


def _same_hosts(manifests: Iterable[Manifest]) -> dict[str, set[str]]:
    """Return, for each host, the names that it has."""
    same: dict[str, set[str]] = {}
    for names in (names for manifest in manifests for names in manifest.same_hosts):
        together = set(names).union(*(same.get(name, set()) for name in names))
        for name in together:
            same[name] = together
    return same


def _other_names(ones: Sequence[_One], same: dict[str, set[str]]) -> dict[str, str]:
    """Return which names lead to which; a name that would lead to two services leads to none."""
    mains = {casefold_key(one.main) for one in ones} | {casefold_key(one.name) for one in ones}
    found: dict[str, tuple[str, str]] = {}  # the key → the name as written, and where it leads
    torn: set[str] = set()
    for one in ones:
        for name in _forms(one, same):
            key = casefold_key(name)
            if key == casefold_key(one.main):
                continue
            if key in mains or found.get(key, (name, one.main))[1] != one.main:
                torn.add(key)
            elif len(found) < _MOST_NAMES:
                found.setdefault(key, (name, one.main))
    return {name: main for key, (name, main) in found.items() if key not in torn}


def _forms(one: _One, same: dict[str, set[str]]) -> Iterator[str]:
    plain = [*one.aliases.values(), *one.more]
    if one.own or len(one.hosts) <= 1:
        yield from plain
    hosts = sorted({name for host in one.hosts for name in (host, *same.get(host, ()))})
    for host in hosts:
        yield from (f"{host}/{name}" for name in (one.name, *plain) if not name.casefold().startswith(f"{host}/"))
    if one.own:
        place, slash, rest = one.name.rpartition("/")
        if slash and ":" not in place:
            yield rest  # "web1/shop" as a name of its own: "shop" is meant too


def _unknown(manifests: Iterable[Manifest], known: set[str]) -> Iterator[Fault]:
    for manifest in manifests:
        for service in manifest.services:
            for name in service.dependencies:
                if casefold_key(name) not in known:
                    sentence = (
                        f"{service.name} depends on {name}, which no manifest describes: correct it or describe it"
                    )
                    yield Fault(source=service.source, sentence=sentence)
        for forbidden in manifest.prohibitions:
            for name in forbidden.services:
                if name != EVERY_SERVICE and casefold_key(name) not in known:
                    sentence = f"this rule names {name}, which no manifest describes: correct the name, or describe it"
                    yield Fault(source=forbidden.source, sentence=sentence)


def _with(manifest: Manifest, faults: Sequence[Fault], dropped: set[tuple[StatementSource, str]]) -> Manifest:
    """Return a manifest without the aliases that do not count, and with the faults that lie in it.

    What is forbidden stays so by those aliases too: they may well be the service's.
    """
    services: list[Service] = []
    lost: dict[str, tuple[str, ...]] = {}  # aliases, by the name of their service
    for service in manifest.services:
        own = tuple(alias for alias in service.aliases if (service.source, casefold_key(alias)) not in dropped)
        lost[service.name] = tuple(alias for alias in service.aliases if alias not in own)
        services.append(replace(service, aliases=own))
    rules = tuple(
        replace(rule, services=unique((*rule.services, *chain(*(lost[name] for name in _meant(rule, lost))))))
        for rule in manifest.prohibitions
    )
    sources = {service.source for service in services} | {rule.source for rule in rules}
    mine = [fault for fault in faults if fault.source in sources]
    return replace(manifest, services=tuple(services), prohibitions=rules, faults=listed((*manifest.faults, *mine)))


def _meant(rule: Prohibition, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if name in rule.services or EVERY_SERVICE in rule.services)


def _hosts(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    every = (
        host
        for manifest in manifests
        for host in (*manifest.hosts, *(service.host for service in manifest.services), *manifest.addresses)
    )
    return unique(host.lower() for host in every)[:_MOST_HOSTS]


def _ports(manifests: Iterable[Manifest], same: dict[str, set[str]]) -> dict[str, tuple[int, ...]]:
    """Return the ports that are named for each host, by whichever of its names."""
    found: dict[str, dict[int, None]] = {}
    for manifest in manifests:
        for named, port in manifest.ports:
            for host in {named, *same.get(named, ())}:
                known = found.setdefault(host.lower(), {})
                if len(known) < _MOST_PORTS:
                    known[port] = None
    return {host: tuple(sorted(ports)) for host, ports in found.items()}
