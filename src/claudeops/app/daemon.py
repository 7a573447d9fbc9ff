"""The upkeep of a node, put together from the operator's settings. Part of the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from claudeops.engine.daemon.healthcheck_ping import Heartbeat, pinging
from claudeops.engine.daemon.housekeeping import DiskFloor, Housekeeping
from claudeops.engine.session.context import SessionContext
from claudeops.engine.session.supervisor import Supervisor
from claudeops.settings import Settings
from claudeops.store.database import parse_url, sqlite_file

_MIB: Final = 1024 * 1024


async def run_housekeeping(
    settings: Settings,
    context: SessionContext,
    supervisor: Supervisor,
    *,
    task_status: TaskStatus[Heartbeat | None] = TASK_STATUS_IGNORED,
) -> None:
    """Watch the disks, keep house and ping the watchdog until cancelled; started once the disks were looked at.

    What starts it gets the heartbeat, if there is one.
    """
    upkeep = Housekeeping(
        database=context.store.housekeeping,
        records=context.store.records,
        clock=context.clock,
        results_dir=settings.results_dir,
        retention_days=settings.retention_days,
        running=supervisor.running.keys,
        log=context.log,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(_disk_floor(settings, context, supervisor).run)
        tasks.start_soon(upkeep.run)
        heartbeat = None
        if settings.heartbeat_url is not None:
            heartbeat = Heartbeat(
                records=context.store.records,
                ping=pinging(settings.heartbeat_url, proxies=_proxies(settings.inherited_env)),
                lowest_tier=min(tier.number for tier in settings.tiers),
                log=context.log,
            )
            supervisor.on_ended = heartbeat.ended
            tasks.start_soon(heartbeat.run)
        task_status.started(heartbeat)


def _disk_floor(settings: Settings, context: SessionContext, supervisor: Supervisor) -> DiskFloor:
    """Return what watches the disks of logs, state, database and sessions."""
    database = sqlite_file(parse_url(settings.database_url))
    workspaces = context.cell.workspaces(context.sessions_dir)
    there = next(path for path in (workspaces, *workspaces.parents) if path.is_dir())  # before the first session
    directories = {settings.results_dir, settings.state_dir, there}
    directories |= set() if database is None else {database.parent}
    return DiskFloor(
        holds=context.store.holds,
        clock=context.clock,
        directories=sorted(directories),
        floor_bytes=settings.disk_floor_mb * _MIB,
        stop_all=supervisor.stop_all,
        kill_all=supervisor.kill_all,
        log=context.log,
    )


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of an environment by scheme, ``no`` for the exceptions; small letters win, as in curl."""
    names = {"http": "http_proxy", "https": "https_proxy", "no": "no_proxy"}
    found = {scheme: environment.get(name) or environment.get(name.upper()) for scheme, name in names.items()}
    return {scheme: value for scheme, value in found.items() if value}
