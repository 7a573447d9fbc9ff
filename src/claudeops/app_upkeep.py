"""The upkeep of a node, put together from the operator's settings. Part of the composition root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
from anyio import TASK_STATUS_IGNORED

from claudeops.engine.disk_floor import DiskFloor
from claudeops.engine.heartbeat import Heartbeat, pinging
from claudeops.engine.upkeep import Upkeep
from claudeops.store.connections import parse_url, sqlite_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import TaskStatus

    from claudeops.engine.kit import Kit
    from claudeops.engine.supervisor import Supervisor
    from claudeops.settings import Settings

_MIB: Final = 1024 * 1024


async def keep_house(
    settings: Settings,
    kit: Kit,
    supervisor: Supervisor,
    *,
    task_status: TaskStatus[Heartbeat | None] = TASK_STATUS_IGNORED,
) -> None:
    """Watch the disks, keep house and ping the watchdog until cancelled; started once the disks were looked at.

    What starts it gets the heartbeat, if there is one.
    """
    upkeep = Upkeep(
        store=kit.store,
        clock=kit.clock,
        results_dir=settings.results_dir,
        retention_days=settings.retention_days,
        running=supervisor.running.keys,
        log=kit.log,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(_disk_floor(settings, kit, supervisor).run)
        tasks.start_soon(upkeep.run)
        heartbeat = None
        if settings.heartbeat_url is not None:
            heartbeat = Heartbeat(
                store=kit.store,
                ping=pinging(settings.heartbeat_url, proxies=_proxies(settings.inherited_env)),
                lowest_tier=min(tier.number for tier in settings.tiers),
                log=kit.log,
            )
            supervisor.on_ended = heartbeat.ended
            tasks.start_soon(heartbeat.run)
        task_status.started(heartbeat)


def _disk_floor(settings: Settings, kit: Kit, supervisor: Supervisor) -> DiskFloor:
    """Return what watches the disks of logs, state, database and sessions."""
    database = sqlite_file(parse_url(settings.database_url))
    workspaces = kit.cell.workspaces(kit.sessions_dir)
    there = next(path for path in (workspaces, *workspaces.parents) if path.is_dir())  # before the first session
    directories = {settings.results_dir, settings.state_dir, there}
    directories |= set() if database is None else {database.parent}
    return DiskFloor(
        store=kit.store,
        clock=kit.clock,
        directories=sorted(directories),
        floor_bytes=settings.disk_floor_mb * _MIB,
        stop_all=supervisor.stop_all,
        kill_all=supervisor.kill_all,
        log=kit.log,
    )


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of an environment by scheme, ``no`` for the exceptions; small letters win, as in curl."""
    names = {"http": "http_proxy", "https": "https_proxy", "no": "no_proxy"}
    found = {scheme: environment.get(name) or environment.get(name.upper()) for scheme, name in names.items()}
    return {scheme: value for scheme, value in found.items() if value}
