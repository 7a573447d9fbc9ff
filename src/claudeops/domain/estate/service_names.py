"""Which names mean one service: what the policy says of it, and what the manifests add.

Settled here:

- The operator's policy comes first: where both name a service, it is counted by the policy's name for it, and what the
  policy tells apart stays apart, whatever a manifest says.
- A service whose host a manifest names is meant by its names behind that host too: ``web1/web`` is ``web``, unless
  manifests name services of that name on several hosts.
- Swarm, podman and systemd have names of their own for a container: ``shop_web.1.<task>``, ``systemd-web``,
  ``docker-web``. They mean the container, unless the policy or a manifest has that very name for something else.
- Names are equal whatever their case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final

from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.text import casefold_key, regex

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_OF_CONTAINER: Final = regex.Pattern(
    r"(?i)(.+)\.(?:\d{1,4}|[a-z0-9]{25})\.[a-z0-9]{25}"  # a task of swarm: service, slot or node, id
    r"|(?:systemd-|(?:container|docker|podman)[-.@])(.+)"  # Quadlet's containers; units that people and podman write
)
_REPLICA: Final = regex.Pattern(r"[-_]\d{1,3}$")
_UNIT: Final = regex.Pattern(r"(?:@[^/]*)?\.(?:service|socket|timer)$|@[^/]*$")
_OWNERS: Final = frozenset({"container", "project"})
"""Places that are services themselves: who excludes a container excludes what runs in it."""


class ServiceNames:
    """What the names of services mean by the policy and the manifests together; worked out when it is first needed."""

    def __init__(self, estate: Estate = NO_ESTATE, own: Mapping[str, str] = _NONE) -> None:
        """Take the manifests, and the other names of services that the policy has."""
        self._estate = estate
        self._own = own

    @cached_property
    def counted(self) -> Mapping[str, str]:
        """Every other name of a service, with the name that it is counted by."""
        return counted_names(self._estate, self._own)

    @cached_property
    def _by_key(self) -> Mapping[str, str]:
        return one_case(self.counted)

    @cached_property
    def _known(self) -> frozenset[str]:
        described = (name for service in self._estate.services for name in (service.name, *service.aliases))
        return frozenset({*self._by_key, *map(casefold_key, described)})

    def knows(self, name: str) -> bool:
        """Whether the policy or a manifest has this name for a service."""
        return casefold_key(name) in self._known

    def counts_as(self, name: str) -> str:
        """Return the name that a service is counted by; its own, or its container's, where nothing knows it."""
        while not (self.knows(name) or self.knows(name.rpartition("/")[2])):
            container = container_of(name)
            if container == name:
                break
            name = container
        return self._by_key.get(casefold_key(name), name)

    def all_of(self, name: str) -> tuple[str, ...]:
        """Return every name that may mean the same service as a whole name, itself first; none of them allows it."""
        main = self.counts_as(name)
        every = (name, main, name.rpartition("/")[2], *other_names_of(main, self.counted))
        return tuple(dict.fromkeys((*every, *(form for each in every for form in forms(each)))))


def container_of(name: str) -> str:
    """Return the container that swarm, podman or systemd calls by another name; a name of another kind stays."""
    place, slash, plain = name.rpartition("/")
    found = _OF_CONTAINER.fullmatch(plain)
    return f"{place}{slash}{found[1] or found[2]}" if found else name


def names_of_container(name: str) -> tuple[str, ...]:
    """Return a name, and those of the units that usually run a container of this name."""
    place, slash, plain = name.rpartition("/")
    return (name, *(f"{place}{slash}{unit}-{plain}" for unit in ("docker", "podman", "container", "systemd")))


def forms(name: str) -> Iterator[str]:
    """Yield a name in every form that may stand for a service, in lower case: whole, its plain name, unit, replica.

    A container that compose names ``PROJECT-SERVICE-1`` may be divided at any dash: either part may hold dashes.
    """
    whole = casefold_key(name)
    yield whole
    *places, plain = whole.split("/")
    owners = [rest for kind, _, rest in (place.partition(":") for place in places) if kind in _OWNERS]
    for piece in (plain, *owners, *map(container_of, owners)):
        unit = _UNIT.sub("", piece)
        yield from (piece, unit)
        replica = _REPLICA.sub("", unit)
        if replica != unit:
            yield replica
            for at, letter in enumerate(replica):
                if letter in "-_":
                    inside = f"project:{replica[:at]}/{replica[at + 1 :]}"
                    yield from (replica[at + 1 :], inside, "/".join((*places, inside)))


def counted_names(estate: Estate, own: Mapping[str, str]) -> dict[str, str]:
    """Return every other name of a service with the name that it is counted by; ``own`` are those of the policy."""
    policys = {casefold_key(name): name for name in own.values()}
    policys |= {casefold_key(other): name for other, name in own.items()}
    counted = dict(own)
    for name, others in _services(estate).items():
        members = {casefold_key(member): member for member in (name, *others)}
        known = [policys[member] for member in members if member in policys]
        chosen = known[0] if known else name
        for key, member in members.items():
            if key not in policys and key != casefold_key(chosen):
                counted.setdefault(member, chosen)
    return counted


def one_case(counted: Mapping[str, str]) -> dict[str, str]:
    """Return the same names, and those that services are counted by, for a look-up without regard to case."""
    main = {casefold_key(name): name for name in counted.values()}
    return main | {casefold_key(other): name for other, name in reversed([*counted.items()])}


def counted_by(counted: Mapping[str, str]) -> Callable[[str], str]:
    """Return what tells the name that a service is counted by; one without another name is counted by its own."""
    folded = one_case(counted)
    return lambda name: folded.get(casefold_key(name), name)


def other_names_of(service: str, counted: Mapping[str, str]) -> tuple[str, ...]:
    """Return every other name of a service, given by the name that it is counted by."""
    key = casefold_key(service)
    return tuple(other for other, name in counted.items() if casefold_key(name) == key)


def _services(estate: Estate) -> dict[str, list[str]]:
    """Return the other names of each service in the manifests, by the name that manifests count it by."""
    others: defaultdict[str, list[str]] = defaultdict(list)
    for other, name in estate.other_names.items():
        others[name].append(other)
    names = {casefold_key(other): name for other, name in reversed([*estate.other_names.items()])}
    for (host, plain), name in _behind_hosts(estate, names).items():
        others[name].append(f"{host}/{plain}")
    return others


def _behind_hosts(estate: Estate, names: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return services by host and name, those without a host or with a name that several hosts share left out."""
    hosts: defaultdict[str, set[str]] = defaultdict(set)
    found: dict[tuple[str, str], str] = {}
    for service in estate.services:
        host = service.host.strip().rstrip(".").lower()
        for plain in _each_once((service.name, *service.aliases)):
            hosts[casefold_key(plain)].add(host)
            if host and not plain.startswith(f"{host}/"):
                found.setdefault((host, plain), names.get(casefold_key(plain), service.name))
    return {key: name for key, name in found.items() if len(hosts[casefold_key(key[1])]) == 1}


def _each_once(names: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(name for name in names if name.strip())
