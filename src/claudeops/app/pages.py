"""Pages, wired from the settings. Part of the composition root; imported only where pages are on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Final

from claudeops.app.node import Node
from claudeops.app.web import Parts
from claudeops.app.wiring import escalation_rules
from claudeops.domain.spending.budget import last_midnight
from claudeops.errors import DatabaseUnavailableError, MissingInputError
from claudeops.store.glance import Glance, glance
from claudeops.tasks import Threads
from claudeops.web.api.description import description_endpoints
from claudeops.web.api.table import api_endpoints
from claudeops.web.pages.rendering import Pages
from claudeops.web.pages.site import NextFire, Site
from claudeops.web.pages.table import page_endpoints

_GLANCE_SECONDS: Final = 5.0


def pages_of(node: Node, next_fires: Callable[[], Mapping[str, datetime | None]]) -> Parts:
    """Return what pages add to a daemon's listener."""
    settings = node.settings
    site = Site(
        pages=Pages(version=version("claudeops")),
        database=node.database,
        logins=node.logins,
        clock=node.clock,
        glance=partial(_glance, node, Threads(most=1)),
        next_fires=lambda: _fires(next_fires()),
        timezone=settings.timezone,
        day_budget_usd=settings.daily_budget_usd,
        chain_budget_usd=settings.chain_budget_usd,
        rules=escalation_rules(settings),
        interval_seconds=settings.interval_seconds,
        tls_hosts=settings.tls_hosts,
    )
    return Parts(
        endpoints=(*page_endpoints(site), *api_endpoints(site)),
        described=partial(description_endpoints, site),
        logins=node.logins,
        refused=site.pages.refused,
    )


async def _glance(node: Node, threads: Threads) -> Glance:
    now = node.clock.now()
    midnight = last_midnight(now, node.settings.timezone)
    look = partial(glance, node.settings.database_url, now=now, midnight=midnight)
    try:
        return await threads.run(look, seconds=_GLANCE_SECONDS, what="looking at the database")
    except (OSError, MissingInputError) as error:
        raise DatabaseUnavailableError(f"the database gave no answer: {error}.") from error


def _fires(at: Mapping[str, datetime | None]) -> Sequence[NextFire]:
    return [NextFire(name=name, at=moment) for name, moment in at.items()]
