"""Probes that the manifests make: a service's address, and hosts that are named alone.

A manifest describes and is not trusted: whoever can write to one repository must not get a port scanner.

- Whatever names a link-local or metadata address, a multicast or broadcast one, or carries credentials, is refused.
- A URL is fetched with GET, without headers; it has no query, since a query makes things happen, and its port is none
  at which servers take HTTP for commands of their own.
- Anything else gets a connection and a question whether it is ready; no byte of a manifest's is sent.
- A repository makes at most `MOST_OF_REPOSITORY` probes, and asks one host at `MOST_PORTS` ports at most.

All of that lies within what the same manifest lets a session of tier 1 ask (`claudeops.policy.reach`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from claudeops.domain.estate.estate import Estate, Fault, Manifest, Service, StatementSource
from claudeops.domain.estate.hosts import in_address, plain_host
from claudeops.domain.probes.probe import (
    AnyLook,
    HttpLook,
    IcmpLook,
    MysqlLook,
    PostgresLook,
    Probe,
    RedisLook,
    TcpLook,
    TlsLook,
    kind_of,
)
from claudeops.formats.probes.keys import Defaults, check_host, check_look, check_port, host_of, split_address
from claudeops.structs import replace
from claudeops.text import casefold_key, regex
from claudeops.text.toml_file import KeyFault

MOST_OF_REPOSITORY: Final = 50
"""Probes that one repository's manifest makes."""

MOST_PORTS: Final = 8
"""Ports of one host that one repository's manifest asks."""

_READY: Final[dict[str, type[PostgresLook | MysqlLook | RedisLook]]] = {
    **dict.fromkeys(("postgres", "postgresql", "timescaledb", "5432"), PostgresLook),
    **dict.fromkeys(("mysql", "mariadb", "3306"), MysqlLook),
    **dict.fromkeys(("redis", "valkey", "6379"), RedisLook),
}
"""Looks that ask whether a server is ready, by kind of service and by port."""

_HTTPS: Final = 443
_WEB: Final = frozenset({80, 8080})
_SCHEMES: Final = {"http": 80, "https": _HTTPS, "tcp": 0, "tls": _HTTPS, "ssl": _HTTPS} | {
    **dict.fromkeys(("postgres", "postgresql"), 5432),
    **dict.fromkeys(("mysql", "mariadb"), 3306),
    **dict.fromkeys(("redis", "valkey"), 6379),
}
"""Schemes of addresses, with the port that each one means."""

_NOT_HTTP: Final = frozenset(
    {1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110}
    | {111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531}
    | {532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3306, 3659, 4045, 4190}
    | {5060, 5061, 5432, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 9100, 10080, 11211, 27017}
)
"""The "bad ports" of the Fetch standard (https://fetch.spec.whatwg.org/#port-blocking), databases, and printers."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OTHER: Final = regex.Pattern(r"[^A-Za-z0-9_.:/@-]+")
_ADDRESS: Final = regex.Pattern(r"\d{1,3}(?:\.\d{1,3}){3}")
_LONGEST_NAME: Final = 100


def allow_all(_host: str) -> str | None:
    """Refuse no host beyond the forbidden ones."""
    return None


class DerivedProbes(msgspec.Struct, frozen=True, kw_only=True):
    """The probes that the manifests make."""

    probes: tuple[Probe, ...] = ()
    faults: tuple[Fault, ...] = ()  # addresses without a probe, each with the reason


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A look that a manifest asks for."""

    look: AnyLook
    service: str
    name: str  # as it would be if no other look had it
    repository: str
    source: StatementSource


class _Bounds(msgspec.Struct):
    """What one repository has used up."""

    ports: dict[str, set[int]] = msgspec.field(default_factory=dict)  # by host
    looks: set[bytes] = msgspec.field(default_factory=set)  # as `_written`


def of_estate(
    estate: Estate, *, defaults: Defaults | None = None, refuse: Callable[[str], str | None] = allow_all
) -> tuple[Probe, ...]:
    """Return the probes that the manifests make, in the order of the repositories."""
    return derive(estate, defaults=defaults, refuse=refuse).probes


