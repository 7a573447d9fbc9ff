"""The meter, started from the operator's settings. Part of the composition root.

What it takes is checked when a node is opened. It is loaded and opened for the first session, or once a daemon is
ready: a web server and an HTTP client take long to import, and a start does not wait for them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import anyio

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.engine.meter.upstream import ModelUpstream, trusted_certificates
from claudeops.engine.ports import Counting
from claudeops.engine.system import raise_descriptor_limit
from claudeops.harness.protocol import CredentialKind
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.store.spend import ModelCalls
from claudeops.tasks import open_tasks
from claudeops.text.redact import Redactor

if TYPE_CHECKING:
    from claudeops.engine.meter.meter import Meter


class LateMeter:
    """The meter of a node, which is opened for the first who wants it."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Meter | None]]) -> None:
        self._opening = opening
        self._meter: Meter | None = None
        self._wanted, self._opened, self._closing = anyio.Event(), anyio.Event(), anyio.Event()

    async def opened(self) -> Meter | None:
        """Return the meter once it is open; ``None``: the operator has switched it off."""
        self._wanted.set()
        await self._opened.wait()
        return self._meter

    async def run(self) -> None:
        """Keep it open from the first wish until it is to close."""
        await self._wanted.wait()
        if not self._closing.is_set():
            async with self._opening() as self._meter:
                self._opened.set()
                await self._closing.wait()

    def close(self) -> None:
        """Have `run` end; sessions have ended by now, and what they spent is booked when it has."""
        self._closing.set()
        self._wanted.set()


@asynccontextmanager
async def late_meter(
    settings: Settings,
    *,
    certificates: Future[ssl.SSLContext],
    spending: ModelCalls,
    rules: EscalationRules,
    clock: Clock,
    counts: Counting,
    log: Logger,
) -> AsyncIterator[LateMeter]:
    """Yield the meter, which is closed with the block if it was opened.

    ``certificates``: what `begin_certificates` has begun. Raises `ConfigurationError` when the connection to the model
    API cannot be prepared as the settings say.
    """
    descriptors = raise_descriptor_limit()
    if not settings.cell.meter:
        log.warning(LogEvent.METER_OFF)
        opening: Callable[[], AbstractAsyncContextManager[Meter | None]] = partial(nullcontext, None)
    else:
        way = upstream(settings)
        way.check()
        trusted = await asyncio.wrap_future(certificates)

        def opening() -> AbstractAsyncContextManager[Meter | None]:
            from claudeops.engine.meter.bodies import MeterLimits  # noqa: PLC0415 - see above
            from claudeops.engine.meter.meter import MeterDeps, serve_meter  # noqa: PLC0415 - see above

            deps = MeterDeps(
                spending=spending,
                rules=rules,
                clock=clock,
                log=log,
                counts=counts,
                redactor_with=lambda secret: Redactor((*settings.secrets, secret)),
            )
            return serve_meter(way, deps, MeterLimits.within(descriptors), trusted=trusted)

    meter = LateMeter(opening)
    async with open_tasks() as tasks:
        tasks.start_soon(meter.run)
        yield meter
        meter.close()


def begin_certificates(settings: Settings) -> Future[ssl.SSLContext]:
    """Begin to read the trusted certificates on a thread: it takes 20 ms, in which the rest of a start goes on."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="certificates")
    certificates = thread.submit(trusted_certificates, upstream(settings).network)
    thread.shutdown(wait=False)
    return certificates


def upstream(settings: Settings) -> ModelUpstream:
    """Return the model API that the settings name."""
    token = settings.access.oauth_token
    return ModelUpstream(
        base_url=settings.access.base_url,
        credential=CredentialKind.API_KEY if token is None else CredentialKind.OAUTH_TOKEN,
        secret=settings.access.api_key if token is None else token,
        # Sessions get the proxies without user and password, but the daemon needs both.
        network={**settings.environment.inherited, **settings.environment.proxies},
    )
