"""Decides for which hosts the agent of a session may use the keys of its tier.

A host is on this list if its key is among the known hosts, and ssh may connect to it: it stands on the list of the
tier (`claudeops.formats.network.destinations`) at port 22, or at a port that something names. The agent knows hosts by
their keys alone, so what counts of a host is each name under which ssh looks its key up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.domain.estate.hosts import PORTS
from claudeops.domain.estate.strangers import address_in
from claudeops.domain.network.destination import Destination, merged, network_in
from claudeops.formats.network.known_hosts import HostKey, KnownHosts
from claudeops.formats.network.ssh_config import SshConfig
from claudeops.text import regex

MOST_HOSTS: Final = 512
MOST_BYTES: Final = 192 * 1024
"""OpenSSH's agent takes 1,024 hosts, and a message of 256 KiB that holds them with one key."""

_KEPT: Final = 16  # results: all sessions of a tier have the same, until something changes
_SSH_PORT: Final = PORTS["ssh"]
_OF_A_HOST: Final = 64  # bytes, beside its names and keys
_OF_A_KEY: Final = 8
# Of these a list of known hosts can be written; the others are patterns, or mean something to ssh-add.
_NAME: Final = regex.Pattern(r"[a-z0-9_:\[][a-z0-9._:\[\]-]{0,254}")
_PORT: Final = regex.Pattern(r"[0-9]{1,5}")


class KeyScope(msgspec.Struct, frozen=True, kw_only=True):
    """Where keys may be used."""

    hosts: tuple[str, ...] = ()  # by names as known hosts have them: ``web1``, ``[web1]:2222``
    known_hosts: str = ""  # their keys, and no others
    unknown: tuple[str, ...] = ()  # hosts that ssh may connect to, and whose keys are not known
    left_out: tuple[str, ...] = ()  # beyond `MOST_HOSTS` and `MOST_BYTES`


@lru_cache(maxsize=_KEPT)
def key_scope(listed: tuple[Destination, ...], *, config: str, known_hosts: str) -> KeyScope:
    """Return where keys may be used, for a tier's list, its ssh configuration and the files of known hosts."""
    known, hosts = KnownHosts(known_hosts), _Hosts(listed, SshConfig(config))
    found: dict[str, tuple[HostKey, ...]] = {}
    unknown: list[str] = []
    for names in hosts.wanted():
        name = next(filter(known.keys_of, names), None)
        if name is None:
            unknown.append(names[0])
        else:
            found[name] = known.keys_of(name)
    found |= {name: keys for name in known.names() if hosts.has(name) and (keys := known.keys_of(name))}
    return _bounded({name: found[name] for name in sorted(found) if _NAME.fullmatch(name)}, unknown)


class _Hosts:
    """The list of a tier, with what its ssh configuration calls the hosts on it."""

    def __init__(self, listed: Iterable[Destination], config: SshConfig) -> None:
        listed = merged(listed)
        self._single = {one.host: _ports(one) for one in listed if network_in(one.host) is None}
        networks = ((network_in(one.host), one.tcp) for one in listed)
        self._networks = [(network, ports) for network, ports in networks if network is not None]
        self._config = config

    def wanted(self) -> Iterator[tuple[str, ...]]:
        """Yield the names under which ssh looks up the key of each host; the first that is known counts."""
        for host, ports in self._single.items():
            for port in sorted(ports):
                yield _names(host, port)
        for alias, (end, number) in self._config.aliases((*self._single, *self._config.hosts())):
            if number in self._ports_of(end):
                yield (alias,)

    def has(self, name: str) -> bool:
        """Whether a name of known hosts is an address in a network on the list."""
        host, _, port = name.removeprefix("[").partition("]:") if name.startswith("[") else (name, "", "")
        number = _SSH_PORT if not port else int(port) if _PORT.fullmatch(port) else 0
        return address_in(host) is not None and number in self._ports_of(host)

    def _ports_of(self, host: str) -> Iterable[int]:
        if host in self._single:
            return self._single[host]
        address = address_in(host)
        return frozenset(
            port for network, ports in self._networks if address is not None and address in network for port in ports
        )


def _ports(one: Destination) -> frozenset[int]:
    """Return the ports of a host at which ssh may be: its own, and those that are written down."""
    return one.tcp & (one.named | {_SSH_PORT})


def _names(host: str, port: int) -> tuple[str, ...]:
    """Return the names of a host, in the order in which ssh looks: for another port than 22 first with that."""
    return (host,) if port == _SSH_PORT else (f"[{host}]:{port}", host)


def _bounded(found: dict[str, tuple[HostKey, ...]], unknown: Sequence[str]) -> KeyScope:
    hosts: list[str] = []
    lines: list[str] = []
    left_out: list[str] = []
    free = MOST_BYTES
    for name, keys in found.items():
        free -= _OF_A_HOST + len(name) + sum(_OF_A_KEY + len(key.blob) * 3 // 4 for key in keys)
        if free < 0 or len(hosts) == MOST_HOSTS:
            left_out.append(name)
            continue
        hosts.append(name)
        lines += [key.line(name) for key in keys]
    # At ports that are named there mostly is no ssh.
    names = (name for name in unknown if not name.startswith("["))
    return KeyScope(
        hosts=tuple(hosts),
        known_hosts="".join(f"{line}\n" for line in lines),
        unknown=tuple(dict.fromkeys(names)),
        left_out=tuple(left_out),
    )
