"""The meter, started from the operator's settings. Part of the composition root.

It is apart from the rest of the wiring because a web server and an HTTP client take long to import: commands that only
read the wiring do without them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.engine.meter.bodies import MeterLimits
from claudeops.engine.meter.meter import Meter, MeterDeps, serve_meter
from claudeops.engine.meter.upstream import ModelUpstream, trusted_certificates
from claudeops.engine.ports import Counting
from claudeops.engine.system import raise_descriptor_limit
from claudeops.harness.protocol import CredentialKind
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.store.spend import ModelCalls
from claudeops.text.redact import Redactor


@asynccontextmanager
async def open_meter(
    settings: Settings,
    *,
    certificates: Future[ssl.SSLContext],
    spending: ModelCalls,
    rules: EscalationRules,
    clock: Clock,
    counts: Counting,
    log: Logger,
) -> AsyncIterator[Meter | None]:
    """Run the meter while the block runs; yield ``None`` when the operator has switched it off.

    ``certificates``: what `begin_certificates` has begun. Raises `ConfigurationError` when the connection to the model
    API cannot be prepared as the settings say.
    """
    descriptors = raise_descriptor_limit()
    if not settings.cell.meter:
        log.warning(LogEvent.METER_OFF)
        yield None
        return
    deps = MeterDeps(
        spending=spending,
        rules=rules,
        clock=clock,
        log=log,
        counts=counts,
        redactor_with=lambda secret: Redactor((*settings.secrets, secret)),
    )
    trusted = await asyncio.wrap_future(certificates)
    async with serve_meter(upstream(settings), deps, MeterLimits.within(descriptors), trusted=trusted) as meter:
        yield meter


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
