"""What a tier's sessions cannot reach, in short sentences: a session that reads them reports it, and does not guess.

The map is drawn from facts that the daemon gathers (the docker socket, a kubeconfig, ssh's configuration and known
hosts, programs) and from the estate. It claims nothing where a fact cannot be known: a configuration that includes
other files may hold an entry for any host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.estate.estate import Estate, Service
from claudeops.formats.network.known_hosts import KnownHosts
from claudeops.formats.network.ssh_config import SshConfig
from claudeops.structs import replace
from claudeops.text import regex

UNREACHABLE: Final = 'unreachable, detail "not reachable from here"'

PROGRAMS: Final = (
    *("curl", "dig", "docker", "git", "jq", "kubectl", "mysqladmin", "openssl", "pg_isready", "ping", "psql"),
    *("redis-cli", "ssh", "systemctl"),
)
"""What sessions look with."""

_MOST_HOSTS: Final = 100
_SHOWN: Final = 8  # names in a sentence
_NAME_CHARACTERS: Final = 80

_NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9 ._:@/-]{0,79}")
_LOOSE: Final = frozenset({"no", "off", "accept-new"})  # ssh_config(5), StrictHostKeyChecking
_CLUSTERED: Final = frozenset({"kubernetes", "k8s", "k3s", "deployment", "statefulset", "daemonset", "pod", "helm"})
_CONTAINED: Final = frozenset({"container", "docker", "compose", "podman", "swarm"})


class DockerAccess(StrEnum):
    """Whether a session can ask docker on this machine."""

    OPEN = "open"
    ABSENT = "absent"  # there is no socket
    HIDDEN = "hidden"  # the cell does not show it
    REFUSED = "refused"  # the session's user may not use it
    ELSEWHERE = "elsewhere"  # the tier's variables name an engine that is no socket: nothing is known


# --- ssh ----------------------------------------------------------------------------------------------


class SshFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What ssh finds in a session."""

    config: str = ""
    known_hosts: str = ""
    keys: bool = False  # some key or agent is there
    refusal: str = ""  # why ssh does not run at all, as the end of a sentence


class _Ssh:
    """What a session's ssh is configured for, and which hosts' keys it knows."""

    def __init__(self, facts: SshFacts) -> None:
        self.config = SshConfig(facts.config)
        self._known = KnownHosts(facts.known_hosts)
        self.is_whole = self.config.is_whole and self._known.is_whole

    def knows(self, host: str) -> bool:
        """Whether the host's key is known, or ssh accepts one that is not."""
        if self.config.option(host, "stricthostkeychecking").lower() in _LOOSE:
            return True
        aliases = (self.config.option(host, "hostkeyalias").lower(), self.config.option(host, "hostname").lower())
        named = {host, *aliases} - {""}
        port = self.config.option(host, "port")
        names = named | ({f"[{name}]:{port}" for name in named} if port else set())
        return self._known.knows(names)


# --- the map ------------------------------------------------------------------------------------------


class AccessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon has found out about a tier's sessions."""

    here: frozenset[str] = frozenset()  # the names of this machine, lower case
    docker: DockerAccess = DockerAccess.OPEN
    docker_socket: str = ""  # its path
    kubeconfig: bool = True  # there is one, or the tier's variables name one
    ssh: SshFacts = SshFacts()
    missing: tuple[str, ...] = ()  # of `PROGRAMS`

    def with_agent(self) -> AccessFacts:
        """Return them for sessions for whose ssh an agent of the daemon has keys."""
        return replace(self, ssh=replace(self.ssh, keys=True))


