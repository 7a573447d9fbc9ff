"""By what services are known: their names, what looks at them, and where they answer.

An address or a host that is several services' is none of theirs: it stands for a service only where it is that one's
alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from claudeops.domain.estate import hosts
from claudeops.domain.estate.estate import Estate, Service
from claudeops.domain.probes.probe import (
    AnyLook,
    DockerLook,
    HttpLook,
    IcmpLook,
    KubernetesLook,
    MysqlLook,
    PostgresLook,
    Probe,
    RedisLook,
    SystemdLook,
    TcpLook,
    TlsLook,
)
from claudeops.text import casefold_key

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - nothing listens here
_PORTS: Final = {"http": "80", "https": "443"}
_MOST_STEPS: Final = 8  # of a path


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """Services by what they are known by; what is asked for may be written in any way."""

    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    addresses: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # of URLs without scheme, ``host:port`` and hosts
    scoped: frozenset[str] = frozenset()  # names that are known with their namespaces, too

    def named(self, name: str, *, scope: str = "") -> str:
        """Return the service that a name or a check means; "" for none.

        ``scope`` is a namespace or host: where a service's namespace is known, the same name elsewhere is another one.
        """
        key = casefold_key(name)
        if scope and (key in self.scoped or f"{casefold_key(scope)}/{key}" in self.names):
            return self.names.get(f"{casefold_key(scope)}/{key}", "")
        return self.names.get(key, "")

    def at(self, address: str) -> str:
        """Return the service that answers at a URL, at its port, or alone on its host; "" for none."""
        return next((found for key in _keys(address) if (found := self.addresses.get(key))), "")

    def on(self, host: str) -> str:
        """Return the only service of a host, which may be written without its domain; "" for none."""
        name = hosts.plain_host(host)
        return self.addresses.get(name, "") or self.addresses.get(_short(name), "")


NO_DIRECTORY: Final = Directory()


def directory_of(probes: Iterable[Probe], estate: Estate) -> Directory:
    """Return by what the services of the manifests and of the probes are known."""
    counted = {casefold_key(other): name for other, name in estate.other_names.items()}
    declared = [(probe, counted.get(casefold_key(probe.service), probe.service)) for probe in probes]
    described = [(service, counted.get(casefold_key(service.name), service.name)) for service in estate.services]
    names, places = _Known(), _Known()
    for service, name in described:
        names.note(name, (service.name, *service.aliases))
        places.note(name, _places(service))
    for other, name in estate.other_names.items():
        names.note(name, (other,))
    for manifest in estate.manifests:
        for plain, longer in manifest.projects.items():
            names.note(counted.get(casefold_key(plain), plain), longer)
    for probe, name in declared:
        names.note(name, (probe.service, *_names(probe.look)))
        places.note(name, _looked_at(probe.look))
    for manifest in estate.manifests:
        for same in manifest.same_hosts:
            places.share(tuple(map(hosts.plain_host, same)))
    checks = {casefold_key(probe.name): name for probe, name in reversed(declared)}
    known = {**checks, **names.alone()}
    machines = {host for service, _ in described for host in _machines(service)}  # ``web1/web`` is ``web``
    scoped = frozenset(plain for scope, _, plain in (name.partition("/") for name in known) if scope not in machines)
    return Directory(names=known, addresses=places.alone(), scoped=scoped)


class _Known:
    """Names or places, with the services that they are those of."""

    def __init__(self) -> None:
        self._services: defaultdict[str, dict[str, str]] = defaultdict(dict)  # → names by their keys

    def note(self, service: str, known_by: Iterable[str]) -> None:
        """Let a service be known by something more."""
        for each in known_by:
            if key := casefold_key(each):
                self._services[key][casefold_key(service)] = service

    def share(self, same: Iterable[str]) -> None:
        """Let all names of one host stand for the services that are known under one of them."""
        there = {key: name for host in same for key, name in self._services.get(host, {}).items()}
        for host in same:
            self._services[host] |= there

    def alone(self) -> dict[str, str]:
        """Return what stands for one service alone."""
        return {key: next(iter(names.values())) for key, names in self._services.items() if len(names) == 1}


def _places(service: Service) -> Iterator[str]:
    """Yield where a service is found: URLs, ``host:port`` and hosts."""
    for text in (service.address, hosts.address_in(service.check)):
        if text:
            yield from _keys(text)
    for host in (*_machines(service), *hosts.in_address(service.check).hosts):
        if host not in _LOOPBACK:
            yield host
            yield _short(host)


def _machines(service: Service) -> tuple[str, ...]:
    """Return the hosts that a service runs on."""
    return hosts.in_column(service.host).hosts


def _names(look: AnyLook) -> Iterator[str]:
    match look:
        case DockerLook():
            yield look.container
        case KubernetesLook():
            yield f"{look.namespace}/{look.workload.rpartition('/')[2]}"
        case SystemdLook():
            yield look.unit
            yield look.unit.removesuffix(".service")
        case _:
            return


def _looked_at(look: AnyLook) -> Iterator[str]:
    match look:
        case HttpLook():
            yield from _keys(look.url)
        case IcmpLook():
            yield from _keys(look.host)
        case TcpLook() | TlsLook() | PostgresLook() | MysqlLook() | RedisLook():
            yield from _keys(f"[{look.host}]:{look.port}" if ":" in look.host else f"{look.host}:{look.port}")
        case _:
            return


def _short(host: str) -> str:
    """Return a host without its domain; an address stays as it is."""
    first = host.partition(".")[0]
    return host if ":" in host or first.isdecimal() else first


def _keys(address: str) -> Iterator[str]:
    """Yield what an address is known by, the most exact first: URLs with shorter and shorter paths, port, host."""
    scheme, is_url, rest = address.strip().partition("://")
    if not is_url:
        scheme, rest = "", address.strip()
    place, _, path = rest.partition("?")[0].partition("#")[0].partition("/")
    host, port = split_place(place)
    if not host or host in _LOOPBACK:
        return
    steps = [step for step in path.split("/") if step][:_MOST_STEPS]
    known_port = port or _PORTS.get(scheme.lower(), "")
    for count in range(len(steps), 0, -1):
        yield f"{host}:{known_port}/{'/'.join(steps[:count])}"
    if known_port:
        yield f"{host}:{known_port}"
    yield host


def split_place(place: str) -> tuple[str, str]:
    """Return host and port of ``host``, ``host:port`` and IPv6 addresses with and without brackets; without a user."""
    bare = place.rpartition("@")[2].strip()
    if bare.startswith("["):
        host, _, rest = bare[1:].partition("]")
        return host.lower(), rest.removeprefix(":")
    if bare.count(":") > 1:
        return bare.lower(), ""
    host, _, port = bare.partition(":")
    return host.rstrip(".").lower(), port
