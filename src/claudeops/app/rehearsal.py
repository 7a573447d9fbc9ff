"""A rehearsal: the daemon itself, on a scripted model and small services of our own. Part of the composition root.

Policy, prompts, schema and limits are the operator's. Everything that leads into the real world is replaced:
credentials, the model's address, repositories, database and directories, what tiers are given (environment, home, MCP
servers), proxies, notifications.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio

from claudeops.app.daemon import run_daemon
from claudeops.app.node import Node, open_node
from claudeops.domain.model import Session, Status
from claudeops.engine.system import Shutdown
from claudeops.errors import ConfigurationError, StoreError
from claudeops.logs import Logger
from claudeops.rehearsal.scenario import Scenario
from claudeops.rehearsal.stage import KEY, Stage, set_up
from claudeops.rehearsal.verdict import Record, shortfalls
from claudeops.settings import Settings
from claudeops.store.store import open_store
from claudeops.tasks import open_tasks

LONGEST_SECONDS: Final = 600.0
"""How long a rehearsal may take before it counts as failed."""

ROOT_SESSION: Final = 1
"""The id of the chain's first session: the database is new."""

_APPROVAL_SECONDS: Final = 5.0  # nobody is there to answer: a call that needs approval is denied
_LOOK_SECONDS: Final = 0.1
_HARNESS: Final = "claude"
_A_MONTH: Final = 2_678_400.0  # the longest interval allowed, so that the chain at the start is the only one


@dataclass(frozen=True, kw_only=True, slots=True)
class Rehearsed:
    """The result of a rehearsal, and what in it was not as expected."""

    record: Record
    shortfalls: Sequence[str]
    interrupted: bool  # a stop was requested before the end


@asynccontextmanager
async def _silent() -> AsyncIterator[None]:
    yield


def _nobody(_node: Node) -> AbstractAsyncContextManager[None]:
    return _silent()


async def rehearse(
    settings: Settings,
    scenario: Scenario,
    root: Path,
    *,
    shutdown: Shutdown,
    log: Logger,
    pace_seconds: float = 0,
    live: Callable[[Node], AbstractAsyncContextManager[None]] = _nobody,
) -> Rehearsed:
    """Run a scenario's chain to its end with the daemon's own parts; files stay below ``root``, an empty directory.

    ``live`` is a context, such as a live printer, that is open while the daemon works. A stop request stops everything
    at once. When this returns or raises, nothing that it started is still running. Raises `RehearsalError` when the
    services do not start, and whatever `open_node` raises.
    """
    async with set_up(scenario, root, path=settings.path, pace_seconds=pace_seconds) as stage:
        ours = rehearsal_settings(settings, stage)
        interrupted = False
        async with open_node(ours, log=log) as node, live(node), open_tasks() as tasks:
            tasks.start_soon(run_daemon, node, shutdown)
            with anyio.move_on_after(LONGEST_SECONDS):
                interrupted = await _until_ended(node, shutdown)
            # Twice: the second request means that nothing is waited for.
            shutdown.request()
            shutdown.request()
        record = await _record(ours, stage)
    return Rehearsed(record=record, shortfalls=shortfalls(record, scenario.expect), interrupted=interrupted)


def check_rehearsable(settings: Settings) -> None:
    """Raise `ConfigurationError` for a tier whose CLI cannot talk to the scripted API."""
    for tier in settings.tiers:
        if tier.harness != _HARNESS:
            raise ConfigurationError(
                f"Tier {tier.number} runs on {tier.harness}, which cannot be rehearsed: the scripted model speaks the "
                f"Messages API only. Unset CLAUDEOPS_HARNESS and CLAUDEOPS_TIER{tier.number}_HARNESS for this command."
            )


def rehearsal_settings(settings: Settings, stage: Stage) -> Settings:
    """Return the operator's settings with the stage in place of the real world."""
    return replace(
        settings,
        anthropic_api_key=KEY,
        oauth_token=None,
        anthropic_base_url=stage.api.url,
        interval_seconds=_A_MONTH,
        cron=None,
        jitter_seconds=0.0,
        schedules_path=None,
        file_schedules=(),
        follow_up_delay_seconds=0.0,
        tiers=tuple(replace(tier, env={}, home=None) for tier in settings.tiers),
        approval_timeout_seconds=_APPROVAL_SECONDS,
        mcp_config=None,
        trusted_repos={},
        path=f"{stage.commands_dir}:{settings.path}",
        proxies={},
        inherited_env={name: value for name, value in settings.inherited_env.items() if not _is_proxy(name)},
        state_dir=stage.state_dir,
        results_dir=stage.results_dir,
        repos_dir=stage.repos_dir,
        cli_self_test=False,  # the state directory is new, so the test would run every time
        database_url=f"sqlite:///{stage.state_dir / 'claudeops.db'}",
        dispatcher="local",
        heartbeat_url=None,
        apprise_urls=(),
    )


async def _until_ended(node: Node, shutdown: Shutdown) -> bool:
    """Wait until every session of the chain has ended; return whether a stop was requested before that."""
    while not shutdown.requested.is_set():
        sessions: Sequence[Session] = ()
        with suppress(StoreError):  # the daemon logs it; the next poll may work
            sessions = await node.store.records.chain(ROOT_SESSION)
        if sessions and all(session.status is Status.ENDED for session in sessions):
            return False
        with anyio.move_on_after(_LOOK_SECONDS):
            await shutdown.requested.wait()
    return True


async def _record(settings: Settings, stage: Stage) -> Record:
    store = open_store(settings.database_url)
    try:
        return Record(
            sessions=await store.records.chain(ROOT_SESSION),
            account=await store.records.chain_record(ROOT_SESSION),
            states=await stage.environment.states(),
            problems=stage.api.problems,
        )
    finally:
        await store.close()


def _is_proxy(name: str) -> bool:
    """Tell whether a variable names a proxy: nothing of a rehearsal leaves this machine."""
    return name.lower().endswith("_proxy")
