"""The daemon: everything that runs beside sessions, started, kept going by the schedule, and stopped in order."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from claudeops.app.alerts import alert_worker, alerts_file, heartbeats
from claudeops.app.node import Node
from claudeops.app.notify import ReloadedNotifications, notifications
from claudeops.app.probes import declared_probes, keep_estate, probe_watch
from claudeops.app.roles import digests_of, fleet_roles, keep_files, roles_of
from claudeops.app.schedules import follow_up_worker, probe_gate, schedule_runner
from claudeops.domain.alerts.receipt import WEBHOOK
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.owner import SCHEDULES, UPKEEP
from claudeops.domain.sessions import Session
from claudeops.engine.alerts.worker import AlertWorker
from claudeops.engine.control import RunningSessions
from claudeops.engine.daemon.commands import CommandRunner, ServiceManager
from claudeops.engine.daemon.housekeeping import DiskFloor, Housekeeping
from claudeops.engine.daemon.lease import LeaseRenewal
from claudeops.engine.daemon.liveness import STATUS_FILE
from claudeops.engine.daemon.roles import Roles
from claudeops.engine.daemon.status import SchedulesState, StatusFile, StatusWriter
from claudeops.engine.operator_file import OperatorFile
from claudeops.engine.ports import SessionListener
from claudeops.engine.schedules.runner import ScheduleRunner
from claudeops.engine.session.supervisor import STOP_MARGIN_SECONDS, Supervisor
from claudeops.engine.system import Shutdown, give_memory_back
from claudeops.logs import LogEvent
from claudeops.store.connection.engines import parse_url, sqlite_file
from claudeops.store.locks import no_check
from claudeops.structs import replace

if TYPE_CHECKING:
    from claudeops.engine.daemon.healthcheck_ping import HealthcheckPing

_MIB: Final = 1024 * 1024


class MemoryTrim(SessionListener):
    """Gives memory back when the last session has left: a daemon waits for most of its life."""

    def __init__(
        self,
        running: RunningSessions,
        *,
        quiet_seconds: float = 1.0,  # without a session: most chains have a next tier, or come in a burst
        trim: Callable[[], object] = give_memory_back,
    ) -> None:
        self._running = running
        self._quiet_seconds = quiet_seconds
        self._trim = trim
        self._left = anyio.Event()

    def left(self, session: Session) -> None:  # noqa: ARG002 - those that run are counted
        """Have memory given back soon, without waiting for it."""
        self._left.set()

    async def run(self) -> None:
        """Give memory back after each rush of sessions, until cancelled."""
        while True:
            await self._left.wait()
            self._left = anyio.Event()
            await anyio.sleep(self._quiet_seconds)
            if not self._running.sessions():
                gc.collect()  # of what has come since the start: the rest is frozen
                await anyio.to_thread.run_sync(self._trim)


async def run_daemon(node: Node, shutdown: Shutdown) -> bool:
    """Run chains by the schedule until asked to stop; return whether the ends of all sessions were written by then."""
    file = StatusFile(
        node.settings.places.state_dir / STATUS_FILE, node.owner, node.clock.now(), budgets=node.rules.budgets
    )
    if shutdown.requested.is_set():  # the stop came while the node was being opened
        await _remove(file)  # a daemon that died may have left one
        return True
    running = RunningSessions()
    rules = alerts_file(node)
    _count_sources(node, rules)
    declared = declared_probes(node, lambda: heartbeats(rules.value))
    worker = alert_worker(node, rules, dependencies=declared.dependencies)
    watch = probe_watch(node, declared, queued=worker.stir)
    tier0 = probe_gate(node, declared)
    lease = lease_renewal(node, running, shutdown)
    schedules = schedule_runner(node, tier0, held_back=lease.holds_back)
    roles = roles_of(node, lease)
    ping, people = healthcheck_ping(node), notifications(node)
    status = _status_writer(node, file, running, lease=lease, schedules=schedules, people=people, roles=roles)
    trim, floor = MemoryTrim(running), disk_floor(node, running)
    listeners: list[SessionListener] = [status, node.counts, trim, floor, *([] if ping is None else [ping])]
    informed = replace(node, context=replace(node.context, probes=tier0.table))
    supervisor = informed.supervisor(running=running, listeners=listeners, may_claim=lease.may_claim)
    manager = _service_manager(node)
    node.wake_ups.join(status.wake)
    lease.changed = roles.changed = status.wake
    async with anyio.create_task_group() as tasks:
        await tasks.start(
            partial(run_housekeeping, removes_rows=partial(roles.holds, UPKEEP)), node, running, floor, ping
        )
        await tasks.start(
            roles.run, fleet_roles(node, schedules, follow_up_worker(node), watch=watch, worker=worker, people=people)
        )
        tasks.start_soon(keep_estate, node)
        for run in (rules.run, worker.keep_writing, node.recovery.run, lease.run, trim.run, node.take_jobs):
            tasks.start_soon(run)
        tasks.start_soon(partial(keep_files, node, roles, declared=declared, schedules=schedules, people=people))
        if node.context.availability is not None:
            tasks.start_soon(node.context.availability.run)
        tasks.start_soon(command_runner(node, running).run)
        await status.refresh()
        tasks.start_soon(status.run)
        if node.settings.listener.enabled:
            tasks.start_soon(partial(_listen, node, worker, schedules, people, lease=lease, status=status, roles=roles))
        manager.ready()
        tasks.start_soon(manager.show_life)
        node.log.info(LogEvent.DAEMON_READY, schedule=schedules.names, max_tier=node.settings.ladder.max_tier)
        # With the next sign of life: a start does not wait for them.
        lease.digests = digests_of(node, rules, declared, schedules, people).now
        tasks.start_soon(_supervise, supervisor, node)
        await shutdown.requested.wait()
        schedules.pause()
        manager.stopping()
        await status.stop()
        is_done = await _drain(supervisor, node, shutdown)
        tasks.cancel_scope.cancel()
    await _remove(file)
    return is_done


def _status_writer(
    node: Node,
    file: StatusFile,
    running: RunningSessions,
    *,
    lease: LeaseRenewal,
    schedules: ScheduleRunner,
    people: ReloadedNotifications,
    roles: Roles,
) -> StatusWriter:
    return StatusWriter(
        file=file,
        holds=node.store.holds,
        clock=node.clock,
        running=running.sessions,
        log=node.log,
        trouble=lambda: lease.trouble,
        schedules=lambda: SchedulesState(next_fires=tuple(schedules.next_fires().items()), saved=schedules.saved),
        untold_since=lambda: people.oldest,
        roles=roles.held,
    )


def _service_manager(node: Node) -> ServiceManager:
    return ServiceManager(
        address=node.settings.service_manager.socket,
        watchdog_seconds=node.settings.service_manager.watchdog_seconds,
        log=node.log,
    )


async def _supervise(supervisor: Supervisor, node: Node) -> None:
    """Run sessions, none before it is known what the daemon runs for them."""
    await node.prepare_sessions()
    _spare_pauses(node)
    await node.looks.found()
    await supervisor.run()


def _count_sources(node: Node, rules: OperatorFile[Rules]) -> None:
    if node.metrics is not None:
        node.metrics.sources = lambda: {WEBHOOK, *(source.name for source in rules.value.sources)}


def _spare_pauses(node: Node) -> None:
    """Load what the first report needs; keep the search for circles in memory from stopping everybody again and again.

    What a start has left is never garbage, and is most of what there is to look through. Of the rest all is looked
    through after half a million new objects that were not freed at once, instead of seventy thousand.
    """
    _ = node.context.completion.schema.compiled  # an operator's schema takes the import of a library
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 25)
    give_memory_back()


async def _listen(
    node: Node,
    worker: AlertWorker,
    schedules: ScheduleRunner,
    people: ReloadedNotifications,
    *,
    lease: LeaseRenewal,
    status: StatusWriter,
    roles: Roles,
) -> None:
    """Answer those who call, until cancelled; a daemon that does not listen imports nothing of the web."""
    from claudeops.app.web import FileSources, Parts, keep_listening, readiness_of, web_of  # noqa: PLC0415 - see above

    async def pages() -> Parts:
        from claudeops.app.pages import pages_of  # noqa: PLC0415 - a listener without pages imports nothing of theirs

        return await pages_of(node, schedules, sources=lambda: worker.rules().sources)

    def fires() -> Mapping[str, datetime | None]:
        if not roles.holds(SCHEDULES):  # another node times them
            return {}
        return {plan.name: schedules.next_fires().get(plan.name) for plan in schedules.plans if plan.enabled}

    readiness = readiness_of(
        clock=node.clock,
        trouble=lambda: lease.trouble,
        fires=fires,
        disk=status.disk_is_low,
        outbox=people.is_late,
        is_metered=node.settings.cell.meter,
    )
    sources = FileSources(rules=worker.rules, environment=node.settings.alerts.env)
    web = web_of(node, readiness, sources=sources, intake=worker, interactions=people, pages=pages)
    await keep_listening(web)


def lease_renewal(node: Node, running: RunningSessions, shutdown: Shutdown) -> LeaseRenewal:
    """Return what renews a daemon's lease; it requests a quick stop when another daemon has the database."""

    def stop_quickly() -> None:
        shutdown.requested.set()
        shutdown.hurried.set()

    job_tables = None
    if node.settings.node.in_fleet:
        from claudeops.dispatch.procrastinate import newest_tables  # noqa: PLC0415 - a daemon that is alone has no jobs

        job_tables = newest_tables()
    return LeaseRenewal(
        recovery=node.store.recovery,
        job_tables=job_tables,
        owner=node.owner,
        clock=node.clock,
        running=running,
        check_lock=None if node.check_lock is no_check else node.check_lock,
        shares_lock=node.settings.node.in_fleet,
        compares_clocks=sqlite_file(parse_url(node.settings.places.database_url)) is None,
        lease=timedelta(seconds=node.settings.timeouts.takeover_seconds),
        stop_seconds=node.settings.timeouts.stop_grace_seconds + STOP_MARGIN_SECONDS,
        lost=stop_quickly,
        outdated=shutdown.requested.set,
        found_dead=node.recovery.wake,
        leapt=node.wake_ups.wake,
        log=node.log,
    )


