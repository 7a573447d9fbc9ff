"""The daemon: everything that runs beside sessions, started, kept going by the schedule, and stopped in order."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import anyio
import anyio.to_thread
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from claudeops.app.node import Node
from claudeops.app.wiring import root_session, schedule
from claudeops.domain.model import Session, SkipReason, Trigger
from claudeops.domain.schedule import NEVER, Schedule
from claudeops.engine.control import RunningSessions
from claudeops.engine.daemon.commands import ServiceManager, run_commands
from claudeops.engine.daemon.healthcheck_ping import HealthcheckPing, pinging
from claudeops.engine.daemon.housekeeping import DiskFloor, Housekeeping
from claudeops.engine.daemon.lease import LeaseKeeper
from claudeops.engine.daemon.status import StatusFile, StatusKeeper
from claudeops.engine.schedule.scheduler import Scheduler
from claudeops.engine.session.supervisor import Supervisor
from claudeops.engine.system import Shutdown
from claudeops.errors import StoreError
from claudeops.logs import LogEvent
from claudeops.store.database import parse_url, sqlite_file
from claudeops.tasks import DatabaseTrouble

_MIB: Final = 1024 * 1024


async def run_daemon(node: Node, shutdown: Shutdown) -> None:
    """Run chains by the schedule until asked to stop; return after an ordered shutdown."""
    file = StatusFile(node.settings.state_dir / "daemon.json", node.owner, node.clock.now())
    if shutdown.requested.is_set():  # the stop came while the node was being opened
        await _remove(file)  # a daemon that died may have left one
        return
    running = RunningSessions()
    lease = lease_keeper(node, running, shutdown)
    status = StatusKeeper(
        file=file,
        holds=node.store.holds,
        clock=node.clock,
        running=running.sessions,
        log=node.log,
        trouble=lambda: lease.trouble,
    )
    ping = healthcheck_ping(node)
    supervisor = node.supervisor(running=running, listeners=[status] if ping is None else [status, ping])
    plan = schedule(node.settings)
    manager = ServiceManager(
        address=node.settings.notify_socket, watchdog_seconds=node.settings.watchdog_seconds, log=node.log
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(run_housekeeping, node, running, ping)
        tasks.start_soon(_keep_schedule, node, plan, shutdown)
        tasks.start_soon(supervisor.run)
        tasks.start_soon(node.recovery.run)
        tasks.start_soon(lease.run)
        if node.context.availability is not None:
            tasks.start_soon(node.context.availability.run)
        tasks.start_soon(run_commands, node.store.queue, node.clock, running.stop_all, node.log)
        await status.refresh()
        tasks.start_soon(status.run)
        manager.ready()
        tasks.start_soon(manager.show_life)
        node.log.info(LogEvent.DAEMON_READY, schedule=str(plan.cadence), max_tier=node.settings.max_tier)
        await shutdown.requested.wait()
        node.log.info(LogEvent.DAEMON_STOPPING)
        manager.stopping()
        await status.stop()
        await _drain(supervisor, node, shutdown)
        tasks.cancel_scope.cancel()
    await _remove(file)


def lease_keeper(node: Node, running: RunningSessions, shutdown: Shutdown) -> LeaseKeeper:
    """Return the keeper of a daemon's lease, which requests a quick stop when another daemon has the database."""

    def stop_quickly() -> None:
        shutdown.requested.set()
        shutdown.hurried.set()

    return LeaseKeeper(
        recovery=node.store.recovery,
        owner=node.owner,
        clock=node.clock,
        running=running,
        check_lock=node.check_lock,
        lost=stop_quickly,
        log=node.log,
    )


