"""The composition root: builds the adapters, starts the tasks, stops them in order.

A node is opened in a fixed order (directories, lock, migrations, store, reconciliation) and closed in the
reverse one; each step registers its own undoing at its birth. A test can run two nodes in one process.

What is done while a node is opened: the database brought up to date, dead daemons tidied up after, a pulse.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from claudeops.app.cell import (
    admission,
    admit_clis,
    choose_cell,
    clear_leftovers,
    end_leftovers,
    groups_of_sessions,
    slots,
)
from claudeops.app.daemon import run_housekeeping
from claudeops.app.wiring import SESSIONS, build_context, escalation_rules, meter_of, root_session, schedule
from claudeops.dispatch.local import LocalDispatcher
from claudeops.domain.escalation import EscalationRules
from claudeops.domain.model import NewSession, Owner, Session, SkipReason, Status, Suppressed, Trigger
from claudeops.domain.schedule import NEVER, Schedule
from claudeops.engine.daemon.commands import ServiceManager, run_commands
from claudeops.engine.daemon.lease import LeaseKeeper
from claudeops.engine.daemon.status import StatusFile, StatusKeeper
from claudeops.engine.gate.approvals import ensure_key
from claudeops.engine.live.hub import Hub
from claudeops.engine.meter.availability import start_refusal
from claudeops.engine.ports import Clock, Store
from claudeops.engine.recovery.recovery import Recovery, free_log_path, highest_log_number
from claudeops.engine.schedule.scheduler import Scheduler
from claudeops.engine.session.context import SessionContext
from claudeops.engine.session.runner import SessionRunner
from claudeops.engine.session.supervisor import Supervisor
from claudeops.engine.system import Shutdown, SystemClock, alive, this_owner
from claudeops.errors import AlreadyRunningError, ConfigurationError, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings, prepare_directories
from claudeops.settings.files import packaged
from claudeops.store.locks import claim_database, claim_watch
from claudeops.store.migrate import migrate
from claudeops.store.store import open_store
from claudeops.store.writer import Writer
from claudeops.tasks import DatabaseTrouble, Threads, open_tasks

T = TypeVar("T")

FOLLOW_SECONDS: Final = 0.2
LAST_BEAT_SECONDS: Final = 15.0
"""How long a foreground chain waits at its end until the watchdog was told."""
HELD_LOOKS: Final = 10
"""So often in a row a chain is seen held before nobody waits for it any more: a probe needs a moment to start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """Everything that a daemon, or one foreground chain, works with."""

    settings: Settings
    store: Store
    context: SessionContext
    recovery: Recovery
    check_lock: Callable[[], None]  # raises `AlreadyRunningError` when another daemon has the database by now
    rules: EscalationRules
    owner: Owner
    clock: Clock
    dispatcher: LocalDispatcher
    log: Logger
    slots: int  # sessions at once

    def supervisor(self, *, chain: int | None = None) -> Supervisor:
        """Return a supervisor over this node's queue, or over one chain of it."""
        return Supervisor(
            queue=self.store.queue,
            dispatcher=self.dispatcher,
            clock=self.clock,
            owner=self.owner,
            rules=self.rules,
            run_session=SessionRunner(context=self.context).run,
            new_cli_session_id=lambda: str(uuid.uuid4()),
            log_path=self._log_path,
            slots=self.slots,
            stop_grace_seconds=self.settings.stop_grace_seconds,
            hub=self.context.hub,
            redact=self.context.redactor.text,
            log=self.log,
            chain=chain,
        )

    def _log_path(self, session_id: int) -> str:
        return str(free_log_path(self.settings.results_dir, session_id))


