"""The estate as typed values: what the daemon has understood of the operator's manifests.

A manifest describes; it never grants. What it names becomes part of the reach, what it forbids is denied, and what it
expects must appear in a report before the report proves anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import time
from typing import Final

import msgspec

from claudeops.structs import replace


class StatementSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a statement stands."""

    path: str  # below the repositories directory: ``media/CLAUDE-OPS.md``
    line: int | None = None  # counted from 1; None: the whole file


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a repository that could not be used."""

    source: StatementSource
    sentence: str  # what is wrong, and the remedy
    unbound: bool = False  # it reads like a prohibition, and forbids nothing

    def __str__(self) -> str:
        """Return the place and the sentence, as a compiler writes them."""
        place = self.source.path if self.source.line is None else f"{self.source.path}:{self.source.line}"
        return f"{place}: {self.sentence}"


class MaintenanceWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A time of the week in which a service may be unwell on purpose; it may run past midnight."""

    days: frozenset[int]  # 0 is Monday; the days on which it begins
    start: time  # in the timezone of the daemon
    end: time
    text: str  # as it was written


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service of the estate."""

    name: str  # as the manifest writes it
    aliases: tuple[str, ...] = ()
    kind: str = ""  # what it is or runs as, one word, lower case: ``postgres``, ``container``, ``systemd``
    host: str = ""  # that it runs on
    address: str = ""  # a URL or host:port where it answers
    check: str = ""  # how it is looked at, as it was written
    dependencies: tuple[str, ...] = ()  # names of other services
    healthy: str = ""  # what healthy means
    restart: str = ""  # how it is restarted
    maintenance: tuple[MaintenanceWindow, ...] = ()
    source: StatementSource


class Prohibition(msgspec.Struct, frozen=True, kw_only=True):
    """Services of which a manifest forbids every action, which the gate therefore denies at every tier."""

    services: tuple[str, ...]  # names, with aliases; ``*`` stands for every service of the repository's manifest
    text: str  # the rule as it was written
    source: StatementSource


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one repository says."""

    repository: str  # the directory's name
    kind: str = ""  # of the repository, one word: ``compose``, ``ansible``
    hosts: tuple[str, ...] = ()  # named as hosts, beside those of the services
    services: tuple[Service, ...] = ()
    rules: tuple[str, ...] = ()  # all of them, as they were written
    prohibitions: tuple[Prohibition, ...] = ()  # those rules that the gate can enforce
    capabilities: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()  # hosts that compose files and further lines name
    ports: tuple[tuple[str, int], ...] = ()  # hosts, each with a TCP port that is named for it anywhere
    same_hosts: tuple[tuple[str, ...], ...] = ()  # names and addresses of one host each
    directories: tuple[str, ...] = ()  # absolute and normal, that its text names anywhere
    projects: Mapping[str, tuple[str, ...]] = msgspec.field(
        default_factory=dict
    )  # compose service → its names with project
    digest: str = ""  # SHA-256 of the manifest's text, in hexadecimal digits; "": no manifest was read
    faults: tuple[Fault, ...] = ()
    unused: tuple[Fault, ...] = ()  # columns that say nothing to us, which need not be mended


class ProbedPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator's own probes connect to."""

    hosts: tuple[str, ...] = ()  # as `Estate.hosts` has them
    ports: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)  # TCP, by host


class Estate(msgspec.Struct, frozen=True, kw_only=True):
    """All manifests together."""

    manifests: tuple[Manifest, ...] = ()
    other_names: Mapping[str, str] = msgspec.field(
        default_factory=dict
    )  # alias → the name that a service is counted by
    hosts: tuple[str, ...] = ()  # every host that a manifest names anywhere, lower case, without ports
    ports: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)  # TCP, that manifests name, by host
    probed: tuple[str, ...] = ()  # hosts of the operator's own probes, written in the same way
    probed_ports: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)  # TCP, of those probes, by host
    unread: bool = False  # no manifest could be read so far: what they forbid is not known

    def with_probes(self, found: ProbedPlaces) -> Estate:
        """Return the same with what the operator's own probes connect to."""
        return replace(self, probed=found.hosts, probed_ports=found.ports)

    @property
    def services(self) -> Iterator[Service]:
        """Yield the services of all manifests, in the order of the repositories."""
        return (service for manifest in self.manifests for service in manifest.services)

    @property
    def expected(self) -> tuple[str, ...]:
        """Return the names of the services that a whole round looks at."""
        return tuple(service.name for service in self.services)

    @property
    def directories(self) -> tuple[str, ...]:
        """Return the directories that the manifests name: compose may act on projects in them and below."""
        return tuple(directory for manifest in self.manifests for directory in manifest.directories)

    @property
    def prohibitions(self) -> tuple[Prohibition, ...]:
        """Return what the manifests forbid."""
        return tuple(forbidden for manifest in self.manifests for forbidden in manifest.prohibitions)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Return what could not be used, in the order of the repositories."""
        return tuple(fault for manifest in self.manifests for fault in manifest.faults)

    @property
    def unbound(self) -> tuple[Fault, ...]:
        """Return the faults of sentences that read like prohibitions and forbid nothing."""
        return tuple(fault for fault in self.faults if fault.unbound)


NO_ESTATE: Final = Estate()

UNREAD: Final = Estate(unread=True)
