"""Opening a node: directories, lock, cell, migrations, store, meter, and what dead daemons left.

A node is opened in a fixed order and closed in the reverse one; each step registers its own undoing when it begins. A
test can run two nodes in one process.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread
import msgspec

from claudeops import __version__
from claudeops.app.cell import (
    LateLooks,
    admission,
    admit_clis,
    choose_cell,
    clear_leftovers,
    end_leftovers,
    groups_of_sessions,
    room_in_memory,
    slots,
    with_filters,
    with_headers,
    with_looks,
)
from claudeops.app.limits import escalation_rules
from claudeops.app.meter import LateMeter, begin_certificates, late_meter
from claudeops.app.migration import migrate_database
from claudeops.app.stages import FILE, StageWriter
from claudeops.app.start.checks import answered, make_directories
from claudeops.app.start.trial import Trial, trying
from claudeops.app.wiring import SESSIONS, build_context
from claudeops.clock import Clock
from claudeops.dispatch.local import LocalDispatcher
from claudeops.dispatch.wake_ups import LONGEST_SECONDS, LOOK_SECONDS, NET_SECONDS, WakeUps
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.owner import APPROVAL_KEY, POLICY, Outlook, Owner
from claudeops.domain.sessions import Ending, Session
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import Cell, described
from claudeops.engine.control import RunningSessions, StopControl
from claudeops.engine.daemon.digests import digest_of
from claudeops.engine.gate.admission import CliAdmission
from claudeops.engine.gate.answering import AnswerWaker
from claudeops.engine.gate.approval_key import ensure_key
from claudeops.engine.live.hub import Hub
from claudeops.engine.owners import this_owner
from claudeops.engine.ports import UNCOUNTED, Counting, SessionListener
from claudeops.engine.process.leaders import open_launchers
from claudeops.engine.recovery.recovery import SessionRecovery, free_log_path, highest_log_number
from claudeops.engine.session.context import ApprovalTerms, SessionContext
from claudeops.engine.session.supervisor import Supervisor
from claudeops.engine.system import Shutdown
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.store.access.logins import StoredLogins
from claudeops.store.access.tokens import Tokens
from claudeops.store.access.users import Users
from claudeops.store.connection.engines import driver_options, parse_url, sqlite_file
from claudeops.store.database import WAKE_SOCKET, Announce, Database
from claudeops.store.locks import claim_database, no_check
from claudeops.store.reading.calls import CallVerdict, verdicts
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble

if TYPE_CHECKING:  # what counts for Prometheus is slow to import, and a daemon that does not listen counts nothing
    from claudeops.metrics import Metrics


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a daemon, or one foreground chain, works with."""

    settings: Settings
    store: Store
    database: Database  # for what only reads
    tokens: Tokens  # of programs that call
    logins: StoredLogins  # of people
    users: Users  # people with a role
    verdicts: Callable[[int], Awaitable[Mapping[str, CallVerdict]]]  # on the calls of a session; raises `StoreError`
    metrics: Metrics | None  # None: there is no listener that would show them
    counts: Counting
    context: SessionContext
    meter: LateMeter
    recovery: SessionRecovery
    check_lock: Callable[[], None]  # raises `AlreadyRunningError` when another daemon has taken the database
    rules: EscalationRules
    owner: Owner
    clock: Clock
    dispatcher: LocalDispatcher
    wake_ups: WakeUps
    looks: LateLooks  # what the daemon runs for sessions, and for commands of probes
    log: Logger
    slots: int  # how many sessions may run at once

    async def session_context(self) -> SessionContext:
        """Return the context of sessions with the meter and what the daemon runs for them, once both are there."""
        meter, looks, context = await self.meter.opened(), await self.looks.found(), self.context
        return replace(
            context,
            meter=meter,
            confinement=replace(context.confinement, looks=looks.cells),
            tiers=with_looks(context.tiers, looks),
        )

    async def prepare_sessions(self) -> None:
        """Load and open what sessions need beyond what a start does, so that the first one does not wait for it.

        What the daemon runs for them is found out meanwhile.
        """
        self.looks.begin()
        import claudeops.engine.session.runner  # noqa: F401, PLC0415 - a start does not wait for it

        await self.meter.opened()

    def supervisor(
        self,
        *,
        running: RunningSessions,
        listeners: Sequence[SessionListener],
        may_claim: Callable[[], bool],
        chain: int | None = None,
    ) -> Supervisor:
        """Return a supervisor over this node's queue, or over one chain of it."""
        return Supervisor(
            queue=self.store.queue,
            claims=self.store.claims,
            dispatcher=self.dispatcher,
            clock=self.clock,
            owner=self.owner,
            rules=self.context.current_rules,
            run_session=self._running,
            new_cli_session_id=lambda: str(uuid.uuid4()),
            log_path=self._log_path,
            give_up=self.recovery.give_up,
            may_claim=may_claim,
            slots=self.slots,
            stop_grace_seconds=self.settings.timeouts.stop_grace_seconds,
            hub=self.context.hub,
            redact=self.context.redactor.text,
            log=self.log,
            chain=chain,
            running=running,
            listeners=listeners,
        )

    async def take_jobs(self) -> None:
        """Let sessions that other processes queue wake this node, until cancelled."""

        async def unannounced(queue: str, site: str | None) -> bool:
            from claudeops.store.connection.job_tables import is_unannounced  # noqa: PLC0415 - of several nodes alone

            return await self.database.read(partial(is_unannounced, queue=queue, site=site))

        await self.dispatcher.run(unannounced)

    @contextlib.asynccontextmanager
    async def _running(self, session: Session, control: StopControl) -> AsyncIterator[Ending]:
        from claudeops.engine.session.runner import SessionRunner  # noqa: PLC0415 - as above

        runner = SessionRunner(context=await self.session_context())
        async with runner.running(session, control) as ending:
            yield ending

    def _log_path(self, session_id: int) -> str:
        return str(free_log_path(self.settings.places.results_dir, session_id))