def derive(
    estate: Estate, *, defaults: Defaults | None = None, refuse: Callable[[str], str | None] = allow_all
) -> DerivedProbes:
    """Return the probes that the manifests make, and the addresses in them that get none.

    ``refuse`` says why the policy keeps a host out of reach, or None. Names depend on the manifests alone.
    """
    wishes: list[_Wish] = []
    faults: list[Fault] = []
    for manifest in estate.manifests:
        bounds = _Bounds()
        for service, source in _addressed(manifest):
            try:
                wish = _wish(service, source, manifest.repository)
                _check_bounds(wish.look, bounds, refuse)
                wishes.append(wish)
            except KeyFault as fault:
                faults.append(Fault(source=source, sentence=f"no probe is made of this: {fault}"))
    usual = defaults or Defaults()
    return DerivedProbes(probes=tuple(_probe(wish, name, usual) for wish, name in _named(wishes)), faults=tuple(faults))


def all_probes(declared: Iterable[Probe], derived: Iterable[Probe], estate: Estate) -> tuple[Probe, ...]:
    """Return the operator's probes, and those of manifests that they do not replace: by name, or service and kind."""
    names = {casefold_key(alias): casefold_key(name) for alias, name in estate.other_names.items()}

    def about(probe: Probe) -> tuple[str, str]:
        service = casefold_key(probe.service)
        return names.get(service, service), kind_of(probe.look)

    own = tuple(declared)
    taken = {casefold_key(probe.name) for probe in own}
    replaced = {about(probe) for probe in own}
    left = (each for each in derived if casefold_key(each.name) not in taken and about(each) not in replaced)
    return (*own, *left)


# --- looks ------------------------------------------------------------------------------------------------


def _addressed(manifest: Manifest) -> Iterator[tuple[Service, StatementSource]]:
    """Yield what can be probed; a host that is named alone, as a service of its own.

    The host of an address is not: the address is probed, and what stands before a public one seldom answers echoes.
    """
    hosts: dict[str, StatementSource] = {}
    covered = {host for service in manifest.services for host in in_address(service.address).hosts}
    covered -= {plain_host(service.host) for service in manifest.services}
    for service in manifest.services:
        if service.address.strip():
            yield service, service.source
        elif service.host.strip():
            hosts.setdefault(service.host.strip().lower(), service.source)
    for host in manifest.hosts:
        if host.strip().lower() in covered:
            continue
        hosts.setdefault(host.strip().lower(), StatementSource(path=manifest.repository))
    for host, source in hosts.items():
        if host and host not in _LOOPBACK:
            yield Service(name=host, host=host, source=source), source


def _wish(service: Service, source: StatementSource, repository: str) -> _Wish:
    address = service.address.strip()
    look = _look(address, service) if address else IcmpLook(host=service.host)
    check_look(look)
    # An echo shows nothing of the services that run there: its service is the host.
    about, kind = (look.host.lower(), ":icmp") if isinstance(look, IcmpLook) else (service.name, "")
    return _Wish(
        look=look,
        service=about,
        name=(_OTHER.sub("-", about).strip("-:/@.") or "service") + kind,
        repository=_OTHER.sub("-", repository).strip("-:/@.") or "repository",
        source=source,
    )


def _look(address: str, service: Service) -> AnyLook:
    scheme, found, rest = address.partition("://")
    if "@" in rest.partition("/")[0] if found else "@" in address:  # its text is not repeated: it holds a password
        raise KeyFault("address", "the address holds credentials or a user: write it without them")
    scheme = scheme.lower() if found else ""
    if scheme in {"http", "https"} or (not found and "/" in address):
        return _http(address if found else f"http://{address}")
    if found and scheme not in _SCHEMES:
        raise KeyFault("address", f"{scheme[:20]}:// is not known: write a URL of http or https, or host:port")
    host, text = split_address((rest if found else address).partition("/")[0])
    if not text and not _SCHEMES.get(scheme):
        return IcmpLook(host=host)
    if text and not (text.isascii() and text.isdigit() and len(text) <= len("65535")):
        raise KeyFault("address", f"{text[:20]!r} is not a port: write host:port")
    port = int(text) if text else _SCHEMES[scheme]
    return _server(host, port, scheme=scheme, kind=casefold_key(service.kind))


