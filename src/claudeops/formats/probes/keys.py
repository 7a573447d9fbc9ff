"""The keys of a probes file, and which values of a look make sense.

Which hosts may be probed is judged here for the operator's file and for manifests alike: link-local and metadata
addresses never, whoever names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, get_args

import msgspec

from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.domain.probes.probe import (
    AnyLook,
    CommandLook,
    DnsLook,
    DockerLook,
    HeartbeatLook,
    HttpLook,
    IcmpLook,
    KubernetesLook,
    MysqlLook,
    PostgresLook,
    ProbeLook,
    ProbeState,
    PrometheusLook,
    RedisLook,
    SystemdLook,
    TcpLook,
    TlsLook,
)
from claudeops.errors import ConfigurationError
from claudeops.policy.reach import refuse_url
from claudeops.text import regex
from claudeops.text.toml_file import KeyFault


class Defaults(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[defaults]``: what holds for every probe that says nothing else, those of manifests too."""

    interval: float = 30.0
    retry_interval: float = 5.0
    timeout: float = 10.0
    failures: int = 3
    successes: int = 2
    starts_chain: bool = True


class ProbeKeys(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[probe]]``: the keys of every kind."""

    name: str
    kind: str
    service: str = ""
    interval: float | None = None
    retry_interval: float | None = None
    timeout: float | None = None
    failures: int | None = None
    successes: int | None = None
    starts_chain: bool | None = None
    depends_on: tuple[str, ...] = ()
    silenced: bool = False
    sites: tuple[str, ...] = ()
    quorum: int | None = None


KINDS: Final[Mapping[str, type[ProbeLook]]] = MappingProxyType(
    {str(kind.__struct_config__.tag): kind for kind in get_args(AnyLook)}
)
"""The looks by the names of their kinds, in the order of the reference."""

SECONDS: Final = frozenset({"interval", "retry_interval", "timeout", "every", "grace", "slower_than"})
"""Keys that hold seconds, or a duration as text."""

DAYS: Final = frozenset({"expires_within", "down_within"})
"""Keys that hold days, or a duration as text."""

_DURATION: Final = regex.Pattern(r"(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|m|h|d)")
_UNIT: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DAY: Final = 86400.0


def in_unit(key: str, value: object) -> object:
    """Return a duration in the unit of its key, and any other value as it is. Raises `KeyFault`."""
    if key not in SECONDS | DAYS or isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise KeyFault(key, f"{key}: {value[:40]!r} is not a duration: write '30s', '5m', '2h' or '14d'")
        return float(found[1]) * _UNIT[found[2]] / (_DAY if key in DAYS else 1.0)
    if not math.isfinite(value) or value < 0:
        raise KeyFault(key, f"{key}: {value} is not a duration: write '30s', '5m', '2h' or '14d'")
    return float(value)


# --- what a look asks -------------------------------------------------------------------------------------


_LARGEST_PORT: Final = 65535
_SPECIAL: Final = frozenset({"0.0.0.0", "255.255.255.255", "::"})  # noqa: S104 - refused, not bound to
_POINTER: Final = regex.Pattern(r"(?s)(?:/(?:[^~/]|~[01])*)*")
_HEADER: Final = regex.Pattern(r"[A-Za-z0-9!#$%&'*+.^_|~-]{1,100}")
_VALUE: Final = regex.Pattern(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_SECRET_HEADER: Final = regex.Pattern(r"(?i)auth|cookie|token|secret|password|credential|api.?key")
_REFERENCE: Final = regex.Pattern(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_RECORDS: Final = ("A", "AAAA", "CAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT")
_QUERY: Final = regex.Pattern(r"(?:[A-Za-z0-9_*-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
_PLAIN: Final = regex.Pattern(r"[\w.@:\\-]{1,255}")
_WORKLOAD: Final = regex.Pattern(r"(?:deployment|statefulset|daemonset)/[a-z0-9.-]{1,253}")
_MOST_REDIRECTS: Final = 10
_MOST_ECHOES: Final = 20
_STATUSES: Final = range(100, 600)
_LONGEST_EVERY: Final = 366 * _DAY


def check_look(look: ProbeLook) -> None:
    """Raise `KeyFault` unless a look can be taken."""
    for key, value in msgspec.structs.asdict(look).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise KeyFault(key, f"{key}: {value} is not a number: write one")
    _CHECKS[type(look)](look)


def check_host(key: str, host: str) -> None:
    """Raise `KeyFault` unless a host may be probed."""
    if not host or host != host.strip() or "/" in host:
        raise KeyFault(key, f"{key}: {host[:80]!r} is not a host: write its name or address alone, such as 'web1'")
    if (reason := refuse_host(host)) is not None:
        raise KeyFault(key, f"{key}: {reason}: name another host")
    if host.strip("[]") in _SPECIAL:
        raise KeyFault(key, f"{key}: {host} is not the address of one machine: name that")


def check_url(key: str, url: str) -> None:
    """Raise `KeyFault` unless a URL may be fetched."""
    scheme, found, rest = url.partition("://")
    if not found or scheme.lower() not in {"http", "https"}:
        raise KeyFault(key, f"{key}: a URL begins with http:// or https://: write it out")
    if "@" in rest.partition("/")[0].partition("?")[0]:  # its text is not repeated: it holds a password
        raise KeyFault(key, f"{key}: a URL holds no credentials: write a header with ${{NAME}} of the environment")
    if (reason := refuse_url(url)) is not None:
        raise KeyFault(key, f"{key}: {reason}: name another address")
    check_host(key, host_of(url))


def host_of(url: str) -> str:
    """Return the host of a URL that `refuse_url` accepts."""
    place = url.partition("://")[2].partition("/")[0].partition("?")[0].partition("#")[0]
    return place.partition("]")[0].removeprefix("[") if place.startswith("[") else place.partition(":")[0]


def check_port(key: str, port: int) -> None:
    """Raise `KeyFault` unless a port exists."""
    if not 1 <= port <= _LARGEST_PORT:
        raise KeyFault(key, f"{key}: there is no port {port}: ports go from 1 to {_LARGEST_PORT}")


def _expect(is_right: bool, key: str, reason: str) -> None:  # noqa: FBT001 - the condition is the point
    if not is_right:
        raise KeyFault(key, f"{key}: {reason}")


def _check_http(look: HttpLook) -> None:
    check_url("url", look.url)
    _expect(look.method in {"GET", "HEAD"}, "method", f"{look.method[:20]!r} could change something: write GET or HEAD")
    _expect(all(each in _STATUSES for each in look.status), "status", "a status of HTTP is a number from 100 to 599")
    has_body = bool(look.text or look.json)
    _expect(look.method == "GET" or not has_body, "method", "an answer to HEAD has no body: write GET")
    _expect(all(map(_POINTER.fullmatch, look.json)), "json", "the keys are JSON pointers: write '/status/ready'")
    _expect(look.slower_than is None or look.slower_than > 0, "slower_than", "every answer takes longer than 0 s")
    _expect(0 <= look.redirects <= _MOST_REDIRECTS, "redirects", f"follow 0 to {_MOST_REDIRECTS} of them")
    for name, value in look.headers.items():
        _check_header(name, value)


def _check_header(name: str, value: str) -> None:
    _expect(_HEADER.fullmatch(name) is not None, "headers", f"{name[:40]!r} is not the name of a header")
    _expect(_VALUE.fullmatch(value) is not None, "headers", f"{name} holds a control character: leave it out")
    unknown = "${" in _REFERENCE.sub("", value)
    _expect(not unknown, "headers", f"{name}: a reference to the environment is written ${{NAME}}")
    is_plain = _SECRET_HEADER.search(name) is not None and not _REFERENCE.search(value)
    _expect(not is_plain, "headers", f"{name} looks like a secret: put it in the environment and write ${{NAME}}")


def _check_server(look: TcpLook | PostgresLook | MysqlLook | RedisLook) -> None:
    check_host("host", look.host)
    check_port("port", look.port)


def _check_tls(look: TlsLook) -> None:
    check_host("host", look.host)
    check_port("port", look.port)
    if look.server_name:
        check_host("server_name", look.server_name)
    days = look.down_within <= look.expires_within
    _expect(days, "down_within", "it would be down before it is degraded: write less than 'expires_within'")


def _check_dns(look: DnsLook) -> None:
    _expect(_QUERY.fullmatch(look.query) is not None, "query", f"{look.query[:80]!r} is not a name that can be asked")
    _expect(look.record in _RECORDS, "record", f"{look.record[:20]!r} is not known: known are {', '.join(_RECORDS)}")
    if look.server:
        host, port = split_address(look.server)
        check_host("server", host)
        if port:
            _expect(port.isdigit(), "server", f"{look.server[:80]!r}: write ADDRESS or ADDRESS:PORT")
            check_port("server", int(port))


def split_address(text: str) -> tuple[str, str]:
    """Return host and port of ``host``, ``host:port``, an IPv6 address, or one in brackets with a port."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    return (text, "") if text.count(":") > 1 else (text.partition(":")[0], text.partition(":")[2])