def limits(facts: AccessFacts, *, services: Sequence[Service], hosts: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what sessions cannot reach of an estate, one sentence each; none: nothing is known to be out of reach."""
    local = {"", "localhost", "127.0.0.1", "::1", *facts.here}
    elsewhere = sorted({host.lower() for host in (*hosts, *(service.host for service in services))} - local)
    here = [service for service in services if service.host.lower() in local]
    sentences = [
        *_docker(facts, [service for service in here if service.kind in _CONTAINED], everything=not services),
        *_cluster(facts, [service for service in services if service.kind in _CLUSTERED], everything=not services),
        *_hosts(facts, elsewhere[:_MOST_HOSTS], services),
    ]
    if facts.missing:
        names = ", ".join(facts.missing)
        sentences.append(f"not installed where this tier runs: {names}; what only these could show is {UNREACHABLE}")
    return tuple(sentences)


def limits_in(facts: AccessFacts, estate: Estate) -> tuple[str, ...]:
    """Return what sessions cannot reach of what the manifests describe, as `limits` does."""
    # Not `estate.hosts`: those of addresses are probed from outside.
    named = [host for manifest in estate.manifests for host in manifest.hosts]
    return limits(facts, services=tuple(estate.services), hosts=named)


def _docker(facts: AccessFacts, services: Sequence[Service], *, everything: bool) -> Iterator[str]:
    where = facts.docker_socket
    reasons = {
        DockerAccess.ABSENT: f"there is no socket {where} where this tier runs",
        DockerAccess.HIDDEN: f"the socket {where} is outside of what this tier can see",
        DockerAccess.REFUSED: f"this tier's user may not use the socket {where}",
    }
    reason = "it is not installed where this tier runs" if "docker" in facts.missing else reasons.get(facts.docker)
    if reason and (services or everything):
        yield f"docker: {reason}; {_consequence(services, 'the containers of this machine')}"


def _cluster(facts: AccessFacts, services: Sequence[Service], *, everything: bool) -> Iterator[str]:
    reason = "it is not installed where this tier runs" if "kubectl" in facts.missing else ""
    reason = reason or ("" if facts.kubeconfig else "this tier has no kubeconfig")
    if reason and (services or everything):
        yield f"kubectl: {reason}; {_consequence(services, 'what runs in a cluster')}"


def _hosts(facts: AccessFacts, hosts: Sequence[str], services: Sequence[Service]) -> Iterator[str]:
    if not hosts:
        return

    def sentence(reason: str, about: Sequence[str]) -> str:
        on = [service for service in services if service.host.lower() in about and service.kind not in _CLUSTERED]
        return f"ssh to {_listed(about)}: {reason}; {_consequence(on, 'what runs there')}"

    ssh = _Ssh(facts.ssh)
    if "ssh" in facts.missing or facts.ssh.refusal:
        yield sentence(facts.ssh.refusal or "it is not installed where this tier runs", hosts)
    elif not (facts.ssh.keys or ssh.config.names_key()) and ssh.is_whole:
        yield sentence("this tier has no key", hosts)
    elif ssh.is_whole:
        yield from _unlisted_hosts(ssh, hosts, sentence)


def _unlisted_hosts(ssh: _Ssh, hosts: Sequence[str], sentence: Callable[[str, Sequence[str]], str]) -> Iterator[str]:
    unknown = [host for host in hosts if not ssh.knows(host)]
    if without := [host for host in unknown if not ssh.config.has_entry(host)]:
        yield sentence("no entry in this tier's ssh config or known hosts", without)
    if unproven := [host for host in unknown if ssh.config.has_entry(host)]:
        yield sentence("the key is not among this tier's known hosts, so ssh refuses", unproven)


def _consequence(services: Sequence[Service], otherwise: str) -> str:
    """Return what to do about services that cannot be looked at from inside."""
    blind = [service.name for service in services if not service.address]
    seen = [service.name for service in services if service.address]
    remedies = [f"report {_listed(blind)} as {UNREACHABLE}"] if blind else []
    remedies += [f"look at {_listed(seen)} by the address alone"] if seen else []
    return "; ".join(remedies) or f"report {otherwise} as {UNREACHABLE}"


def _listed(names: Sequence[str]) -> str:
    shown = [name if _NAME.fullmatch(name) else ascii(name)[:_NAME_CHARACTERS] for name in names[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
