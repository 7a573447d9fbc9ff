"""What depends on what, and whose failure explains another's.

Of several services that are down, those explain that the others depend on, over any number of steps. In a circle of
services that depend on each other, the one whose name comes first explains the rest: so of all that is down, at least
one service is explained by nothing, and somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.probes.directory import NO_DIRECTORY, Directory, directory_of
from claudeops.domain.probes.probe import Probe, ProbeState, Standing
from claudeops.domain.probes.state_machine import settled
from claudeops.structs import replace
from claudeops.text import casefold_key


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Which services each service needs (`connected`); names are compared without regard to case, any of their names.

    Everything is answered in time linear in the services and what connects them.
    """

    edges: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # by `key`, to keys
    other_names: Mapping[str, str] = msgspec.field(default_factory=dict)  # key of an alias → key of the name
    directory: Directory = NO_DIRECTORY  # by what services are known
    circles: tuple[tuple[str, ...], ...] = ()  # keys that need each other, mostly one; what is needed comes first

    def key(self, service: str) -> str:
        """Return the one name of a service."""
        name = casefold_key(service)
        return self.other_names.get(name, name)

    def needed_by(self, services: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of all that some services depend on, the nearest first."""
        ahead = list(map(self.key, services))
        found = dict[str, None]()
        for key in ahead:  # grows while it is walked
            new = [needed for needed in self.edges.get(key, ()) if needed not in found]
            found.update(dict.fromkeys(new))
            ahead.extend(new)
        return tuple(found)

    def explanations(self, broken: Iterable[str]) -> Mapping[str, str]:
        """Return by `key` which of the broken services explains that a service fails, where one does.

        What explains is itself explained by none. ``broken``: names of services that are down (`broken_services`).
        """
        names = {self.key(name): name for name in broken}
        if not names:
            return {}
        found: dict[str, str] = {}
        roots: dict[str, str] = {}  # key → what explains all that depends on it
        for circle in self.circles:
            below = next((roots[key] for own in circle for key in self.edges.get(own, ()) if key in roots), "")
            first = min((key for key in circle if key in names), default="")
            for own in circle:
                if cause := below or (first if own != first else ""):
                    found[own] = names[cause]
                if below or first:
                    roots[own] = below or first
        return found

    def explanation(self, service: str, broken: Iterable[str]) -> str:
        """Return which of the broken services explains that this one fails; empty where none does."""
        return self.explanations(broken).get(self.key(service), "")


NO_DEPENDENCIES: Final = Dependencies()


def connected(edges: Mapping[str, Iterable[str]], other_names: Mapping[str, str] | None = None) -> Dependencies:
    """Return what depends on what; ``other_names`` of services, to the name that they are counted by."""
    names = {casefold_key(alias): casefold_key(name) for alias, name in (other_names or {}).items()}
    known = Dependencies(other_names=names)
    keys: dict[str, tuple[str, ...]] = {}
    for service, needed in edges.items():
        own = known.key(service)
        keys[own] = tuple(dict.fromkeys((*keys.get(own, ()), *map(known.key, needed))))
    for needed in tuple(keys.values()):
        for key in needed:
            keys.setdefault(key, ())
    return Dependencies(edges=keys, other_names=names, circles=tuple(_circles(keys)))


def dependencies_of(probes: Iterable[Probe], estate: Estate = NO_ESTATE) -> Dependencies:
    """Return what the manifests and the operator's probes say.

    Where several manifests describe one service, only that counts which all of them say: whoever can write to one
    repository cannot explain away the failures of another's services.
    """
    known = connected({}, estate.other_names)
    edges: dict[str, tuple[str, ...]] = {}
    for service in estate.services:
        own = known.key(service.name)
        needed = tuple(map(known.key, service.dependencies))
        edges[own] = tuple(key for key in edges[own] if key in needed) if own in edges else needed
    declared = tuple(probes)
    for probe in declared:
        own = known.key(probe.service)
        edges[own] = (*edges.get(own, ()), *probe.depends_on)
    return replace(connected(edges, estate.other_names), directory=directory_of(declared, estate))


def _circles(edges: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the groups of keys that can reach each other, each after those that it needs (Kosaraju's algorithm)."""
    needing: dict[str, list[str]] = {key: [] for key in edges}
    for key, needed in edges.items():
        for each in needed:
            needing[each].append(key)
    left = dict.fromkeys(edges)
    for start in reversed(_finished(needing)):
        circle = [start] if start in left else []
        left.pop(start, None)
        for key in circle:  # grows while it is walked
            new = [each for each in edges[key] if each in left]
            circle.extend(new)
            for each in new:
                del left[each]
        if circle:
            yield tuple(circle)


def _finished(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the keys in the order in which a walk in depth is done with them."""
    done: list[str] = []
    seen = set[str]()
    for start in edges:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(edges[start]))]
        while path:
            _, ahead = path[-1]
            following = next((each for each in ahead if each not in seen), None)
            if following is None:
                done.append(path.pop()[0])
            else:
                seen.add(following)
                path.append((following, iter(edges[following])))
    return done


def broken_services(probes: Iterable[Probe], standings: Mapping[str, Standing]) -> tuple[str, ...]:
    """Return the services of which a probe is down or flapping, silenced ones too; ``standings`` by probe."""
    found = dict[str, None]()
    for probe in probes:
        standing = standings.get(probe.name)
        if standing is not None and is_broken(standing):
            found[probe.service] = None
    return tuple(found)


def is_broken(standing: Standing) -> bool:
    """Tell whether a probe is known to be down or flapping, whether or not somebody wants to hear of it."""
    if standing.state in {ProbeState.UNKNOWN, ProbeState.FLAPPING}:
        return standing.state is ProbeState.FLAPPING
    return settled(standing) is ProbeState.DOWN
