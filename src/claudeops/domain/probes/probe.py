"""Probes as values: what is looked at, how often, what one look saw, and how a probe stands.

A probe *looks* (once) and *stands* (over time). One look is an `Observation`; `domain.probes.state_machine` turns
observations into a `Standing` and says when it has changed.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet


class ProbeState(ClosedSet):
    """How a probe stands."""

    UNKNOWN = "unknown", "there was no look yet, or it could not look"
    UP = "up", "it works"
    DEGRADED = "degraded", "it works, but slowly, partly, or not for much longer"
    DOWN = "down", "it does not work"
    FLAPPING = "flapping", "it changes too often for any of the others to be news"
    SILENCED = "silenced", "it is looked at and makes no news, because an operator wants it so"


class ProbeLook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What a probe of one kind asks; the subclasses' tags are the kinds of an operator's file."""


class HttpLook(ProbeLook, frozen=True, kw_only=True, tag="http"):
    """A GET (or HEAD) of a URL."""

    url: str
    method: str = "GET"  # or HEAD
    status: tuple[int, ...] = ()  # that count as up; empty: 200 to 399
    text: str = ""  # that the body must hold
    json: dict[str, str | int | float | bool] = {}  # JSON pointer (RFC 6901) → the value that must stand there
    slower_than: float | None = None  # seconds from which an answer is degraded
    verify: bool = True  # the certificate
    expires_within: float = 14.0  # days left of the certificate from which the service is degraded
    redirects: int = 3  # at most; only to hosts of the estate or of the URL
    headers: dict[str, str] = {}  # values may be ``${NAME}`` of the daemon's environment


class TcpLook(ProbeLook, frozen=True, kw_only=True, tag="tcp"):
    """A connection to a port."""

    host: str
    port: int
    banner: str = ""  # that the first bytes must hold


class TlsLook(ProbeLook, frozen=True, kw_only=True, tag="tls"):
    """A TLS handshake: verified, and its certificate not about to expire."""

    host: str
    port: int = 443
    server_name: str = ""  # empty: the host
    verify: bool = True
    expires_within: float = 14.0  # days: degraded
    down_within: float = 0.0  # days: down


class DnsLook(ProbeLook, frozen=True, kw_only=True, tag="dns"):
    """A lookup of a name."""

    query: str
    record: str = "A"
    server: str = ""  # ``ADDRESS`` or ``ADDRESS:PORT``; empty: the system's
    expect: tuple[str, ...] = ()  # values of which each must be in the answer; empty: any answer


class IcmpLook(ProbeLook, frozen=True, kw_only=True, tag="icmp"):
    """Echo requests; unprivileged where the kernel allows."""

    host: str
    count: int = 3
    lost: float = 0.5  # share of lost ones from which it is degraded; all lost: down


class PostgresLook(ProbeLook, frozen=True, kw_only=True, tag="postgres"):
    """Whether a PostgreSQL server accepts connections, as pg_isready sees it; no login is needed."""

    host: str
    port: int = 5432


class MysqlLook(ProbeLook, frozen=True, kw_only=True, tag="mysql"):
    """Whether a MySQL or MariaDB server greets."""

    host: str
    port: int = 3306


class RedisLook(ProbeLook, frozen=True, kw_only=True, tag="redis"):
    """Whether a Redis or Valkey server answers PING; one that asks for a password is up."""

    host: str
    port: int = 6379


class PrometheusLook(ProbeLook, frozen=True, kw_only=True, tag="prometheus"):
    """A PromQL expression against a threshold; with several series the worst counts."""

    url: str  # of the Prometheus server
    expression: str
    above: float | None = None  # a value above it is down
    below: float | None = None  # a value below it is down
    absent: ProbeState = ProbeState.UNKNOWN  # what no series means


class DockerLook(ProbeLook, frozen=True, kw_only=True, tag="docker"):
    """The state and health of a container, asked of the engine's socket."""

    container: str
    socket: str = "/var/run/docker.sock"


class KubernetesLook(ProbeLook, frozen=True, kw_only=True, tag="kubernetes"):
    """Whether a workload has the replicas that it wants."""

    workload: str  # ``deployment/web``, ``statefulset/db``, ``daemonset/logs``
    namespace: str = "default"
    kubeconfig: str = ""  # empty: the service account of the pod, else ``~/.kube/config``
    context: str = ""


class SystemdLook(ProbeLook, frozen=True, kw_only=True, tag="systemd"):
    """Whether a unit is active."""

    unit: str


class CommandLook(ProbeLook, frozen=True, kw_only=True, tag="command"):
    """A reading command that the policy allows at tier 1, run in the cell; exit code 0 is up."""

    command: str
    text: str = ""  # that its output must hold
    degraded: tuple[int, ...] = ()  # exit codes


class HeartbeatLook(ProbeLook, frozen=True, kw_only=True, tag="heartbeat"):
    """Something that must be heard from; silence is the failure."""

    every: float  # seconds between two pings
    grace: float = 0.0  # seconds that one may be late


