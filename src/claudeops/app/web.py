"""The listener, wired from the settings. Part of the composition root.

A port that is taken, or an address that this machine has not got yet, stops nothing: the daemon looks after its
services all the same, says so, and tries again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_network
from typing import Final

import anyio
import msgspec
from starlette.responses import Response

from claudeops.app.metrics import Scrape
from claudeops.app.node import Node
from claudeops.clock import Clock
from claudeops.domain.alerts.rules import NO_RULES, AlertSource, Rules
from claudeops.domain.notices.channels import TargetKind
from claudeops.errors import ConfigurationError
from claudeops.http_server import ConnectionLimits, ConnectionPool, listen
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.store.access.tokens import Tokens
from claudeops.store.access.users import Users
from claudeops.store.probes import Probes
from claudeops.tasks import open_tasks
from claudeops.web.authentication import Authenticator
from claudeops.web.connection import ConnectionRules
from claudeops.web.endpoints import Endpoint, EndpointTable
from claudeops.web.listener import AllowedHosts, Listener
from claudeops.web.ports import Intake, Interactions, Logins, Metrics, Readiness, ReadinessCheck, Sources
from claudeops.web.problems import RefusedError
from claudeops.web.table import Rooms, table_of

AGAIN_SECONDS: Final = 5.0
"""Between two tries to listen."""

_LATE: Final = timedelta(seconds=60)
"""By which a schedule may be behind before its clock counts as stopped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSources:
    """`Sources`, by the operator's file as it is now; without one nobody signs."""

    rules: Callable[[], Rules] = lambda: NO_RULES
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # variables that the file names

    def source(self, name: str) -> AlertSource:
        """Return a source."""
        return self.rules().source(name)

    def secrets(self, source: AlertSource) -> Sequence[str]:
        """Return the values of its variables, those that are set."""
        return [value for name in source.secret_env if (value := self.environment.get(name, ""))]


def _uncounted(_path: str, _method: str, _status: int, _seconds: float) -> None:
    return


def _ignored(_closing: anyio.Event) -> None:
    return