async def run_housekeeping(
    node: Node,
    running: RunningSessions,
    ping: HealthcheckPing | None,
    *,
    task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
) -> None:
    """Watch the disks, remove what is old and send pings until cancelled; started after the first look at the disks."""
    housekeeping = Housekeeping(
        database=node.store.housekeeping,
        records=node.store.records,
        clock=node.clock,
        results_dir=node.settings.results_dir,
        retention_days=node.settings.retention_days,
        running=running.keys,
        log=node.log,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(_disk_floor(node, running).run)
        tasks.start_soon(housekeeping.run)
        if ping is not None:
            tasks.start_soon(ping.run)
        task_status.started()


def healthcheck_ping(node: Node) -> HealthcheckPing | None:
    """Return what pings the operator's healthcheck after healthy chains; ``None``: no address is set."""
    if node.settings.heartbeat_url is None:
        return None
    return HealthcheckPing(
        records=node.store.records,
        ping=pinging(node.settings.heartbeat_url, proxies=_proxies(node.settings.inherited_env)),
        lowest_tier=min(tier.number for tier in node.settings.tiers),
        log=node.log,
    )


async def _remove(file: StatusFile) -> None:
    with contextlib.suppress(OSError):
        await file.remove()


async def _keep_schedule(node: Node, plan: Schedule, shutdown: Shutdown) -> None:
    """Fire at the due times after the last one on record, until asked to stop; a fire under way is not cut short.

    One chain catches up on everything that was missed while no daemon ran; a daemon that is back before the next due
    time waits for it. A schedule that has never fired is overdue: the very first daemon begins with a chain.
    """
    last = await _last_due(node, plan)
    scheduler = Scheduler(
        clock=node.clock,
        schedules=[plan],
        fire=lambda name, due_at: _fire(node, name, due_at),
        on_error=lambda name, due_at, error: node.log.error(
            LogEvent.SCHEDULE_FIRE_FAILED, schedule=name, due_at=due_at.isoformat(), error=str(error)
        ),
        last_due={plan.name: NEVER if last is None else last},
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(scheduler.run)
        node.log.info(
            LogEvent.SCHEDULE_KEPT,
            schedule=plan.name,
            last_due=None if last is None else last.isoformat(),
            next_fire=scheduler.next_fire(plan.name).isoformat(),
        )
        await shutdown.requested.wait()
        scheduler.pause()


async def _last_due(node: Node, plan: Schedule) -> datetime | None:
    trouble = DatabaseTrouble(node.log, "schedule")
    while True:
        try:
            last = await node.store.queue.last_fire(plan.name)
        except StoreError as error:
            await anyio.sleep(trouble.failed(error))
        else:
            trouble.over()
            return last


async def _fire(node: Node, schedule_name: str, due_at: datetime) -> None:
    lowest = min(choice.number for choice in node.rules.tiers)
    new = root_session(node.settings, lowest, Trigger.SCHEDULED)
    result = await node.store.queue.fire(
        schedule_name, due_at, new, rules=node.context.current_rules(), now=node.clock.now()
    )
    about = {"schedule": schedule_name, "due_at": due_at.isoformat()}
    match result:
        case Session():
            node.log.info(LogEvent.SCHEDULE_FIRED, session_id=result.id, **about)
            await node.dispatcher.announce()
        case SkipReason():
            node.log.warning(LogEvent.SCHEDULE_SKIPPED, reason=result.value, **about)
        case None:
            pass  # already fired: by an earlier daemon, or before the clock was set back


async def _drain(supervisor: Supervisor, node: Node, shutdown: Shutdown) -> None:
    async with anyio.create_task_group() as tasks:

        async def hurry() -> None:
            await shutdown.hurried.wait()
            supervisor.hurry()

        tasks.start_soon(hurry)
        await supervisor.drain(node.settings.drain_timeout_seconds)
        tasks.cancel_scope.cancel()


def _disk_floor(node: Node, running: RunningSessions) -> DiskFloor:
    """Return the watch over the disks of logs, state, database and sessions."""
    settings, context = node.settings, node.context
    database = sqlite_file(parse_url(settings.database_url))
    workspaces = context.workspaces()
    nearest = next(path for path in (workspaces, *workspaces.parents) if path.is_dir())  # there may be none yet
    directories = {settings.results_dir, settings.state_dir, nearest}
    directories |= set() if database is None else {database.parent}
    return DiskFloor(
        holds=node.store.holds,
        clock=node.clock,
        directories=sorted(directories),
        floor_bytes=settings.disk_floor_mb * _MIB,
        stop_all=running.stop_all,
        kill_all=running.kill_all,
        log=node.log,
    )


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of an environment by scheme, ``no`` for the exceptions; lower case wins, as in curl."""
    names = {"http": "http_proxy", "https": "https_proxy", "no": "no_proxy"}
    found = {scheme: environment.get(name) or environment.get(name.upper()) for scheme, name in names.items()}
    return {scheme: value for scheme, value in found.items() if value}
