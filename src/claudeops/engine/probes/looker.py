"""The one that looks: from a probe to what was seen, within the probe's time, whatever the service does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import msgspec

from claudeops.domain.probes.probe import (
    CommandLook,
    DnsLook,
    DockerLook,
    HeartbeatLook,
    HttpLook,
    IcmpLook,
    KubernetesLook,
    MysqlLook,
    Observation,
    PostgresLook,
    Probe,
    ProbeLook,
    PrometheusLook,
    RedisLook,
    Saw,
    SystemdLook,
    TcpLook,
    TlsLook,
    kind_of,
)
from claudeops.engine.probes.databases import look_mysql, look_postgres, look_redis
from claudeops.engine.probes.dns import look_dns
from claudeops.engine.probes.docker import look_docker
from claudeops.engine.probes.kubernetes import look_kubernetes
from claudeops.engine.probes.network import look_icmp, look_tcp, look_tls
from claudeops.engine.probes.programs import RunCommand, look_command, look_systemd
from claudeops.engine.probes.prometheus import look_prometheus
from claudeops.engine.probes.results import Attempt, LookFailedError, LookResult, blind, cleaned
from claudeops.engine.probes.stream import Means
from claudeops.engine.probes.web import look_http
from claudeops.logs import LogEvent, Logger

_TIMED: Final = (HttpLook, TcpLook, TlsLook, DnsLook, PostgresLook, MysqlLook, RedisLook)
"""The kinds whose own time is the service's; the others ask somebody else about it."""


def _as_it_is(text: str) -> str:
    return text


class Looker(msgspec.Struct, kw_only=True):
    """Looks at services; made once, and used by any number of looks at a time."""

    means: Means
    log: Logger
    redact: Callable[[str], str] = _as_it_is  # for every detail
    run_command: RunCommand | None = None  # None: probes of the kind `command` see nothing

    async def look(self, probe: Probe) -> Observation:
        """Look once; takes at most the probe's timeout, and raises nothing but a cancellation of the caller."""
        attempt = Attempt(timeout=probe.timeout)
        seen, took = None, None
        with anyio.move_on_after(probe.timeout):
            try:
                seen = await self._seen(probe, attempt)
                took = attempt.seconds * 1000 if isinstance(probe.look, _TIMED) else None
            except LookFailedError as error:
                seen = LookResult(error.saw, error.detail)
            except Exception as error:
                self.log.critical(
                    LogEvent.PROBE_LOOK_CRASHED, probe=probe.name, kind=kind_of(probe.look), exc_info=True
                )
                seen = LookResult(Saw.NOTHING, f"the look itself failed ({type(error).__name__}): {attempt.doing}")
        seen = seen or attempt.timed_out()
        return Observation(
            saw=seen.saw,
            at=self.means.clock.now(),
            detail=cleaned(seen.detail, self.redact),
            latency_ms=took if seen.latency_ms is None else seen.latency_ms,
        )

    async def _seen(self, probe: Probe, attempt: Attempt) -> LookResult:
        match probe.look:
            case CommandLook() as look:
                return await look_command(look, self.run_command, attempt)
            case HeartbeatLook():
                raise blind("a heartbeat is heard and not looked at")
            case look if (ask := _KINDS.get(type(look))) is not None:
                return await ask(look, self.means, attempt)
            case _:
                raise blind("this kind of probe is not known here")


_KINDS: Final[Mapping[type[ProbeLook], Callable[[Any, Means, Attempt], Awaitable[LookResult]]]] = {
    HttpLook: look_http,
    TcpLook: look_tcp,
    TlsLook: look_tls,
    DnsLook: look_dns,
    IcmpLook: look_icmp,
    PostgresLook: look_postgres,
    MysqlLook: look_mysql,
    RedisLook: look_redis,
    PrometheusLook: look_prometheus,
    DockerLook: look_docker,
    KubernetesLook: look_kubernetes,
    SystemdLook: look_systemd,
}