# --- opening a node -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def open_node(
    settings: Settings,
    *,
    log: Logger,
    clock: Clock | None = None,
    hub: Hub | None = None,
    shutdown: Shutdown | None = None,
) -> AsyncIterator[Node]:
    """Open everything for the only daemon on this database.

    Who brings a ``hub`` with readers hears also of what dead daemons left: it is taken up here.
    Raises `ConfigurationError`, `AlreadyRunningError`, `NewerDatabaseError`, `DatabaseUnavailableError` or, asked to
    stop by ``shutdown``, `StoppedError` before anything has been started. A stop that comes later finds a node that is
    open, for whoever opened it to close.
    """
    clock, shutdown = clock or SystemClock(), shutdown or Shutdown()
    shutdown.check()
    await answered(lambda: prepare_directories(settings), "making the state and results directories")
    owner = this_owner()
    with claim_database(settings.database_url, settings.state_dir) as check_lock:
        async with shutdown.stoppable():
            cell = await choose_cell(settings, log)
            clis = admission(settings, cell=cell, clock=clock, log=log)
            owner = replace(owner, isolation=cell.level.value)
            await admit_clis(settings, clis)
        await migrate_database(settings, log, shutdown)
        shutdown.check()
        hub = hub or Hub()
        store = open_store(settings.database_url, raised=hub.from_threads())
        try:
            await store.housekeeping.make_room()
            await end_leftovers(settings.state_dir / SESSIONS, log)
            rules = escalation_rules(settings)
            async with meter_of(settings, spending=store.spending, rules=rules, clock=clock, log=log) as meter:
                context = replace(
                    build_context(settings, store=store, rules=rules, clock=clock, hub=hub, log=log),
                    cli_refusal=clis.refusal,
                    meter=meter,
                    cell=cell,
                    groups=await groups_of_sessions(settings, log),
                    approval_key=await answered(lambda: ensure_key(settings.state_dir), "reading the approval key"),
                )
                recovery = Recovery(context=context)
                await take_over(recovery, owner, settings, shutdown)
                await clear_leftovers(settings.state_dir / SESSIONS, log)
                yield Node(
                    settings=settings,
                    store=store,
                    context=context,
                    recovery=recovery,
                    check_lock=check_lock,
                    rules=rules,
                    owner=owner,
                    clock=clock,
                    dispatcher=LocalDispatcher(),
                    log=log,
                    slots=slots(settings, log),
                )
            await _depart(store, owner, log)
        finally:
            await store.close()


async def _depart(store: Store, owner: Owner, log: Logger) -> None:
    """Say that this owner runs no more; who finds it on record all the same sees that its process is gone."""
    try:
        await store.recovery.depart(owner)
    except StoreError as error:
        DatabaseTrouble(log, "departure").failed(error)


# --- the daemon ---------------------------------------------------------------------------------------


