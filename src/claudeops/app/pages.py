"""Pages, wired from the settings. Part of the composition root; imported only where pages are on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Final

from claudeops import __version__
from claudeops.app.limits import escalation_rules
from claudeops.app.log_lines import SessionLogs
from claudeops.app.node import Node
from claudeops.app.policy import LoadedPolicy, read_policy_text
from claudeops.app.web import Parts
from claudeops.app.wiring import root_session
from claudeops.clock import Clock
from claudeops.domain.alerts.rules import AlertSource
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.domain.sessions import LOWEST_TIER, Trigger
from claudeops.domain.spending.budget import last_midnight
from claudeops.engine.schedules.runner import ScheduleRunner
from claudeops.engine.session.context import TierSetup
from claudeops.errors import DatabaseUnavailableError, MissingInputError
from claudeops.settings import Settings
from claudeops.settings.shown import shown
from claudeops.store.database import Database
from claudeops.store.glance import Glance, glance
from claudeops.tasks import Threads
from claudeops.web.acting import act_endpoints
from claudeops.web.acts import Acting
from claudeops.web.api.description import description_endpoints
from claudeops.web.api.table import api_endpoints
from claudeops.web.pages.rendering import Pages
from claudeops.web.pages.site import ShownFire, Site
from claudeops.web.pages.table import page_endpoints
from claudeops.web.passkeys import Passkeys
from claudeops.web.password_login import PasswordLogin
from claudeops.web.ports import Logins, LogLines, ProviderLogin
from claudeops.web.streams import Streams, stream_endpoints

_GLANCE_SECONDS: Final = 5.0


async def pages_of(node: Node, schedules: ScheduleRunner, *, sources: Callable[[], Sequence[AlertSource]]) -> Parts:
    """Return what pages add to a daemon's listener; ``sources`` are those that the operator's file declares."""
    text = await read_policy_text(node.settings)
    logs = SessionLogs(records=node.store.records, verdicts=node.verdicts, node=node.owner.node)
    site = site_of(
        node.settings,
        database=node.database,
        logins=node.logins,
        logs=logs,
        clock=node.clock,
        next_fires=schedules.next_fires,
        plans=lambda: schedules.plans,
        acting=_acting(node),
        passwords=PasswordLogin(users=node.users, logins=node.logins, clock=node.clock),
        provider=_provider(node),
    )
    site.sources = sources
    estates = node.context.estates
    site.policy = LoadedPolicy(
        settings=node.settings,
        tiers=sorted(node.context.tiers),
        setups=partial(_setups, node),
        estate=lambda: estates.latest,
        text=text,
    )
    streams = Streams(live=node.context.hub, logs=logs, render=site.pages.lines)
    if node.metrics is not None:
        node.metrics.watch_streams(lambda: streams.clients, lambda: streams.dropped)
    return Parts(
        endpoints=(
            *stream_endpoints(streams),
            *page_endpoints(site),
            *api_endpoints(site),
            *act_endpoints(site),
        ),
        described=partial(description_endpoints, site),
        logins=node.logins,
        users=node.users,
        refused=site.pages.refused,
        listens=streams.listens,
        close=streams.close,
    )


async def _setups(node: Node) -> Mapping[int, TierSetup]:
    return (await node.session_context()).tiers


def site_of(
    settings: Settings,
    *,
    database: Database,
    logins: Logins,
    logs: LogLines,
    clock: Clock,
    next_fires: Callable[[], Mapping[str, datetime | None]],
    acting: Acting | None = None,
    plans: Callable[[], Sequence[SchedulePlan]] = tuple,
    passwords: PasswordLogin | None = None,
    provider: ProviderLogin | None = None,
) -> Site:
    """Return what pages are made of; without ``acting`` they can only look."""
    return Site(
        pages=Pages(version=__version__),
        database=database,
        logins=logins,
        logs=logs,
        clock=clock,
        glance=partial(_glance, settings, clock, Threads(most=1)),
        next_fires=lambda: _fires(next_fires()),
        plans=plans,
        settings=cache(partial(shown, dict(os.environ), settings)),
        timezone=settings.schedule.timezone,
        day_budget_usd=settings.budgets.daily_usd,
        chain_budget_usd=settings.budgets.chain_usd,
        rules=escalation_rules(settings),
        interval_seconds=settings.schedule.interval_seconds,
        tls_hosts=settings.listener.tls_hosts,
        acting=acting,
        passwords=passwords,
        provider=provider,
    )


def _provider(node: Node) -> ProviderLogin | None:
    if node.settings.listener.oidc is None:
        return None
    from claudeops.app.oidc import oidc_login  # noqa: PLC0415 - an extra

    return oidc_login(node, node.settings.listener.oidc)


def _acting(node: Node) -> Acting:
    settings = node.settings
    return Acting(
        store=node.store,
        key=node.context.approvals.approval_key,
        rules=node.context.current_rules,
        root=lambda tier, prompt: root_session(settings, tier, Trigger.MANUAL, prompt),
        highest_tier=LOWEST_TIER if settings.ladder.dry_run else settings.ladder.max_tier,
        clock=node.clock,
        passkeys=Passkeys(store=node.store.passkeys, tls_hosts=settings.listener.tls_hosts),
        wake=node.wake_ups.wake,
    )


async def _glance(settings: Settings, clock: Clock, threads: Threads) -> Glance:
    now = clock.now()
    look = partial(
        glance, settings.places.database_url, now=now, midnight=last_midnight(now, settings.schedule.timezone)
    )
    try:
        return await threads.run(look, seconds=_GLANCE_SECONDS, what="looking at the database")
    except (OSError, MissingInputError) as error:
        raise DatabaseUnavailableError(f"the database gave no answer: {error}.") from error


def _fires(at: Mapping[str, datetime | None]) -> Sequence[ShownFire]:
    return [ShownFire(name=name, at=moment) for name, moment in at.items()]
