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

    from claudeops.engine.ports import Clock, Store
    from claudeops.engine.supervisor import Supervisor
    from claudeops.logs import Logger
    from claudeops.settings import Settings

_MIB: Final = 1024 * 1024


async def keep_house(
    settings: Settings,
    store: Store,
    clock: Clock,
    supervisor: Supervisor,
    log: Logger,
    *,
    task_status: TaskStatus[Heartbeat | None] = TASK_STATUS_IGNORED,
) -> None:
    """Watch the disks, keep house and ping the watchdog until cancelled; started once the disks were looked at.

    What starts it gets the heartbeat, if there is one.
    """
    upkeep = Upkeep(
        store=store,
        clock=clock,
        results_dir=settings.results_dir,
        retention_days=settings.retention_days,
        running=supervisor.running.keys,
        log=log,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(_disk_floor(settings, store, clock, log).run)
        tasks.start_soon(upkeep.run)
        heartbeat = None
        if settings.heartbeat_url is not None:
            heartbeat = Heartbeat(
                store=store,
                ping=pinging(settings.heartbeat_url, proxies=_proxies(settings.inherited_env)),
                lowest_tier=min(tier.number for tier in settings.tiers),
                log=log,
            )
            supervisor.on_ended = heartbeat.ended
            tasks.start_soon(heartbeat.run)
        task_status.started(heartbeat)


def _disk_floor(settings: Settings, store: Store, clock: Clock, log: Logger) -> DiskFloor:
    """Return what watches the disks of logs, state and database."""
    database = sqlite_file(parse_url(settings.database_url))
    directories = {settings.results_dir, settings.state_dir} | (set() if database is None else {database.parent})
    return DiskFloor(
        store=store,
        clock=clock,
        directories=sorted(directories),
        floor_bytes=settings.disk_floor_mb * _MIB,
        log=log,
    )


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of an environment by scheme, ``no`` for the exceptions; small letters win, as in curl."""
    names = {"http": "http_proxy", "https": "https_proxy", "no": "no_proxy"}
    found = {scheme: environment.get(name) or environment.get(name.upper()) for scheme, name in names.items()}
    return {scheme: value for scheme, value in found.items() if value}