async def run_daemon(node: Node, shutdown: Shutdown) -> None:
    """Run by the schedule until asked to stop. Returns after an ordered shutdown."""
    file = StatusFile(node.settings.state_dir / "daemon.json", node.owner, node.clock.now())
    if shutdown.requested.is_set():  # while the node was opened
        await _remove(file)  # a daemon that died may have left one
        return
    supervisor = node.supervisor()
    pulse = pulse_of(node, supervisor, shutdown)
    status = StatusKeeper(
        file=file,
        holds=node.store.holds,
        clock=node.clock,
        running=lambda: [session for session, _ in supervisor.running.values()],
        log=node.log,
        trouble=lambda: pulse.trouble,
    )
    supervisor.on_change = status.changed
    plan = schedule(node.settings)
    manager = ServiceManager(
        address=node.settings.notify_socket, watchdog_seconds=node.settings.watchdog_seconds, log=node.log
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(run_housekeeping, node.settings, node.context, supervisor)
        tasks.start_soon(_keep_schedule, node, plan, shutdown)
        tasks.start_soon(supervisor.run)
        tasks.start_soon(node.recovery.run)
        tasks.start_soon(pulse.run)
        if node.context.availability is not None:
            tasks.start_soon(node.context.availability.run)
        tasks.start_soon(run_commands, node.store.queue, node.clock, supervisor.stop_all, node.log)
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


async def _remove(file: StatusFile) -> None:
    with contextlib.suppress(OSError):
        await file.remove()


async def _keep_schedule(node: Node, plan: Schedule, shutdown: Shutdown) -> None:
    """Fire at the due times after the last one on record, until asked to stop; a fire under way is not cut then.

    What was missed while no daemon ran is caught up by one chain; a daemon that is back before the next due time waits
    for it. A schedule that was never fired is overdue: the first daemon of all begins with a look.
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
    result = await node.store.queue.fire(schedule_name, due_at, new, rules=node.rules, now=node.clock.now())
    about = {"schedule": schedule_name, "due_at": due_at.isoformat()}
    match result:
        case Session():
            node.log.info(LogEvent.SCHEDULE_FIRED, session_id=result.id, **about)
            await node.dispatcher.announce()
        case SkipReason():
            node.log.warning(LogEvent.SCHEDULE_SKIPPED, reason=result.value, **about)
        case None:
            pass  # fired before: by an earlier daemon, or before the clock was set back


async def _drain(supervisor: Supervisor, node: Node, shutdown: Shutdown) -> None:
    async with anyio.create_task_group() as tasks:

        async def hurry() -> None:
            await shutdown.hurried.wait()
            supervisor.hurry()

        tasks.start_soon(hurry)
        await supervisor.drain(node.settings.drain_timeout_seconds)
        tasks.cancel_scope.cancel()


# --- one chain in the foreground ----------------------------------------------------------------------


async def run_chain(
    node: Node, new: NewSession, shutdown: Shutdown, told: Callable[[Session], None]
) -> Sequence[Session] | Suppressed:
    """Queue a chain, run it to its end and return its sessions; asked to stop, the running one is cancelled.

    ``told`` hears of each session when it has ended. Raises `StoppedError` where nothing was queued for that.
    """
    shutdown.check()
    now = node.clock.now()
    root = await start_refusal(node.store.holds, now) or await node.store.queue.enqueue(new, rules=node.rules, now=now)
    if isinstance(root, Suppressed):
        node.log.warning(LogEvent.SESSION_SUPPRESSED, reason=root.reason.value)
        return root
    supervisor = node.supervisor(chain=root.id)

    async def stop_when_asked() -> None:
        await shutdown.requested.wait()
        await supervisor.drain(0)

    async def unasked() -> bool:
        return not shutdown.requested.is_set()

    async with open_tasks() as tasks:
        tasks.start_soon(stop_when_asked)
        watchdog = await tasks.start(run_housekeeping, node.settings, node.context, supervisor)
        if node.context.availability is not None:
            tasks.start_soon(node.context.availability.run)
        async with open_tasks() as running:
            running.start_soon(supervisor.run)
            sessions = await follow(node.store, root.id, told=told, served=unasked)
            await supervisor.drain(0)
        if watchdog is not None:
            with anyio.move_on_after(LAST_BEAT_SECONDS):
                await watchdog.settled()
        tasks.cancel_scope.cancel()
    return await node.store.records.chain(root.id) or sessions


async def run_chain_beside(
    settings: Settings,
    new: NewSession,
    told: Callable[[Session], None],
    *,
    queued: Callable[[Session], None],
    log: Logger,
) -> Sequence[Session] | Suppressed:
    """Queue a chain for the daemon that owns the database, and follow it to its end.

    ``queued`` hears of its first session before that can have started, ``told`` of each one that has ended.
    Raises `AlreadyRunningError` when that daemon goes away before the chain has ended; what is queued stays so.
    """
    store = open_store(settings.database_url)
    with claim_watch(settings.database_url) as look:

        async def served() -> bool:
            return await anyio.to_thread.run_sync(look)

        try:
            now = SystemClock().now()
            root = await start_refusal(store.holds, now) or await store.queue.enqueue(
                new, rules=escalation_rules(settings), now=now
            )
            if isinstance(root, Suppressed):
                log.warning(LogEvent.SESSION_SUPPRESSED, reason=root.reason.value)
                return root
            log.info(LogEvent.SESSION_QUEUED, session_id=root.id)
            queued(root)
            sessions = await follow(store, root.id, told=told, served=served)
        finally:
            await store.close()
        if any(session.status is not Status.ENDED for session in sessions) and not await served():
            raise AlreadyRunningError(
                f"The daemon stopped before session {sessions[-1].id} had ended: "
                "it stays queued and runs when the daemon is started again."
            )
    return sessions


async def follow(
    store: Store, root_id: int, *, told: Callable[[Session], None], served: Callable[[], Awaitable[bool]]
) -> Sequence[Session]:
    """Watch a chain until all its sessions have ended, or nobody serves it any more; return its sessions.

    Looks `FOLLOW_SECONDS` apart: the daemon may be another process, and the row is the truth. A chain of which
    nothing runs while a hold keeps the rest in the queue counts as not served: a hold may last for days.
    """
    known: set[int] = set()
    sessions: Sequence[Session] = ()
    start_refusal = 0
    while start_refusal < HELD_LOOKS:
        being_served = await served()  # before the look: what ended last is then seen
        sessions = await store.records.chain(root_id)
        for session in sessions:
            if session.status is Status.ENDED and session.id not in known:
                known.add(session.id)
                told(session)
        if len(known) == len(sessions) or not being_served:
            break
        running = any(session.status is Status.RUNNING for session in sessions)
        start_refusal = 0 if running or not await store.holds.standing(SystemClock().now()) else start_refusal + 1
        await anyio.sleep(FOLLOW_SECONDS)
    return sessions


_ANSWER_SECONDS: Final = 30.0
_FILES: Final = Threads(most=4)


async def take_over(recovery: Recovery, owner: Owner, settings: Settings, shutdown: Shutdown) -> None:
    """End what dead daemons left running, and keep clear of the logs that are there.

    What was begun is finished, for as long as a stop may take: asked for one, it leaves no row that is half ours.
    """
    context = recovery.context
    async with shutdown.stoppable(
        patience_seconds=settings.drain_timeout_seconds, grace_seconds=settings.stop_grace_seconds
    ):
        results = settings.results_dir
        await context.store.recovery.skip_ids(await answered(lambda: highest_log_number(results), f"listing {results}"))
        orphans = await context.store.recovery.reconcile(owner, now=context.clock.now(), alive=alive)
        if orphans:
            context.log.warning(LogEvent.SESSIONS_RECONCILED, sessions=[session.id for session in orphans])
        await recovery.take_up(orphans)


async def answered(work: Callable[[], T], what: str, *, seconds: float = _ANSWER_SECONDS) -> T:
    """Return what work with files gives; raises `ConfigurationError` when their disk does not answer."""
    try:
        return await _FILES.run(work, seconds=seconds, what=what)
    except TimeoutError as error:
        raise ConfigurationError(
            f"The disk of the daemon's own directories does not answer ({error.strerror}): "
            "mend it, or name others in CLAUDEOPS_STATE_DIR and CLAUDEOPS_RESULTS_DIR."
        ) from error


async def migrate_database(settings: Settings, log: Logger, shutdown: Shutdown) -> None:
    """Bring the tables to this version; raises `NewerDatabaseError`, `DatabaseUnavailableError` or `StoppedError`.

    A migration is finished when a stop is requested, unless it takes longer than a drain may. It is one transaction:
    what is cut off is rolled back by the end of the process. So the thread is one for which the process does not wait.
    """
    work = partial(migrate, settings.database_url, migrations_dir=packaged("migrations"), backup_dir=settings.state_dir)
    writer = Writer(wait_seconds=math.inf)
    try:
        async with shutdown.stoppable(patience_seconds=settings.drain_timeout_seconds):
            migrated = await writer.run(work)
    finally:
        writer.leave()
    if migrated.backup_path is not None:
        log.info(LogEvent.DATABASE_BACKED_UP, path=str(migrated.backup_path))
    if migrated.from_revision != migrated.to_revision:
        log.info(LogEvent.DATABASE_MIGRATED, before=migrated.from_revision, now=migrated.to_revision)


def pulse_of(node: Node, supervisor: Supervisor, shutdown: Shutdown) -> LeaseKeeper:
    """Return a daemon's sign of life; it asks for a quick stop when the database is another daemon's."""

    def stop_quickly() -> None:
        shutdown.requested.set()
        shutdown.hurried.set()

    return LeaseKeeper(
        recovery=node.store.recovery,
        owner=node.owner,
        clock=node.clock,
        running=supervisor.running,
        check_lock=node.check_lock,
        lost=stop_quickly,
        log=node.log,
    )
