"""The hosts that the operator's own probes connect to: a policy's ``{estate}`` stands for them too.

Of a probe counts what it connects to. The names that it asks a name server for are not hosts of the operator's because
of that, and neither is the name server. Manifests' probes add nothing: their hosts are the estate's already.
"""

from __future__ import annotations

from collections.abc import Iterable

from claudeops.domain.estate import hosts
from claudeops.domain.estate.estate import ProbedPlaces
from claudeops.domain.probes.probe import (
    AnyLook,
    CommandLook,
    HttpLook,
    IcmpLook,
    MysqlLook,
    PostgresLook,
    Probe,
    PrometheusLook,
    RedisLook,
    TcpLook,
    TlsLook,
)
from claudeops.formats.probes.keys import host_of
from claudeops.text import unique


def probed_by(declared: Iterable[Probe]) -> ProbedPlaces:
    """Return the hosts that probes connect to, each with the ports at which they do."""
    looks = [probe.look for probe in declared]
    ports: dict[str, set[int]] = {}
    for look in looks:
        for name in _hosts(look):
            ports.setdefault(name, set()).update(_ports(look))
        # What a command connects to is allowed by its own judgement, and makes no host one of the estate.
        for name, port in hosts.in_address(look.command).ports if isinstance(look, CommandLook) else ():
            ports.setdefault(name, set()).add(port)
    found = {name: tuple(sorted(numbers)) for name, numbers in ports.items() if numbers}
    return ProbedPlaces(hosts=unique(name for look in looks for name in _hosts(look)), ports=found)


def _ports(look: AnyLook) -> tuple[int, ...]:
    match look:
        case HttpLook() | PrometheusLook():
            return tuple(port for _, port in hosts.in_address(look.url).ports[:1])
        case TcpLook() | TlsLook() | PostgresLook() | MysqlLook() | RedisLook():
            return (look.port,)
        case _:
            return ()


def _hosts(look: AnyLook) -> tuple[str, ...]:
    match look:
        case HttpLook() | PrometheusLook():
            return hosts.host(host_of(look.url)).hosts
        case TcpLook() | TlsLook() | IcmpLook() | PostgresLook() | MysqlLook() | RedisLook():
            return hosts.host(look.host).hosts
        case _:
            return ()
