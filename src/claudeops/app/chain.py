"""One chain in the foreground: run in this process, or queued for the daemon that owns the database and followed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from claudeops.app.daemon import command_runner, disk_floor, healthcheck_ping, lease_renewal, run_housekeeping
from claudeops.app.limits import escalation_rules
from claudeops.app.node import Node, announce_of, open_node
from claudeops.clock import Clock
from claudeops.domain.sessions import NewSession, Session, Status, Suppressed, Trigger, log_elsewhere
from claudeops.engine.control import RunningSessions
from claudeops.engine.session_log.reader import is_readable
from claudeops.engine.system import Shutdown
from claudeops.errors import AlreadyRunningError, ErrorKind, ForegroundRunningError, MissingInputError, NoDaemonError
from claudeops.harness import HARNESSES
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.store import queries
from claudeops.store.acts.sessions import SITES, queue_unless_held, site_fault
from claudeops.store.database import waking
from claudeops.store.locks import claim_watch, is_served
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from claudeops.tasks import open_tasks

FOLLOW_SECONDS: Final = 0.2
"""The time between two polls of a chain."""

LAST_PING_SECONDS: Final = 15.0
"""How long a foreground chain waits at its end for the last ping to be delivered."""

WAIT_SECONDS: Final = 0.5
"""The time between two tries to have a database that a chain in the foreground of another process has."""

HELD_LOOKS: Final = 10
"""Consecutive polls that must see a hold before the follower gives up: a trial session needs a moment to start."""


@contextlib.asynccontextmanager
async def open_foreground(settings: Settings, *, log: Logger, shutdown: Shutdown) -> AsyncIterator[Node]:
    """Open a node of its own for chains in the foreground; one of a fleet has no role.

    Waits for the end of another one in the foreground, which would not run what is queued for it. Raises
    `AlreadyRunningError` where a daemon runs, which is to have what is queued, and what `open_node` raises.
    """
    url, node, waits = settings.places.database_url, None, False
    async with contextlib.AsyncExitStack() as stack:
        while node is None:
            if settings.node.in_fleet and await anyio.to_thread.run_sync(is_served, url):
                raise AlreadyRunningError("a claudeops daemon works on this database, and runs what is queued.")
            opened = open_node(settings, log=log, shutdown=shutdown, in_foreground=True)
            try:
                node = await stack.enter_async_context(opened)
            except ForegroundRunningError as error:
                if not waits:
                    log.warning(LogEvent.CHAIN_WAITS, error=str(error))
                waits = True
                await anyio.sleep(WAIT_SECONDS)
        yield node


async def run_chain(
    node: Node,
    new: NewSession,
    shutdown: Shutdown,
    told: Callable[[Session], None],
    *,
    queued: Callable[[Session], None] = lambda _: None,
) -> Sequence[Session] | Suppressed:
    """Queue a chain, run it to its end and return its sessions; a stop request cancels the running session.

    Meanwhile the node shows that it lives, has no role, and stops when another one has the database.

    ``queued`` is called with the first session, ``told`` with each session that has ended. Raises `StoppedError` when a
    stop was requested before anything was queued.
    """
    shutdown.check()
    now = node.clock.now()
    new = await _served(node.store, new)
    root = await queue_unless_held(node.store, new, rules=node.context.current_rules(), now=now)
    if isinstance(root, Suppressed):
        node.log.warning(LogEvent.SESSION_SUPPRESSED, reason=root.reason.value)
        return root
    queued(root)
    running, ping = RunningSessions(), healthcheck_ping(node)
    floor, lease = disk_floor(node, running), lease_renewal(node, running, shutdown)
    listeners = [floor] if ping is None else [floor, ping]
    supervisor = node.supervisor(
        running=running, listeners=listeners, may_claim=lease.may_claim, chain=root.root_session_id
    )

    async def stop_when_asked() -> None:
        await shutdown.requested.wait()
        await supervisor.drain(0)

    async def unasked() -> bool:
        return not shutdown.requested.is_set()

    async with open_tasks() as tasks:
        tasks.start_soon(stop_when_asked)
        await tasks.start(run_housekeeping, node, running, floor, ping)
        tasks.start_soon(command_runner(node, running).run)
        tasks.start_soon(lease.run)
        if node.context.availability is not None:
            tasks.start_soon(node.context.availability.run)
        await node.prepare_sessions()
        async with open_tasks() as supervising:
            supervising.start_soon(supervisor.run)
            sessions = await follow(node.store, root.root_session_id, since=root.id, told=told, served=unasked)
            await supervisor.drain(0)
        if ping is not None:
            with anyio.move_on_after(LAST_PING_SECONDS):
                await ping.settled()
        tasks.cancel_scope.cancel()
    ended = await node.store.records.chain(root.root_session_id)
    return [session for session in ended if session.id >= root.id] or sessions


async def run_chain_beside(
    settings: Settings,
    new: NewSession,
    told: Callable[[Session], None],
    *,
    queued: Callable[[Session], None],
    log: Logger,
) -> Sequence[Session] | Suppressed:
    """Queue a chain for the daemon that owns the database, and follow it to its end.

    ``queued`` is called with the first session, ``told`` with each session that has ended. Raises `AlreadyRunningError`
    when the daemon goes away before the chain has ended; what is queued stays queued.
    """
    store = open_store(
        settings.places.database_url, changed=waking(settings.places.state_dir), announce=announce_of(settings)
    )
    with claim_watch(settings.places.database_url, chains=False) as look:

        async def served() -> bool:
            return await anyio.to_thread.run_sync(look)

        try:
            now = Clock().now()
            new = await _served(store, new)
            root = await queue_unless_held(store, new, rules=escalation_rules(settings), now=now)
            if isinstance(root, Suppressed):
                log.warning(LogEvent.SESSION_SUPPRESSED, reason=root.reason.value)
                return root
            log.info(LogEvent.SESSION_QUEUED, session_id=root.id)
            queued(root)
            sessions = await follow(store, root.root_session_id, since=root.id, told=told, served=served)
        finally:
            await store.close()
        if any(session.status is not Status.ENDED for session in sessions) and not await served():
            raise AlreadyRunningError(
                f"The daemon stopped before session {sessions[-1].id} had ended: "
                "it stays queued and runs when the daemon is started again."
            )
    return sessions


async def resumed_session(settings: Settings, session_id: int, prompt_text: str | None) -> NewSession:
    """Return a session that goes on with the conversation of an earlier one, in its chain.

    A daemon on the machine that has the log goes on with it; where that machine has none, the log has to be here.

    Raises `MissingInputError` with the operation ``resume`` when that cannot be gone on with, and `StoreError`.
    """
    store = open_store(settings.places.database_url)
    try:
        found = await store.records.session(session_id)
        places = await store.database.read(queries.places)
    finally:
        await store.close()
    why = None
    if found is None:
        why = f"There is no session {session_id}."
    elif found.status is not Status.ENDED:
        why = f"Session {session_id} has not ended: wait for its end, or stop it."
    elif not HARNESSES[found.harness].capabilities.resumes:
        why = f"Session {session_id} ran on {found.harness}, which cannot go on with an earlier conversation."
    elif found.log_node not in {place.node for place in places} - {settings.node.name} and not (
        await anyio.to_thread.run_sync(is_readable, Path(found.log_path or ""))
    ):
        gone = f"The log of session {session_id} is gone, and its conversation with it."
        why = log_elsewhere(found, settings.node.name) or gone
    if why is not None or found is None:
        raise MissingInputError(
            why or "",
            kind=ErrorKind.SESSION,
            operation="resume",
            target=str(session_id),
            hint="Begin anew with `claudeops bootstrap --prompt`, and say in the prompt what there is to know.",
        )
    return NewSession(
        tier=found.tier,
        trigger=Trigger.MANUAL,
        model=found.model,
        harness=found.harness,
        prompt_text=prompt_text,
        parent_session_id=found.id,
        site=found.site,
        for_node=found.log_node,
    )


async def queue_for_daemon(settings: Settings, new: NewSession) -> Session | Suppressed:
    """Queue a chain for the daemon that owns the database, and leave it to it.

    Raises `NoDaemonError`, with nothing queued, where none runs.
    """
    if not await anyio.to_thread.run_sync(is_served, settings.places.database_url):
        raise NoDaemonError("No daemon runs on this database, so nothing was queued.", target="daemon")
    store = open_store(
        settings.places.database_url, changed=waking(settings.places.state_dir), announce=announce_of(settings)
    )
    try:
        new = await _served(store, new)
        return await queue_unless_held(store, new, rules=escalation_rules(settings), now=Clock().now())
    finally:
        await store.close()


async def _served(store: Store, new: NewSession) -> NewSession:
    """Return a session that a daemon may claim; a machine without a daemon is not waited for.

    Raises `NoDaemonError`, with nothing queued, where none of its site runs.
    """
    if (why := await site_fault(store, new)) is not None:
        raise NoDaemonError(why, target=new.site, hint=SITES)
    places = await store.database.read(queries.places)
    return new if new.for_node in {place.node for place in places} else replace(new, for_node=None)


async def follow(
    store: Store,
    root_id: int,
    *,
    since: int = 0,
    told: Callable[[Session], None],
    served: Callable[[], Awaitable[bool]],
) -> Sequence[Session]:
    """Follow a chain until all its sessions have ended, or nobody serves it any more; return its sessions.

    ``since`` is the first session that counts: a chain that is resumed has earlier ones.

    The rows are polled every `FOLLOW_SECONDS`, because the daemon may be another process. When nothing of the chain
    runs and a hold keeps the rest in the queue, the chain counts as not served: a hold may last for days.
    """
    known: set[int] = set()
    sessions: Sequence[Session] = ()
    polls_held = 0
    while polls_held < HELD_LOOKS:
        being_served = await served()  # asked before the poll, so that the poll sees the last end
        sessions = [session for session in await store.records.chain(root_id) if session.id >= since]
        for session in sessions:
            if session.status is Status.ENDED and session.id not in known:
                known.add(session.id)
                told(session)
        if len(known) == len(sessions) or not being_served:
            break
        running = any(session.status is Status.RUNNING for session in sessions)
        polls_held = 0 if running or not await store.holds.standing(Clock().now()) else polls_held + 1
        await anyio.sleep(FOLLOW_SECONDS)
    return sessions