AnyLook = (
    HttpLook
    | TcpLook
    | TlsLook
    | DnsLook
    | IcmpLook
    | PostgresLook
    | MysqlLook
    | RedisLook
    | PrometheusLook
    | DockerLook
    | KubernetesLook
    | SystemdLook
    | CommandLook
    | HeartbeatLook
)


def kind_of(look: ProbeLook) -> str:
    """Return the kind of a look, as operators write it."""
    return str(look.__struct_config__.tag)


def target_of(look: AnyLook) -> str:
    """Return what a look is at, in a few words: a URL, ``host:port``, a name, a command."""
    match look:
        case HttpLook() | PrometheusLook():
            target = look.url
        case TcpLook() | TlsLook() | PostgresLook() | MysqlLook() | RedisLook():
            target = f"[{look.host}]:{look.port}" if ":" in look.host else f"{look.host}:{look.port}"
        case IcmpLook():
            target = look.host
        case DnsLook():
            target = f"{look.query} {look.record}"
        case DockerLook():
            target = look.container
        case KubernetesLook():
            target = f"{look.namespace}/{look.workload}"
        case SystemdLook():
            target = look.unit
        case CommandLook():
            target = look.command
        case _:
            target = f"every {look.every:g} s"
    return target


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One probe."""

    name: str
    look: AnyLook
    service: str  # of the estate that it is about; its own name where none is named
    interval: float = 30.0  # seconds between two looks
    retry_interval: float = 5.0  # seconds after a look that failed, until the state is settled
    timeout: float = 10.0  # seconds for one look as a whole
    failures: int = 3  # in a row until it is down
    successes: int = 2  # in a row until it is up again
    depends_on: tuple[str, ...] = ()  # services: while one of them is down, this probe's failure is explained
    starts_chain: bool = True  # a change for the worse starts a session
    silenced: bool = False
    sites: tuple[str, ...] = ()  # whose nodes look, each by itself; none: those that declare it
    quorum: int = 0  # of these, which must see it down until it is; 0: no sites are named
    origin: str  # the file and line that declares it


class Saw(StrEnum):
    """What one look saw."""

    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"
    NOTHING = "nothing"  # it could not look: a fault of ours, not of the service


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look."""

    saw: Saw
    at: datetime  # when it ended
    detail: str = ""  # one line, clean, at most 500 characters
    latency_ms: float | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe stands: the row that is kept.

    ``domain.probes.state_machine`` says what the counters mean. A row without the fields from ``beneath`` on still
    works: the probe then needs some looks more.
    """

    state: ProbeState = ProbeState.UNKNOWN
    since: datetime | None = None  # when it took this state
    last_checked_at: datetime | None = None
    detail: str = ""
    latency_ms: float | None = None
    failures: int = 0  # looks that saw it down, since it last worked for ``successes`` looks in a row
    successes: int = 0  # looks in a row that saw it work, well or not so well
    changes: tuple[datetime, ...] = msgspec.field(default=())  # recent ones between up and not up, for flap detection
    explained_by: str = ""  # the service whose failure explains this one
    beneath: ProbeState = ProbeState.UNKNOWN  # up, degraded or down, as the looks alone have it: what other states hide
    degradations: int = 0  # looks that saw it degraded or down, since it last was up for ``successes`` looks in a row
    ups: int = 0  # looks in a row that saw it up
    blind: int = 0  # looks in a row that could not look
    incident: str = ""  # the fingerprint of the chain that was started for its present failure; "": none was
    is_quiet: bool = False  # it starts no chain (`Probe.starts_chain`)
    tellings: int = 0  # the number of its latest one, by the daemon that has written it (`Telling.number`)


class ProbeSight(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe says of its service now, for those who hold a session to it."""

    probe: str
    service: str
    state: ProbeState
    began_at: datetime | None  # the latest look; null: there was none
    failed: bool  # it saw the service down
    healthy_since: datetime | None

    @property
    def is_down(self) -> bool:
        """Whether the service is down by this probe: it stands so, and the latest look has not seen otherwise."""
        return self.state is ProbeState.DOWN and self.failed

    def shows_up_after(self, moment: datetime) -> bool:
        """Tell whether a look that began after ``moment`` saw the service up, and none has seen otherwise since."""
        if self.state is not ProbeState.UP or self.healthy_since is None or self.began_at is None:
            return False
        return self.began_at > moment


class PingVerb(StrEnum):
    """What a ping of a heartbeat says."""

    SUCCESS = "success"  # it is done, or alive
    START = "start"  # it has begun, and success or fail will follow
    FAIL = "fail"  # it has failed


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a job that has said that it begins."""

    id: str  # the job's own
    at: datetime  # when it said so


class Pings(msgspec.Struct, frozen=True, kw_only=True):
    """When a heartbeat was last heard from, for each verb; None: never."""

    success: datetime | None = None
    start: datetime | None = None
    fail: datetime | None = None
    runs: tuple[JobRun, ...] = ()  # that have begun and not ended, of a job that says which run it is


MOST_DETAIL: Final = 500
"""Characters of an observation's detail."""