def _http(url: str) -> HttpLook:
    if "?" in url or "#" in url:
        raise KeyFault("address", "a manifest's URL is asked without a query: declare this one in the probes file")
    look = HttpLook(url=url)
    check_look(look)
    if _port_of(look) in _NOT_HTTP:
        raise KeyFault("address", f"port {_port_of(look)} does not speak HTTP: write host:port, without http://")
    return look


def _server(host: str, port: int, *, scheme: str, kind: str) -> AnyLook:
    check_port("address", port)
    check_host("address", host)
    if scheme != "tcp" and (ready := _READY.get(scheme) or _READY.get(kind) or _READY.get(str(port))) is not None:
        return ready(host=host, port=port)
    if not scheme and port in _WEB and kind in {"http", "web"}:
        return HttpLook(url=f"http://{f'[{host}]' if ':' in host else host}:{port}")
    is_name = ":" not in host and _ADDRESS.fullmatch(host) is None  # a certificate is for a name
    if scheme in {"tls", "ssl"} or (not scheme and port == _HTTPS and is_name):
        return TlsLook(host=host, port=port)
    return TcpLook(host=host, port=port)


def _port_of(look: AnyLook) -> int:
    match look:
        case HttpLook():
            place = look.url.partition("://")[2].partition("/")[0]
            port = split_address(place)[1]
            return int(port) if port else _SCHEMES[look.url.partition("://")[0].lower()]
        case TcpLook() | TlsLook() | PostgresLook() | MysqlLook() | RedisLook():
            return look.port
        case _:
            return 0


def _check_bounds(look: AnyLook, bounds: _Bounds, refuse: Callable[[str], str | None]) -> None:
    """Raise `KeyFault` where a repository asks for too much; else count the look."""
    host = (host_of(look.url) if isinstance(look, HttpLook) else str(getattr(look, "host", ""))).lower().rstrip(".")
    if (reason := refuse(host)) is not None:
        raise KeyFault("address", f"{reason}: name another host, or change the policy")
    ports = bounds.ports.get(host, set()) | {_port_of(look)}
    if len(ports) > MOST_PORTS:
        raise KeyFault("address", f"a manifest asks {host} at {MOST_PORTS} ports at most: declare it as a probe")
    if len(bounds.looks | {_written(look)}) > MOST_OF_REPOSITORY:
        raise KeyFault("address", f"a manifest makes {MOST_OF_REPOSITORY} probes at most: declare it as a probe")
    bounds.ports[host] = ports
    bounds.looks.add(_written(look))


def _written(look: AnyLook) -> bytes:
    """Return what distinguishes two looks."""
    return msgspec.json.encode(look)


# --- names ------------------------------------------------------------------------------------------------


def _named(wishes: Iterable[_Wish]) -> Iterator[tuple[_Wish, str]]:
    """Yield each look once, with its name; where looks share a name, it has the repository too.

    None of them keeps the plain name: otherwise a new repository could take the place of another's probe.
    """
    different: dict[tuple[str, bytes], _Wish] = {}
    for wish in wishes:
        different.setdefault((casefold_key(wish.service), _written(wish.look)), wish)
    once = list(different.values())
    shared = Counter(casefold_key(wish.name) for wish in once)
    used = Counter[str]()
    for wish in once:
        alone = shared[casefold_key(wish.name)] == 1
        name = (wish.name if alone else f"{wish.repository}/{wish.name}")[:_LONGEST_NAME]
        used[casefold_key(name)] += 1
        count = used[casefold_key(name)]
        yield wish, name if count == 1 else f"{name[: _LONGEST_NAME - 4]}-{count}"


def _probe(wish: _Wish, name: str, usual: Defaults) -> Probe:
    line = "" if wish.source.line is None else f":{wish.source.line}"
    probe = Probe(
        name=name,
        look=wish.look,
        service=wish.service,
        interval=usual.interval,
        failures=usual.failures,
        successes=usual.successes,
        starts_chain=usual.starts_chain,
        origin=f"{wish.source.path}{line}",
    )
    return replace(
        probe,
        retry_interval=min(usual.retry_interval, usual.interval),
        timeout=min(usual.timeout, usual.interval),
    )