def _closed() -> None:
    return


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What pages and the API add to the listener."""

    endpoints: Sequence[Endpoint] = ()
    described: Callable[[Sequence[Endpoint]], Sequence[Endpoint]] | None = None  # what describes all endpoints
    logins: Logins | None = None
    users: Users | None = None
    refused: Callable[[RefusedError, str], Response] | None = None  # the page for what is refused, with its path
    listens: Callable[[anyio.Event], None] = _ignored  # called with what is set when the listener begins to close
    close: Callable[[], None] = _closed  # called at the end


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """What the listener gets of the daemon."""

    settings: Settings
    clock: Clock
    log: Logger
    tokens: Tokens
    pings: Probes
    readiness: Readiness
    sources: Sources = FileSources()
    redact: Callable[[str], str] = str  # takes secrets out of a text
    intake: Intake | None = None  # None: no alerts are taken
    metrics: Metrics | None = None  # None: nothing is counted
    count: Callable[[str, str, int, float], None] = _uncounted  # of every answer (`Listener.count`)
    interactions: Interactions | None = None  # None: nothing that is pressed in Slack comes by HTTP
    pages: Callable[[], Awaitable[Parts]] | None = (
        None  # makes them, which imports what they are made with; None: there are none
    )
    retry_seconds: float = AGAIN_SECONDS


def web_of(
    node: Node,
    readiness: Readiness,
    *,
    sources: Sources = FileSources(),
    intake: Intake | None = None,
    interactions: Interactions | None = None,
    pages: Callable[[], Awaitable[Parts]] | None = None,
) -> Web:
    """Return what the listener gets of a daemon."""
    metrics, scrape = node.metrics, None
    if metrics is not None:
        scrape = Scrape(metrics=metrics, figures=node.store.figures, rules=node.rules, clock=node.clock)
    return Web(
        settings=node.settings,
        clock=node.clock,
        log=node.log,
        tokens=node.tokens,
        pings=node.store.probes,
        readiness=readiness,
        sources=sources,
        redact=node.context.redactor.text,
        intake=intake,
        metrics=scrape,
        count=_uncounted if metrics is None else metrics.answered,
        interactions=interactions,
        pages=pages,
    )


async def keep_listening(web: Web) -> None:
    """Listen until cancelled, unless the operator has switched it off; its end is bounded."""
    settings = web.settings
    if not settings.listener.enabled:
        return
    crowd = ConnectionPool(ConnectionLimits())
    pages = await web.pages() if web.pages is not None and settings.listener.dashboard else Parts()
    listener = _listener(web, crowd, pages)
    async with contextlib.AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(open_tasks())
        tasks.start_soon(listener.authenticator.keep_uses)
        stack.callback(pages.close)
        told = ""
        while True:
            closing = anyio.Event()
            pages.listens(closing)
            try:
                async with listen(
                    listener,
                    host=settings.listener.host,
                    port=settings.listener.port,
                    closing=closing,
                    crowd=crowd,
                    outside=True,
                ) as url:
                    web.log.info(LogEvent.WEB_READY, url=url, public_url=settings.listener.public_url)
                    await anyio.sleep_forever()
            except (ConfigurationError, OSError) as error:  # a race for the port may show only now
                if str(error) != told:
                    told = str(error)
                    web.log.error(LogEvent.WEB_NOT_LISTENING, error=told)
            await anyio.sleep(web.retry_seconds)


def _listener(web: Web, crowd: ConnectionPool, pages: Parts) -> Listener:
    settings = web.settings
    signing = {
        name: secret
        for name, chat in settings.notices.chats.items()
        if chat.kind is TargetKind.SLACK and (secret := chat.secrets.get("signing_secret"))
    }
    return Listener(
        table=EndpointTable(table_of(_rooms(web, pages, is_signed=bool(signing)))),
        authenticator=Authenticator(
            tokens=web.tokens,
            logins=pages.logins,
            users=pages.users,
            sources=web.sources,
            clock=web.clock,
            log=web.log,
            key=settings.listener.chat_api_key,
            slack=signing,
        ),
        hosts=AllowedHosts.of(settings.listener.public_hosts),
        clock=web.clock,
        log=web.log,
        count=web.count,
        connections=connection_rules(settings),
        crowd=crowd,
        refused_page=pages.refused,
    )


def connection_rules(settings: Settings) -> ConnectionRules:
    """Return what the operator says of the network."""
    return ConnectionRules(
        proxy_secret=settings.listener.trusted_proxy_secret, is_network_trusted=settings.listener.insecure
    )


def _rooms(web: Web, pages: Parts, *, is_signed: bool) -> Rooms:
    return Rooms(
        readiness=web.readiness,
        pings=web.pings,
        sources=web.sources,
        redact=web.redact,
        intake=web.intake,
        metrics=web.metrics,
        scrapers=tuple(map(ip_network, web.settings.listener.metrics_allow)),
        interactions=web.interactions if is_signed else None,
        pages=pages.endpoints,
        described=pages.described,
    )


def readiness_of(
    *,
    clock: Clock,
    trouble: Callable[[], str | None],
    fires: Callable[[], Mapping[str, datetime | None]],
    disk: Callable[[], str],
    outbox: Callable[[], str],
    is_metered: bool,
) -> Readiness:
    """Return what says how the daemon is, out of what it has in memory.

    ``trouble``: why the database took no writes; ``fires``: when each schedule that is on fires next, ``None`` for one
    that is not timed yet; ``disk``: why no session starts for want of space, or nothing; ``outbox``: why people are not
    told, or nothing.
    """

    def checks() -> Sequence[ReadinessCheck]:
        database, scheduler = trouble() or "", _standstill(fires(), clock.now() - _LATE)
        full, untold = disk(), outbox()
        return (
            ReadinessCheck(name="database_writes", ok=not database, detail=database),
            ReadinessCheck(name="scheduler_tick", ok=not scheduler, detail=scheduler),
            # A node opens with CLIs that are there and whose gate holds, or not at all.
            ReadinessCheck(name="cli", ok=True),
            ReadinessCheck(name="gate_self_test", ok=True),
            # It is opened once the daemon is ready, or the daemon ends.
            ReadinessCheck(name="meter", ok=True, detail="" if is_metered else "It is switched off."),
            ReadinessCheck(name="disk", ok=not full, detail=full),
            ReadinessCheck(name="outbox_age", ok=not untold, detail=untold),
        )

    return checks


def _standstill(fires: Mapping[str, datetime | None], late: datetime) -> str:
    """Return why the schedules stand still, as a sentence; empty: they do not."""
    stuck = sorted(name for name, at in fires.items() if at is not None and at < late)
    if stuck:
        return f"Nothing has happened when {', '.join(stuck)} was due."
    return "The schedules are not timed yet." if None in fires.values() else ""