def _check_icmp(look: IcmpLook) -> None:
    check_host("host", look.host)
    _expect(1 <= look.count <= _MOST_ECHOES, "count", f"send 1 to {_MOST_ECHOES} requests")
    _expect(0 < look.lost <= 1, "lost", "it is a share: write more than 0 and at most 1")


def _check_prometheus(look: PrometheusLook) -> None:
    check_url("url", look.url)
    _expect(bool(look.expression.strip()), "expression", "write the PromQL expression whose value is compared")
    above, below = look.above, look.below
    _expect(above is not None or below is not None, "expression", "nothing is compared: add 'above' or 'below'")
    overlaps = above is not None and below is not None and below > above
    _expect(not overlaps, "below", "every value would be down: write less than 'above'")
    states = (ProbeState.UNKNOWN, ProbeState.UP, ProbeState.DEGRADED, ProbeState.DOWN)
    _expect(look.absent in states, "absent", f"write one of {', '.join(states)}")


def _check_docker(look: DockerLook) -> None:
    _expect(_PLAIN.fullmatch(look.container) is not None, "container", "write the name of a container")
    is_path = look.socket.startswith("/") and ".." not in look.socket.split("/")
    _expect(is_path, "socket", "write the absolute path of the engine's socket")


def _check_kubernetes(look: KubernetesLook) -> None:
    named = _WORKLOAD.fullmatch(look.workload) is not None
    _expect(named, "workload", "write deployment/NAME, statefulset/NAME or daemonset/NAME")
    _expect(_PLAIN.fullmatch(look.namespace) is not None, "namespace", "write the name of a namespace")
    is_path = not look.kubeconfig or look.kubeconfig.startswith(("/", "~/"))
    _expect(is_path, "kubeconfig", "write an absolute path, or one that begins with ~/")


