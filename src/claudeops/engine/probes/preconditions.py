"""What keeps a probe from working on this machine, found out before it looks. No service is asked anything.

What many probes share, such as a socket or the kernel's leave to send echo requests, is tried once.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from claudeops.domain.probes.probe import (
    CommandLook,
    DnsLook,
    DockerLook,
    HttpLook,
    IcmpLook,
    KubernetesLook,
    Probe,
    SystemdLook,
)
from claudeops.engine.probes.declared import allow_all
from claudeops.engine.probes.dns import servers_of_machine
from claudeops.engine.probes.docker import reach_engine
from claudeops.engine.probes.kubernetes import cluster_of
from claudeops.engine.probes.network import PINGS_FORBIDDEN
from claudeops.engine.probes.programs import ask_systemd
from claudeops.engine.probes.results import Attempt, LookFailedError, cleaned
from claudeops.engine.probes.stream import Means
from claudeops.engine.probes.web import filled

_SECONDS: Final = 5.0  # for what is tried on this machine
_SET_IT: Final = "set it there, or change the header"
_ALLOW_IT: Final = "write a command that tier 1's policy allows, or allow this one there"
_NAME_ONE: Final = "name a kubeconfig that leads to a cluster with 'kubeconfig', or leave the probe out"
_ON_MACHINE: Final = "run the daemon where systemd can be asked, or leave the probe out"


class Preconditions(msgspec.Struct, kw_only=True):
    """Finds out what keeps probes from working; made for one round of all of them."""

    means: Means
    refuse_command: Callable[[str], str | None] = allow_all  # by tier 1's policy, within the estate
    redact: Callable[[str], str] = str
    _known: dict[Hashable, str] = msgspec.field(
        default_factory=dict
    )  # what many probes share → why it is missing, or ""

    async def obstacle(self, probe: Probe) -> str:
        """Return why a probe cannot see anything here, a clause with the remedy; "" if nothing is known."""
        match probe.look:
            case HttpLook() as look:
                return self._header(look)
            case CommandLook() as look:
                reason = self.refuse_command(look.command)
                found = "" if reason is None else f"tier 1's policy does not let it run: {reason}; {_ALLOW_IT}"
            case DnsLook(server="") | IcmpLook() | DockerLook() | KubernetesLook() | SystemdLook():
                found = await self._shared(probe)
            case _:
                return ""
        return cleaned(found, self.redact)

    def _header(self, look: HttpLook) -> str:
        try:
            filled(look.headers, self.means.environment)
        except LookFailedError as error:
            return cleaned(f"{error.detail}; {_SET_IT}", self.redact)
        return ""

    async def _shared(self, probe: Probe) -> str:
        look = probe.look
        key: Hashable = type(look)
        if isinstance(look, DockerLook):
            key = look.socket
        elif isinstance(look, KubernetesLook):
            key = (look.kubeconfig, look.context)
        if key not in self._known:
            try:
                self._known[key] = await self._tried(probe)
            except LookFailedError as error:
                remedies = {KubernetesLook: _NAME_ONE, SystemdLook: _ON_MACHINE}
                remedy = remedies.get(type(look))
                self._known[key] = error.detail if remedy is None else f"{error.detail}; {remedy}"
            except OSError as error:
                self._known[key] = f"it cannot be tried ({error.strerror or type(error).__name__}); {_NAME_ONE}"
        return self._known[key]

    async def _tried(self, probe: Probe) -> str:
        """Return why something is missing; raises `LookFailedError` or `OSError` for that as well."""
        means, attempt = self.means, Attempt(timeout=_SECONDS)
        match probe.look:
            case IcmpLook():
                return "" if may_ping() else PINGS_FORBIDDEN
            case DnsLook():
                await means.load("dns.resolver")
                await servers_of_machine(means)
            case DockerLook() as look:
                await reach_engine(look, means, attempt)
            case KubernetesLook() as look:
                await means.lookups.run(
                    lambda: cluster_of(look, means.environment), seconds=_SECONDS, what="reading the way to a cluster"
                )
            case _:
                await ask_systemd(("--property=Version",), means)
        return ""


def may_ping() -> bool:
    """Whether the kernel gives a socket for echo requests, with or without privileges."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP).close()
        except OSError:
            continue
        return True
    return False
