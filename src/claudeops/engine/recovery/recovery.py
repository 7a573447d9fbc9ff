"""Recovery: the sessions of dead daemons end by their logs or as lost, and what follows from that is queued.

A log whose result line is complete becomes the end of its session, in the same way as if the daemon had lived. Any
other session is lost. Its complete log may turn up later (a disk was not mounted): every start and every hour look for
it, and then backfill its row once: report and cost, but no decision.

The same happens at the start of a daemon and later, as soon as its sign of life shows that another owner is dead. A log
that is on another machine is left for a while to the daemons that have it.

Each session is recovered by itself: a log that cannot be read, or on which our own reader fails, affects its own
session only, and never the start of the daemon.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import anyio
import msgspec

from claudeops.domain.chains.backfill import Backfilled, BackfillRejected, RejectionReason
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.owner import LOG_GRACE, Outlook
from claudeops.domain.sessions import Ending, Session
from claudeops.engine.cell.cell import workspace_places
from claudeops.engine.cell.workspace import Workspace, workspace_name
from claudeops.engine.live.hub import session_ended, session_lost
from claudeops.engine.owners import lives
from claudeops.engine.recovery.replay import READ_SECONDS, LogRead, read_log
from claudeops.engine.session.completion import commit_result, log_result, until_written
from claudeops.engine.session.context import SessionContext
from claudeops.engine.session.files import read_handoff
from claudeops.engine.session_log.reader import packed_path
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError, StoreError
from claudeops.formats.report.markers import Handoff, HandoffError
from claudeops.logs import LogEvent, Logger, log_context
from claudeops.store.recovery import Orphan
from claudeops.tasks import DatabaseTrouble, Threads, Waiter

LOOK_SECONDS: Final = 3600.0
PATIENCE_SECONDS: Final = 300.0
"""How long recovering one session may take, its log and the database together; reading the log must take less."""

RECENT: Final = timedelta(days=1)
"""For which logs are looked for at a start; none of that age is removed for it."""

_STATE_SECONDS: Final = 5.0
_UNREADABLE: Final = frozenset({RejectionReason.LOG_UNREADABLE, RejectionReason.LOG_UNDIGESTED})
"""Reasons that a person should look at; a log that is missing, empty or half written is what a crash leaves."""

_LOG_NAME: Final = re.compile(r"session-(\d{1,18})\.")


class SessionRecovery(msgspec.Struct, kw_only=True):
    """Recovers the sessions of dead daemons. One per daemon."""

    context: SessionContext
    read_seconds: float = READ_SECONDS  # for one log
    log_grace: timedelta = LOG_GRACE  # how long a session waits for the daemon that has its log
    _seen: dict[int, tuple[int, int]] = msgspec.field(
        default_factory=dict
    )  # size and time of each log when it was last read
    _looks: Threads = msgspec.field(default_factory=lambda: Threads(most=1))
    _outlook: Outlook | None = None  # of the sign of life that showed dead owners
    _taken: list[Session] = msgspec.field(default_factory=list)  # over, and not yet ended
    _settling: anyio.Event = msgspec.field(default_factory=anyio.Event)
    _settled: anyio.Event = msgspec.field(default_factory=anyio.Event)
    _woken: Waiter = msgspec.field(default_factory=lambda: Waiter(longest_seconds=math.inf))

    def wake(self, outlook: Outlook) -> None:
        """Have what dead owners left taken over soon, without waiting for it."""
        self._outlook = outlook
        self._woken.wake()

    async def settle(self) -> None:
        """Take nothing more over, and return when all that was taken over has ended: before `run` is cancelled."""
        self._settling.set()
        self._woken.wake()
        await self._settled.wait()

    def unsettled(self) -> Sequence[int]:
        """Return the ids of the sessions that were taken over and have not ended."""
        return [session.id for session in self._taken]

    async def sweep(
        self, outlook: Outlook, *, starts: bool = False, digests: Mapping[str, str] = MappingProxyType({})
    ) -> Sequence[Session]:
        """Take over what dead owners left running; ``starts``: this daemon begins. End it by `take_up`.

        ``digests`` are of what it must have as the others that live. Raises `ConfigurationError` where it has not.
        """
        recovery, now, alive = self.context.store.recovery, self.context.clock.now(), partial(lives, outlook=outlook)
        spared = frozenset[int]()
        if not outlook.sole:
            dead, left = await recovery.left_behind(outlook.owner, now=now, alive=alive)
            spared = frozenset([orphan.session.id for orphan in left if await self._waits(orphan, outlook)])
            if not starts and not dead and len(spared) == len(left):
                return ()
        found = await recovery.reconcile(
            outlook.owner, now=now, alive=alive, starts=starts, spared=spared, digests=digests
        )
        for node in found.dead:
            self.context.log.warning(LogEvent.NODE_DEAD, node=node)
        if found.is_back:
            self.context.log.info(LogEvent.NODE_BACK, node=outlook.owner.node)
        if found.sessions:
            self.context.log.warning(LogEvent.SESSIONS_RECONCILED, sessions=[session.id for session in found.sessions])
        return found.sessions

    async def _waits(self, orphan: Orphan, outlook: Outlook) -> bool:
        """Return whether a session is left to a daemon that may have its log."""
        was_here = orphan.owner is not None and outlook.owner.sees(orphan.owner)
        return not was_here and orphan.silent < self.log_grace and await self._state(orphan.session) is None

    async def take_up(self, orphans: Iterable[Session]) -> None:
        """End every session that was taken over. Raises `DatabaseUnavailableError`; the next start then goes on."""
        for session in orphans:
            with anyio.move_on_after(PATIENCE_SECONDS) as patience:
                try:
                    await self._take_up(session)
                except DatabaseUnavailableError:
                    raise
                except StoreError as error:  # the row stays as it is, for the next start to try again
                    log_context(self.context.log, session).critical(LogEvent.SESSION_END_REFUSED, error=str(error))
            if patience.cancelled_caught:
                raise DatabaseUnavailableError(
                    f"session {session.id} of a dead daemon could not be ended within {PATIENCE_SECONDS:g} s."
                )

    async def give_up(self, session: Session, ending: Ending) -> None:
        """End a session of this daemon as lost: it was stopped, because another daemon may have taken it over.

        What follows is the same as after a take-over, whoever writes it first. Waits for the database. Raises nothing.
        """
        log = log_context(self.context.log, session)
        try:
            for state in ending.unbooked:
                await until_written(partial(self.context.store.spending.book_model_call, state), log=log)
            await until_written(partial(self._mark_lost, session, ending, log), log=log)
            await until_written(partial(self._backfill, session, ending), log=log)
        except StaleAttemptError as error:
            log.error(LogEvent.STALE_ATTEMPT, error=str(error))
        except StoreError as error:
            log.critical(LogEvent.SESSION_END_REFUSED, error=str(error))

    async def run(self) -> None:
        """Take over when woken, and look for the logs of lost sessions, now and every hour, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep_when_woken)
            trouble = DatabaseTrouble(self.context.log, "recovery")
            is_first = True
            while True:
                pause = LOOK_SECONDS
                try:
                    if is_first:
                        await self.look_for_logs()
                        is_first = False
                    await self.look_again()
                except StoreError as error:
                    pause = trouble.failed(error)
                else:
                    trouble.over()
                await anyio.sleep(pause)

    async def _sweep_when_woken(self) -> None:
        """Take over when woken. What was taken over and could not be ended is tried again until it is."""
        trouble = DatabaseTrouble(self.context.log, "takeover")
        taken = self._taken
        while taken or not self._settling.is_set():
            try:
                if self._outlook is not None and not self._settling.is_set():
                    taken += await self.sweep(self._outlook)
                while taken:
                    await self.take_up(taken[:1])
                    taken.pop(0)
            except StoreError as error:
                await self._rest(trouble.failed(error))
            else:
                trouble.over()
            self._outlook = None  # by now it is old, and the next sign of life brings another one
            if not taken and not self._settling.is_set():
                await self._woken.pause()
        self._settled.set()

    async def _rest(self, seconds: float) -> None:
        if self._taken and self._settling.is_set():
            await anyio.sleep(seconds)
            return
        with anyio.move_on_after(seconds):
            await self._settling.wait()

    async def look_for_logs(self) -> None:
        """Log which of the latest sessions of this machine have no log: their directory is older than the database.

        Raises `StoreError`.
        """
        context = self.context
        since = context.clock.now() - RECENT
        latest = await context.store.recovery.latest_logs(since=since)
        own = [session for session in latest if context.node and session.log_node == context.node]

        def look() -> list[Session]:
            logs = [(session, Path(session.log_path or "")) for session in own]
            return [session for session, log in logs if not log.exists() and not packed_path(log).exists()]

        try:
            missing = await self._looks.run(look, seconds=_STATE_SECONDS, what="a look for logs") if own else []
        except OSError:
            return  # their disk does not answer, which others report
        if missing:
            context.log.warning(LogEvent.LOGS_MISSING, missing=len(missing), session_id=missing[0].id)

    async def look_again(self) -> None:
        """Backfill the lost sessions whose complete log is there by now. Raises `StoreError`."""
        for session in await self.context.store.recovery.unrecovered_sessions():
            state = await self._state(session)
            if state is None or state == self._seen.get(session.id):
                continue
            self._seen[session.id] = state
            read = await read_log(session, self.context, seconds=self.read_seconds)
            if not isinstance(read, LogRead) or not read.complete:
                continue
            await self._backfill(session, read.ending)

    async def _state(self, session: Session) -> tuple[int, int] | None:
        """Return size (bytes) and time (nanoseconds) of a session's log; ``None`` if it cannot be found now."""

        def look() -> tuple[int, int]:
            found = Path(session.log_path or "").stat()
            return found.st_size, found.st_mtime_ns

        try:
            return await self._looks.run(look, seconds=_STATE_SECONDS, what="a look at a log")
        except OSError:
            return None

    async def _backfill(self, session: Session, ending: Ending) -> None:
        log = log_context(self.context.log, session)
        try:
            backfilled = await self.context.store.recovery.backfill(ending)
        except DatabaseUnavailableError:
            raise
        except StoreError as error:  # the logs of other sessions are still looked for
            log.error(LogEvent.SESSION_END_REFUSED, error=str(error))
            return
        if isinstance(backfilled, Backfilled) and backfilled.parts:
            parts = sorted(part.value for part in backfilled.parts)
            log.info(LogEvent.SESSION_AMENDED, parts=parts, path=session.log_path)

    async def _take_up(self, session: Session) -> None:
        log = log_context(self.context.log, session)
        read = await read_log(session, self.context, handoff=await self._handoff(session), seconds=self.read_seconds)
        if isinstance(read, LogRead) and read.complete:
            finished = await commit_result(
                read.ending, queue=self.context.store.queue, rules=self.context.current_rules(), log=log
            )
            if finished is not None:
                log.info(LogEvent.SESSION_RECOVERED, path=session.log_path, frames=read.frames)
                log_result(read.ending, finished, log)
                self.context.hub.publish(session_ended(session, read.ending, finished))
                self.context.counts.ended(session, read.ending, finished)
                return
        # It is ended already where the database was away, in a try before, between this end and what follows.
        with contextlib.suppress(StaleAttemptError):
            await self._mark_lost(session, read, log)
        if isinstance(read, LogRead):
            await self._backfill(session, read.ending)  # how far it came; an incomplete log has no report and no cost

    async def _handoff(self, session: Session) -> Handoff | HandoffError | None:
        """Read what a session left for the next tier, before its workspace is removed with the writing of its end."""
        context = self.context
        if not context.completion.legacy_markers:
            return None
        for directory in workspace_places(context.sessions_dir):
            found = await read_handoff(
                Workspace(directory / workspace_name(session.id)).state_dir,
                current_tier=session.tier,
                max_tier=context.rules.max_tier,
                redactor=context.redactor,
            )
            if found is not None:
                return found
        return None

    async def _mark_lost(self, session: Session, read: LogRead | BackfillRejected | Ending, log: Logger) -> None:
        context = self.context
        known = read.ending if isinstance(read, LogRead) else read if isinstance(read, Ending) else None
        lost = await context.store.recovery.mark_lost(
            session,
            rules=context.current_rules(),
            now=context.clock.now(),
            tool_ends=known.tool_ends if known else (),
            events=_unread_events(session, read) if isinstance(read, BackfillRejected) else (),
        )
        log.warning(
            LogEvent.SESSION_LOST,
            path=session.log_path,
            frames=read.frames if isinstance(read, LogRead) else 0 if known is None else None,
            refused=read.message if isinstance(read, BackfillRejected) else None,
        )
        context.hub.publish(session_lost(lost, context.clock.now()))
        context.counts.lost(lost)


