"""The hosts that the operator's own probes connect to: a policy's ``{estate}`` stands for them too.

Of a probe counts what it connects to. The names that it asks a name server for are not hosts of the operator's because
of that, and neither is the name server. Manifests' probes add nothing: their hosts are the estate's already.
"""

from __future__ import annotations

from collections.abc import Iterable

from claudeops.domain.estate import hosts
from claudeops.domain.probe.model import (
    AnyLook,
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
from claudeops.domain.probe.schema import host_of
from claudeops.domain.text import unique


def hosts_of(declared: Iterable[Probe]) -> tuple[str, ...]:
    """Return the hosts that probes connect to, as an estate names them, each once."""
    return unique(name for probe in declared for name in _hosts(probe.look))


def _hosts(look: AnyLook) -> tuple[str, ...]:
    match look:
        case HttpLook() | PrometheusLook():
            return hosts.host(host_of(look.url)).hosts
        case TcpLook() | TlsLook() | IcmpLook() | PostgresLook() | MysqlLook() | RedisLook():
            return hosts.host(look.host).hosts
        case _:
            return ()
