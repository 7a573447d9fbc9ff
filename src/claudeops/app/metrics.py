"""The daemon's own metrics, wired from the settings, and what answers a scrape. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from claudeops import __version__
from claudeops.app.limits import tier_policies
from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.figures import Figures
from claudeops.errors import StoreError
from claudeops.metrics import KnownSets, LiveMetrics, Metrics
from claudeops.settings import Settings
from claudeops.store.reading.scraped import FiguresReader
from claudeops.store.tables import HEAD

READ_SECONDS: Final = 2.0
"""How long a scrape waits for the database; what the database knows is left out then."""


def metrics_of(settings: Settings, *, rules: EscalationRules, cli_versions: Callable[[], Iterable[str]]) -> Metrics:
    """Return the metrics of a node, with a registry of its own."""
    known = KnownSets(
        version=__version__,
        revision=HEAD,
        tiers=[tier.number for tier in settings.tiers],
        models=[tier.model for tier in settings.tiers],
        actions=[kind for policy in tier_policies(settings).values() for kind in policy.action_kinds],
        budgets=rules.budgets,
    )
    live = LiveMetrics(
        cli_version=lambda: ", ".join(sorted(set(cli_versions()))),
    )
    return Metrics(known, live)


@dataclass(kw_only=True)
class Scrape:
    """Answers a scrape: asks the database for as long as that is quick, and writes the text on a thread."""

    metrics: Metrics
    figures: FiguresReader
    rules: EscalationRules
    clock: Clock
    read_seconds: float = READ_SECONDS
    _turn: anyio.Lock = field(default_factory=anyio.Lock)  # one at a time: what was read belongs to its text

    async def __call__(self) -> bytes:
        """Return all metrics as text for Prometheus."""
        async with self._turn:
            figures = await self._figures()
            return await anyio.to_thread.run_sync(partial(self.metrics.render, figures))

    async def _figures(self) -> Figures | None:
        with anyio.move_on_after(self.read_seconds), suppress(StoreError):
            return await self.figures.read(
                lowest_tier=self.rules.lowest.number, budgets=self.rules.budgets, now=self.clock.now()
            )
        return None