def highest_log_number(results_dir: Path) -> int:
    """Return the highest session id among the logs in a directory, packed ones included; 0 if there are none."""
    try:
        names = [entry.name for entry in results_dir.iterdir()]
    except OSError:
        return 0
    return max((int(found[1]) for name in names if (found := _LOG_NAME.match(name))), default=0)


def free_log_path(results_dir: Path, session_id: int) -> Path:
    """Return the path for a session's log, which is never that of another log.

    Only after the restore of a database may a queued session's log exist already, from the time after the backup.
    """
    stem = f"session-{session_id:06d}"
    for number in range(1, 1000):
        name = stem if number == 1 else f"{stem}.{number}"
        if not any((results_dir / f"{name}{suffix}").exists() for suffix in (".ndjson", ".ndjson.zst", ".stderr")):
            return results_dir / f"{name}.ndjson"
    return results_dir / f"{stem}.ndjson"  # opened exclusively, so the session ends with that error


def _unread_events(session: Session, read: BackfillRejected) -> tuple[NewEvent, ...]:
    """Return the event about a log that is there but cannot be read; none for any other reason."""
    if read.reason not in _UNREADABLE:
        return ()
    message = f"{read.message} The session counts as lost; the file stays where it is."
    return (NewEvent(level=EventLevel.WARNING, message=message, fingerprint=f"log_unread {session.id}"),)
