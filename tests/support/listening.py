"""The listener between a test and stand-ins of its rooms: called within the process, with clocks that a test sets."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec
from starlette.types import Message

from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.access.tokens import ApiToken, digest_of, written
from claudeops.domain.alerts.receipt import Receipt
from claudeops.domain.alerts.rules import AlertSource, Rules, SenderKind
from claudeops.domain.probes.probe import PingVerb
from claudeops.engine.live.hub import Hub
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.access.tokens import Tokens
from claudeops.store.probes import Probes
from claudeops.text.redact import Redactor
from claudeops.web.authentication import Authenticator
from claudeops.web.endpoints import EndpointTable
from claudeops.web.listener import AllowedHosts, Listener
from claudeops.web.ports import Intake, ReadinessCheck
from claudeops.web.streams import Streams, stream_endpoints
from claudeops.web.table import Rooms, table_of
from support.streaming import HeldLogs
from support.waiting import PATIENCE_SECONDS

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOST: Final = "127.0.0.1:8080"
CHAT_KEY: Final = "the-operators-chat-key"
PLANTED: Final = "hunter22-hunter22"  # a secret of the daemon's
SHARED: Final = "the-secret-of-scripts"
SIGNING: Final[Mapping[str, str]] = {"team": "0123456789abcdef0123", "others": "of-the-others-app"}  # Slack's
SECRETS: Final[Mapping[str, Sequence[str]]] = {"scripts": (SHARED, "the-secret-before"), "grafana": ("of-grafana",)}
SOURCES: Final = Rules(
    sources=(
        AlertSource(name="prometheus", kind=SenderKind.ALERTMANAGER),
        AlertSource(name="checks", kind=SenderKind.HEALTHCHECKS),
        AlertSource(name="scripts", kind=SenderKind.GENERIC, secret_env=("SCRIPTS",)),
        AlertSource(name="grafana", kind=SenderKind.GRAFANA, secret_env=("GRAFANA",)),
    )
)


def token_for(number: int, *scopes: str, expires_at: datetime | None = None) -> ApiToken:
    """Return a token on record; `secret_of` is what its owner has."""
    return ApiToken(
        id=number,
        name=f"tool {number}",
        scopes=scopes,
        digest=digest_of(_secret(number)),
        created_at=NOON,
        created_by="ada",
        expires_at=expires_at,
    )


def secret_of(number: int) -> str:
    """Return a token as its owner sends it."""
    return written(number, _secret(number))


def bearer(number: int) -> dict[str, str]:
    """Return the header with a token."""
    return {"authorization": f"Bearer {secret_of(number)}"}


def _secret(number: int) -> str:
    return f"{number:043d}"


@dataclass
class TestClock(Clock):
    """Both clocks, where a test puts them."""

    __test__ = False

    at: datetime = NOON
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds

    def go_on(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.seconds += seconds


@dataclass
class HeldTokens(Tokens):
    """Tokens in memory."""

    kept: dict[int, ApiToken]
    away: bool = False  # the database does not answer
    reads: int = 0
    last: dict[int, datetime] = field(default_factory=dict)

    async def active(self, now: datetime) -> Mapping[int, ApiToken]:
        self.reads += 1
        if self.away:
            raise DatabaseUnavailableError("the database is away.", target="x")
        assert now.tzinfo is not None
        return {number: token for number, token in self.kept.items() if token.revoked_at is None}

    async def used(self, last: Mapping[int, datetime]) -> None:
        if self.away:
            raise DatabaseUnavailableError("the database is away.", target="x")
        self.last |= last


@dataclass
class HeldSources:
    """Sources in memory."""

    rules: Rules = SOURCES

    def source(self, name: str) -> AlertSource:
        return self.rules.source(name)

    def secrets(self, source: AlertSource) -> Sequence[str]:
        return SECRETS.get(source.name, ()) if source.secret_env else ()


@dataclass(frozen=True)
class Taken:
    """One body that was taken."""

    source: str
    body: bytes
    query: Mapping[str, str]
    at: datetime


@dataclass
class HeldIntake:
    """Keeps what it is given, or fails."""

    taken: list[Taken] = field(default_factory=list)
    error: Exception | None = None
    hold: anyio.Event | None = None

    async def take(
        self, source: str, body: bytes, headers: Mapping[str, str], at: datetime, *, query: Mapping[str, str]
    ) -> Receipt:
        assert all(name == name.lower() for name in headers)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(Taken(source, body, query, at))
        return Receipt(delivery=f"{len(self.taken)}", alerts=1)


@dataclass
class HeldPresses:
    """Keeps what was pressed in Slack."""

    taken: list[tuple[bytes, frozenset[str]]] = field(default_factory=list)
    full: bool = False

    def take(self, payload: bytes, targets: frozenset[str]) -> bool:
        if not self.full:
            self.taken.append((payload, targets))
        return not self.full


@dataclass
class HeldPings(Probes):
    """Hears the heartbeat ``backup``."""

    heard: list[tuple[str, PingVerb | None, str]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    async def ping(self, name: str, verb: PingVerb | None, *, text: str = "", at: datetime, run: str = "") -> bool:
        assert at.tzinfo is not None
        self.heard.append((name, verb, text))
        self.runs.append(run)
        return name == "backup"


async def figures() -> bytes:
    """Return what Prometheus is given."""
    return b"claudeops_paused 0.0\n"


@dataclass(frozen=True)
class Answered:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        decoded = msgspec.json.decode(self.body)
        assert isinstance(decoded, dict)
        return decoded


@dataclass
class Door:
    """A listener, and everything around it."""

    clock: TestClock = field(default_factory=TestClock)
    tokens: HeldTokens = field(
        default_factory=lambda: HeldTokens(
            {
                1: token_for(1, "alerts:prometheus", "alerts:checks", "heartbeats:backup", "heartbeats:other"),
                2: token_for(2, "read"),
                3: token_for(3, "alerts:prometheus", expires_at=NOON + timedelta(hours=1)),
            }
        )
    )
    sources: HeldSources = field(default_factory=HeldSources)
    intake: HeldIntake = field(default_factory=HeldIntake)
    pings: HeldPings = field(default_factory=HeldPings)
    presses: HeldPresses = field(default_factory=HeldPresses)
    scrapers: Sequence[str] = ()  # networks
    counted: list[tuple[str, str, int, float]] = field(default_factory=list)
    checks: list[ReadinessCheck] = field(default_factory=lambda: [ReadinessCheck(name="database_writes", ok=True)])
    log: io.StringIO = field(default_factory=io.StringIO)
    hub: Hub = field(default_factory=Hub)
    logs: HeldLogs = field(default_factory=HeldLogs)
    streams: Streams = field(init=False)
    authenticator: Authenticator = field(init=False)
    listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        logs.configure(level="debug", fmt="json", stream=self.log, redact=str)
        log = logs.get_logger()
        self.streams = Streams(live=self.hub, logs=self.logs, boot="boot")
        self.authenticator = Authenticator(
            tokens=self.tokens, sources=self.sources, clock=self.clock, log=log, key=CHAT_KEY
        )
        self.authenticator.slack = SIGNING
        rooms = Rooms(
            readiness=lambda: self.checks,
            pings=self.pings,
            sources=self.sources,
            redact=Redactor([PLANTED]).text,
            intake=self.intake,
            interactions=self.presses,
            pages=stream_endpoints(self.streams),
            metrics=figures,
            scrapers=tuple(map(ip_network, self.scrapers)),
        )
        self.listener = Listener(
            table=EndpointTable(table_of(rooms)),
            authenticator=self.authenticator,
            hosts=AllowedHosts.of(["ops.example.com"]),
            clock=self.clock,
            log=log,
            count=lambda *about: self.counted.append(about),
        )

    def leading_to(self, intake: Intake) -> Door:
        """Let bodies go somewhere else; to be called before the first request."""
        rooms = Rooms(readiness=lambda: self.checks, pings=self.pings, sources=self.sources, intake=intake)
        self.listener.table = EndpointTable(table_of(rooms))
        return self

    async def ask(
        self,
        method: str,
        target: str,
        *chunks: bytes,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        host: str | None = HOST,
        held: anyio.Event | None = None,
        peer: str = "127.0.0.1",
    ) -> Answered:
        """Send one request, its body in these chunks, and return the answer.

        ``held``: until it is set the last chunk does not come.
        """
        pairs = [*(headers.items() if isinstance(headers, Mapping) else headers)]
        if host is not None:
            pairs.append(("host", host))
        parts = urlsplit(target)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs],
            "client": (peer, 4711),
            "server": ("127.0.0.1", 8080),
        }
        waiting = list(chunks)
        sent: list[Message] = []
        has_all = False

        async def receive() -> Message:
            nonlocal has_all
            if has_all:
                return {"type": "http.disconnect"}  # whoever reads on is told that nobody waits any more
            if len(waiting) <= 1 and held is not None:
                await held.wait()
            has_all = len(waiting) <= 1
            chunk = waiting.pop(0) if waiting else b""
            return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}

        async def send(message: Message) -> None:
            sent.append(message)

        with anyio.fail_after(PATIENCE_SECONDS):
            await self.listener(scope, receive, send)
        start, *rest = sent
        named = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answered(start["status"], named, b"".join(part["body"] for part in rest))