@contextlib.asynccontextmanager
async def open_node(
    settings: Settings,
    *,
    log: Logger,
    clock: Clock | None = None,
    hub: Hub | None = None,
    shutdown: Shutdown | None = None,
    trial: Trial | None = None,
    in_foreground: bool = False,
) -> AsyncIterator[Node]:
    """Open everything for a daemon: the only one on this database, or one of its fleet.

    ``in_foreground``: for a chain in the foreground, which ends by itself.

    Readers of a ``hub`` that is passed in also hear of the sessions of dead daemons, which are taken over here. A
    ``trial`` was begun by the caller, who ends it.

    Raises `ConfigurationError`, `AlreadyRunningError`, `NewerDatabaseError`, `DatabaseUnavailableError`, or
    `StoppedError` when ``shutdown`` is requested before anything has started. After a later request the node is open,
    and the caller closes it.
    """
    clock, shutdown = clock or Clock(), shutdown or Shutdown()
    shutdown.check()
    await make_directories(settings)
    with _claimed(settings, in_foreground=in_foreground) as check_lock:
        async with start_up_stages(settings, clock) as stages, contextlib.AsyncExitStack() as stack:
            certificates, owner = begin_certificates(settings), _owner(settings)
            async with shutdown.stoppable():
                tried = await _tried(stack, trial, settings, stages, version=owner.version, clock=clock, log=log)
            owner = replace(owner, isolation=described(tried.cell))
            launchers = await stack.enter_async_context(open_launchers())
            await stages.enter("migrations")
            await migrate_database(settings, log, shutdown)
            shutdown.check()
            await stages.enter("store")
            hub = hub or Hub()
            waker, dispatcher, wake_ups = _wakers(settings, log)
            rules = escalation_rules(settings)
            metrics, counts = _metrics(settings, rules=rules, cli_versions=tried.clis.versions.values)
            store = _store(settings, hub=hub, waker=waker, wake_ups=wake_ups, counts=counts)
            try:
                await store.retention.make_room()
                await stages.enter("leftovers")
                await end_leftovers(settings.places.state_dir / SESSIONS, counts, log)
                await stages.enter("meter")
                async with late_meter(
                    settings,
                    certificates=certificates,
                    spending=store.spending,
                    rules=rules,
                    clock=clock,
                    counts=counts,
                    log=log,
                ) as meter:
                    await stages.enter("estate")
                    context = build_context(
                        settings, store=store, rules=rules, clock=clock, hub=hub, log=log, counts=counts
                    )
                    await context.estates.look(log)
                    at_once = slots(settings, log)
                    await stages.enter("approvals")
                    context = replace(
                        await _confined(context, settings, tried, slots=at_once),
                        launchers=launchers if isinstance(tried.cell, BubblewrapCell) else None,
                        approvals=await _approvals(context, settings, waker),
                    )
                    await stages.enter("recovery")
                    if await store.claims.next_due(owner, rules=rules) is not None:
                        tried.looks.begin()  # who waits gains more than the rest of the start loses
                    recovery = SessionRecovery(
                        context=context, log_grace=timedelta(seconds=settings.timeouts.log_grace_seconds)
                    )
                    await take_over(recovery, owner, settings, shutdown, check_lock=check_lock)
                    await clear_leftovers(settings.places.state_dir / SESSIONS, log)
                    await stages.enter("ready")
                    yield Node(
                        settings=settings,
                        store=store,
                        database=store.database,
                        tokens=store.tokens,
                        logins=store.logins,
                        users=store.users,
                        verdicts=lambda session_id: store.database.read(partial(verdicts, session_id=session_id)),
                        metrics=metrics,
                        counts=counts,
                        context=context,
                        meter=meter,
                        recovery=recovery,
                        check_lock=check_lock,
                        rules=rules,
                        owner=owner,
                        clock=clock,
                        dispatcher=dispatcher,
                        wake_ups=wake_ups,
                        looks=tried.looks,
                        log=log,
                        slots=at_once,
                    )
                await _depart(store, owner, log)
            finally:
                await store.close()


