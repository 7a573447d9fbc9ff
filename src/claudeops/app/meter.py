"""From the operator's settings to a running meter.

Apart from the rest of the wiring, for the sake of commands: a web server and an HTTP client take long to import.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from claudeops.domain.escalation import EscalationRules
from claudeops.domain.redact import Redactor
from claudeops.engine.meter.bodies import MeterLimits
from claudeops.engine.meter.meter import Meter, MeterDeps, serve_meter
from claudeops.engine.meter.upstream import Upstream
from claudeops.engine.ports import Clock, Spending
from claudeops.engine.system import raise_descriptor_limit
from claudeops.harness.protocol import CredentialKind
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings


@asynccontextmanager
async def meter_of(
    settings: Settings, *, spending: Spending, rules: EscalationRules, clock: Clock, log: Logger
) -> AsyncIterator[Meter | None]:
    """Run the meter for the length of the block, unless the operator wants none.

    Raises `ConfigurationError` when the way to the model API cannot be prepared as the operator wants it.
    """
    descriptors = raise_descriptor_limit()
    if not settings.meter:
        log.warning(LogEvent.METER_OFF)
        yield None
        return
    books = MeterDeps(
        spending=spending,
        rules=rules,
        clock=clock,
        log=log,
        redactor_with=lambda secret: Redactor((*settings.secrets, secret)),
    )
    async with serve_meter(upstream(settings), books, MeterLimits.within(descriptors)) as meter:
        yield meter


def upstream(settings: Settings) -> Upstream:
    """Return the model API as the operator has it."""
    token = settings.oauth_token
    return Upstream(
        base_url=settings.anthropic_base_url,
        credential=CredentialKind.API_KEY if token is None else CredentialKind.OAUTH_TOKEN,
        secret=settings.anthropic_api_key if token is None else token,
        # Sessions get the proxies without user and password; the daemon needs both.
        network={**settings.inherited_env, **settings.proxies},
    )