def _check_systemd(look: SystemdLook) -> None:
    _expect(_PLAIN.fullmatch(look.unit) is not None, "unit", "write the name of a unit, such as 'nginx.service'")


def _check_command(look: CommandLook) -> None:
    _expect(bool(look.command.strip()), "command", "write the command that looks")
    _expect(0 not in look.degraded, "degraded", "exit code 0 is up: leave it out")


def _check_heartbeat(look: HeartbeatLook) -> None:
    _expect(1 <= look.every <= _LONGEST_EVERY, "every", "write 1 s to 366 days")
    _expect(0 <= look.grace <= _LONGEST_EVERY, "grace", "write at most 366 days")


_CHECKS: Final[Mapping[type[ProbeLook], Callable[..., None]]] = MappingProxyType(
    {
        HttpLook: _check_http,
        TcpLook: _check_server,
        TlsLook: _check_tls,
        DnsLook: _check_dns,
        IcmpLook: _check_icmp,
        PostgresLook: _check_server,
        MysqlLook: _check_server,
        RedisLook: _check_server,
        PrometheusLook: _check_prometheus,
        DockerLook: _check_docker,
        KubernetesLook: _check_kubernetes,
        SystemdLook: _check_systemd,
        CommandLook: _check_command,
        HeartbeatLook: _check_heartbeat,
    }
)


# --- references to the environment ------------------------------------------------------------------------


def referred(look: ProbeLook) -> tuple[str, ...]:
    """Return the names of the variables that a look refers to."""
    values = look.headers.values() if isinstance(look, HttpLook) else ()
    return tuple(dict.fromkeys(found[1] for value in values for found in _REFERENCE.finditer(value)))


def headers_of(look: HttpLook, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with the values of the variables that they refer to: secrets, which are never logged.

    Raises `ConfigurationError`, which names the variable and not the value.
    """
    for name in referred(look):
        if name not in environ or _VALUE.fullmatch(environ[name]) is None:
            wrong = "is not set" if name not in environ else "holds a control character"
            message = f"a header of the probe at {look.url} refers to {name}, which {wrong}: set it, or change the file"
            raise ConfigurationError(message)
    return {key: _REFERENCE.sub(lambda found: environ[found[1]], value) for key, value in look.headers.items()}