class _Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What a start has tried before it opens the database."""

    cell: Cell
    clis: CliAdmission
    looks: LateLooks


async def _tried(
    stack: contextlib.AsyncExitStack,
    trial: Trial | None,
    settings: Settings,
    stages: StageWriter,
    *,
    version: str,
    clock: Clock,
    log: Logger,
) -> _Tried:
    """Return what sessions can be run in, of a trial that was begun or begins now; CLIs are admitted to it."""
    await stages.enter("isolation")
    trial = await stack.enter_async_context(trying(settings) if trial is None else contextlib.nullcontext(trial))
    cell = await choose_cell(trial, log)
    await stages.enter("clis")
    clis = admission(settings, cell=cell, version=version, clock=clock, log=log)
    await admit_clis(settings, clis)
    return _Tried(cell=cell, clis=clis, looks=LateLooks(trial, log))


def _store(settings: Settings, *, hub: Hub, waker: AnswerWaker, wake_ups: WakeUps, counts: Counting) -> Store:
    """Open the database, which was migrated just now, so that all who wait for changes of it are woken."""
    return open_store(
        settings.places.database_url,
        raised=hub.from_threads(),
        answered=waker.wake,
        requested=wake_ups.wake,
        wrote=counts.wrote,
        changed=wake_ups.note,
        announce=announce_of(settings),
        is_checked=True,
    )


def _owner(settings: Settings) -> Owner:
    return this_owner(
        node=settings.node.name,
        site=settings.node.site,
        version=__version__,
        is_alone=not settings.node.in_fleet,
        max_tier=settings.ladder.max_tier,
    )


async def _confined(context: SessionContext, settings: Settings, tried: _Tried, *, slots: int) -> SessionContext:
    """Return the context of sessions that run in the cell, apart from what the daemon runs for them."""
    cell = tried.cell
    filtered = await answered(lambda: with_filters(context.tiers, cell), "reading the tiers' kubeconfigs")
    return replace(
        context,
        secrets=tuple(settings.secrets),
        clis=replace(context.clis, refusal=tried.clis.refusal),
        confinement=replace(
            context.confinement,
            cell=cell,
            groups=await groups_of_sessions(settings, context.log),
            files_room_mb=room_in_memory(settings, cell, slots=slots, log=context.log),
        ),
        tiers=with_headers(filtered, cell),
    )


async def _approvals(context: SessionContext, settings: Settings, waker: AnswerWaker) -> ApprovalTerms:
    key = await answered(lambda: ensure_key(settings.places.state_dir), "reading the approval key")
    return replace(context.approvals, approval_key=key, waker=waker)


def _claimed(settings: Settings, *, in_foreground: bool) -> contextlib.AbstractContextManager[Callable[[], None]]:
    """Return what keeps other daemons from the state directory and the database, or from a fleet's those outside it."""
    places = settings.places
    return claim_database(
        places.database_url, places.state_dir, shared=settings.node.in_fleet, in_foreground=in_foreground
    )


