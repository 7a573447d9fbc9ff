"""One chain in the foreground: run in this process, or queued for the daemon that owns the database and followed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.to_thread

from claudeops.app.daemon import healthcheck_ping, run_housekeeping
from claudeops.app.node import Node
from claudeops.app.wiring import escalation_rules
from claudeops.domain.model import NewSession, Session, Status, Suppressed
from claudeops.engine.control import RunningSessions
from claudeops.engine.meter.availability import start_refusal
from claudeops.engine.ports import Store
from claudeops.engine.system import Shutdown, SystemClock
from claudeops.errors import AlreadyRunningError
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.store.locks import claim_watch
from claudeops.store.store import open_store
from claudeops.tasks import open_tasks

FOLLOW_SECONDS: Final = 0.2
"""The time between two polls of a chain."""

LAST_PING_SECONDS: Final = 15.0
"""How long a foreground chain waits at its end for the last ping to be delivered."""

HELD_LOOKS: Final = 10
"""Consecutive polls that must see a hold before the follower gives up: a trial session needs a moment to start."""


async def run_chain(
    node: Node, new: NewSession, shutdown: Shutdown, told: Callable[[Session], None]
) -> Sequence[Session] | Suppressed:
    """Queue a chain, run it to its end and return its sessions; a stop request cancels the running session.

    ``told`` is called with each session that has ended. Raises `StoppedError` when a stop was requested before anything
    was queued.
    """
    shutdown.check()
    now = node.clock.now()
    root = await start_refusal(node.store.holds, now) or await node.store.queue.enqueue(
        new, rules=node.context.current_rules(), now=now
    )
    if isinstance(root, Suppressed):
        node.log.warning(LogEvent.SESSION_SUPPRESSED, reason=root.reason.value)
        return root
    running, ping = RunningSessions(), healthcheck_ping(node)
    supervisor = node.supervisor(running=running, listeners=[] if ping is None else [ping], chain=root.id)

    async def stop_when_asked() -> None:
        await shutdown.requested.wait()
        await supervisor.drain(0)

    async def unasked() -> bool:
        return not shutdown.requested.is_set()

    async with open_tasks() as tasks:
        tasks.start_soon(stop_when_asked)
        await tasks.start(run_housekeeping, node, running, ping)
        if node.context.availability is not None:
            tasks.start_soon(node.context.availability.run)
        async with open_tasks() as supervising:
            supervising.start_soon(supervisor.run)
            sessions = await follow(node.store, root.id, told=told, served=unasked)
            await supervisor.drain(0)
        if ping is not None:
            with anyio.move_on_after(LAST_PING_SECONDS):
                await ping.settled()
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

    ``queued`` is called with the first session, ``told`` with each session that has ended. Raises `AlreadyRunningError`
    when the daemon goes away before the chain has ended; what is queued stays queued.
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
    """Follow a chain until all its sessions have ended, or nobody serves it any more; return its sessions.

    The rows are polled every `FOLLOW_SECONDS`, because the daemon may be another process. When nothing of the chain
    runs and a hold keeps the rest in the queue, the chain counts as not served: a hold may last for days.
    """
    known: set[int] = set()
    sessions: Sequence[Session] = ()
    polls_held = 0
    while polls_held < HELD_LOOKS:
        being_served = await served()  # asked before the poll, so that the poll sees the last end
        sessions = await store.records.chain(root_id)
        for session in sessions:
            if session.status is Status.ENDED and session.id not in known:
                known.add(session.id)
                told(session)
        if len(known) == len(sessions) or not being_served:
            break
        running = any(session.status is Status.RUNNING for session in sessions)
        polls_held = 0 if running or not await store.holds.standing(SystemClock().now()) else polls_held + 1
        await anyio.sleep(FOLLOW_SECONDS)
    return sessions