def command_runner(node: Node, running: RunningSessions) -> CommandRunner:
    """Return what carries out the commands of operators."""
    return CommandRunner(
        commands=node.store.commands,
        queue=node.store.queue,
        running=running,
        rules=node.context.current_rules,
        clock=node.clock,
        owner=node.owner,
        log=node.log,
        waiter=node.wake_ups.waiter(own=False),
    )


async def run_housekeeping(
    node: Node,
    running: RunningSessions,
    floor: DiskFloor,
    ping: HealthcheckPing | None,
    *,
    removes_rows: Callable[[], bool] = lambda: True,
    task_status: TaskStatus[None] = TASK_STATUS_IGNORED,
) -> None:
    """Watch the disks, remove what is old, send pings and wake what waits until cancelled.

    Started after the first look at the disks.
    """
    housekeeping = Housekeeping(
        database=node.store.retention,
        records=node.store.records,
        clock=node.clock,
        results_dir=node.settings.places.results_dir,
        retention_days=node.settings.upkeep.retention_days,
        running=running.keys,
        log=node.log,
        removes_rows=removes_rows,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(floor.run)
        tasks.start_soon(housekeeping.run)
        tasks.start_soon(node.wake_ups.run, node.database.next_version)
        if ping is not None:
            tasks.start_soon(ping.run)
        task_status.started()


def healthcheck_ping(node: Node) -> HealthcheckPing | None:
    """Return what pings the operator's healthcheck after healthy chains; ``None``: no address is set."""
    url, proxies = node.settings.upkeep.heartbeat_url, _proxies(node.settings.environment.inherited)
    if url is None:
        return None
    from claudeops.engine.daemon.healthcheck_ping import (  # noqa: PLC0415 - with an HTTP client of its own
        HealthcheckPing,
        pinging,
        signalling,
    )

    return HealthcheckPing(
        records=node.store.records,
        ping=pinging(url, proxies=proxies),
        signal=signalling(url, proxies=proxies),
        lowest_tier=min(tier.number for tier in node.settings.tiers),
        log=node.log,
    )


async def _remove(file: StatusFile) -> None:
    with contextlib.suppress(OSError):
        await file.remove()


async def _drain(supervisor: Supervisor, node: Node, shutdown: Shutdown) -> bool:
    """Return whether all sessions have ended, by their rows too."""
    node.log.info(LogEvent.DAEMON_STOPPING)
    timeouts = node.settings.timeouts
    stop_seconds = timeouts.stop_grace_seconds + STOP_MARGIN_SECONDS
    settling = anyio.CancelScope(deadline=anyio.current_time() + timeouts.drain_seconds + stop_seconds)
    async with anyio.create_task_group() as tasks:

        async def hurry() -> None:
            await shutdown.hurried.wait()
            supervisor.hurry()
            settling.deadline = min(settling.deadline, anyio.current_time() + stop_seconds)

        tasks.start_soon(hurry)
        async with anyio.create_task_group() as ending:

            async def settle() -> None:
                with settling:
                    await node.recovery.settle()

            ending.start_soon(settle)
            left = await supervisor.drain(timeouts.drain_seconds)
        tasks.cancel_scope.cancel()
    left = [*left, *node.recovery.unsettled()]
    if left:
        node.log.warning(LogEvent.SESSIONS_LEFT, sessions=left)
    return not left


def disk_floor(node: Node, running: RunningSessions) -> DiskFloor:
    """Return the watch over the disks of logs, state, database and sessions."""
    settings, context = node.settings, node.context
    database = sqlite_file(parse_url(settings.places.database_url))
    workspaces = context.workspaces()
    nearest = next(path for path in (workspaces, *workspaces.parents) if path.is_dir())  # there may be none yet
    directories = {settings.places.results_dir, settings.places.state_dir, nearest}
    directories |= set() if database is None else {database.parent}
    return DiskFloor(
        holds=node.store.holds,
        clock=node.clock,
        directories=sorted(directories),
        floor_bytes=settings.upkeep.disk_floor_mb * _MIB,
        node=node.owner.node,
        stop_all=running.stop_all,
        kill_all=running.kill_all,
        is_idle=lambda: not running,
        log=node.log,
    )


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of an environment by scheme, ``no`` for the exceptions; lower case wins, as in curl."""
    names = {"http": "http_proxy", "https": "https_proxy", "no": "no_proxy"}
    found = {scheme: environment.get(name) or environment.get(name.upper()) for scheme, name in names.items()}
    return {scheme: value for scheme, value in found.items() if value}