def _metrics(
    settings: Settings, *, rules: EscalationRules, cli_versions: Callable[[], Iterable[str]]
) -> tuple[Metrics | None, Counting]:
    """Return the metrics that the listener shows, and what counts: nothing where there is no listener."""
    if not settings.listener.enabled:
        return None, UNCOUNTED
    from claudeops.app.metrics import metrics_of  # noqa: PLC0415 - slow to import, and else not needed

    metrics = metrics_of(settings, rules=rules, cli_versions=cli_versions)
    return metrics, metrics


def _wakers(settings: Settings, log: Logger) -> tuple[AnswerWaker, LocalDispatcher, WakeUps]:
    """Return what wakes calls that wait for an answer, who claims sessions, and everything that waits for changes."""
    waker = AnswerWaker(look_seconds=LONGEST_SECONDS)
    dispatcher = _dispatcher(settings, log)
    is_local = sqlite_file(parse_url(settings.places.database_url)) is not None
    wake_ups = WakeUps(
        file=settings.places.state_dir / WAKE_SOCKET, log=log, look_seconds=NET_SECONDS if is_local else LOOK_SECONDS
    )
    wake_ups.join(waker.wake_all, own=False)
    wake_ups.join(dispatcher.wake)
    return waker, dispatcher, wake_ups


def _dispatcher(settings: Settings, log: Logger) -> LocalDispatcher:
    """Return what wakes this node when a session is queued: here, or anywhere where several share the database."""
    if not settings.node.in_fleet:
        return LocalDispatcher(interval_seconds=LONGEST_SECONDS)
    from claudeops.dispatch.procrastinate import JobDispatcher  # noqa: PLC0415 - a daemon that is alone has no jobs

    options = driver_options(parse_url(settings.places.database_url))
    return JobDispatcher(options, site=settings.node.site, log=log, interval_seconds=LONGEST_SECONDS)


def announce_of(settings: Settings) -> Announce | None:
    """Return what announces sessions to other nodes in the transaction that queues them; ``None``: there are none."""
    if not settings.node.in_fleet:
        return None
    from claudeops.dispatch.procrastinate import announcer  # noqa: PLC0415 - as above

    return announcer()


async def take_over(
    recovery: SessionRecovery,
    owner: Owner,
    settings: Settings,
    shutdown: Shutdown,
    *,
    check_lock: Callable[[], None],
) -> None:
    """End the sessions that dead daemons left running, and let no new session get the id of an existing log.

    ``check_lock`` shows that the lock is still this daemon's: its start may have taken long. Where others share it,
    only those whose process is seen to be gone are dead by now; of the others the signs of life are waited for.

    A stop request does not cut this short unless it takes longer than a stop may: no row is left half taken over.
    """
    context = recovery.context
    async with shutdown.stoppable(
        patience_seconds=settings.timeouts.drain_seconds, grace_seconds=settings.timeouts.stop_grace_seconds
    ):
        results = settings.places.results_dir
        highest = await answered(lambda: highest_log_number(results), f"listing {results}")
        reached = await context.store.recovery.skip_ids(highest, now=context.clock.now())
        if highest > reached:
            context.log.warning(LogEvent.LOGS_NEWER, known=reached, highest=highest, path=str(results))
        if check_lock is not no_check:
            await anyio.to_thread.run_sync(check_lock)
        in_fleet = settings.node.in_fleet
        alike = {APPROVAL_KEY: context.approvals.approval_key, POLICY: settings.policy} if in_fleet else {}
        digests = {name: digest_of(value) for name, value in alike.items()}
        await recovery.take_up(
            await recovery.sweep(Outlook(owner=owner, sole=not in_fleet), starts=True, digests=digests)
        )


def start_up_stages(settings: Settings, clock: Clock) -> contextlib.AbstractAsyncContextManager[StageWriter]:
    """Return what keeps on file how far the start has come."""

    async def write(work: Callable[[], None]) -> None:
        await answered(work, "writing how far the start has come")

    return StageWriter(file=settings.places.state_dir / FILE, clock=clock, write=write).kept()


async def _depart(store: Store, owner: Owner, log: Logger) -> None:
    """Take this owner off the record. If that fails, the next daemon sees that the owner's process is gone."""
    try:
        await store.recovery.depart(owner)
    except StoreError as error:
        DatabaseTrouble(log, "departure").failed(error)
