"""From the operator's settings to a running meter. Part of the composition root."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from claudeops.domain.redact import Redactor
from claudeops.engine.meter import Books, serve_meter
from claudeops.engine.meter_bodies import MeterLimits
from claudeops.engine.meter_upstream import Upstream
from claudeops.engine.system import raise_descriptor_limit
from claudeops.harness.protocol import CredentialKind
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from claudeops.domain.model import EscalationRules
    from claudeops.engine.meter import Meter
    from claudeops.engine.ports import Clock, Store
    from claudeops.logs import Logger
    from claudeops.settings import Settings


@asynccontextmanager
async def meter_of(
    settings: Settings, *, store: Store, rules: EscalationRules, clock: Clock, log: Logger
) -> AsyncIterator[Meter | None]:
    """Run the meter for the length of the block, unless the operator wants none.

    Raises `ConfigurationError` when the way to the model API cannot be prepared as the operator wants it.
    """
    descriptors = raise_descriptor_limit()
    if not settings.meter:
        log.warning(LogEvent.METER_OFF)
        yield None
        return
    books = Books(
        store=store,
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
