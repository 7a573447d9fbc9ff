"""The daemon's lease: how it shows that it lives, and how it learns that it no longer owns a session or the database.

Every few seconds the owner's heartbeat and leases are renewed, and the sessions that it runs are compared with those
that the rows say it runs. A session that another daemon has taken over is stopped, because it can write nothing more.
The lock on the database is checked too: on PostgreSQL it ends with its connection. There the clocks are compared as
well, because due times of schedules are those of this machine, and a wrong clock would use up those to come.

The same look shows whether another owner is dead, or has left sessions: then these are taken over, as at the start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio
import anyio.to_thread

from claudeops.clock import Clock
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.owner import Outlook, Owner, SignOfLife, watched_since
from claudeops.domain.sessions import Session
from claudeops.engine.control import StopControl
from claudeops.engine.owners import lives
from claudeops.errors import AlreadyRunningError, StoreError
from claudeops.logs import LogEvent, Logger, log_context
from claudeops.store.recovery import Recovery
from claudeops.tasks import DatabaseTrouble, until_tick

BEAT_SECONDS: Final = 5.0


def _unheeded(*_: object) -> None:
    return


def _undigested() -> None:
    return


async def _nothing_to_do() -> None:
    return


@dataclass(kw_only=True)
class LeaseRenewal:
    """Renews the lease of one daemon."""

    recovery: Recovery
    owner: Owner
    clock: Clock
    running: Mapping[int, tuple[Session, StopControl]]  # as it is at any moment
    check_lock: Callable[[], None] | None  # blocking; raises `AlreadyRunningError` when another process has the lock
    lost: Callable[[], None]  # called once when that happens
    log: Logger
    shares_lock: bool = False  # others may have it too: that it is ours says nothing about them
    outdated: Callable[[], None] = _unheeded  # called once when a newer version has migrated the database
    digests: Callable[[], Mapping[str, str] | None] = _undigested  # of what the daemon decides by, as it is now
    compares_clocks: bool = False  # the database has a clock of its own
    locked: Callable[[], Awaitable[None]] = _nothing_to_do  # called at each sign of life while the lock is ours alone
    changed: Callable[[], None] = _unheeded  # called when ``trouble`` comes or goes
    found_dead: Callable[[Outlook], None] = _unheeded  # called while dead owners have rows, or have left sessions
    trouble: str | None = None  # why the database took no writes at the last renewal
    clock_fault: str | None = None  # what is wrong with this machine's clock
    _noted: bool = False  # the event says so, or is over
    _compared: bool = False
    _is_outdated: bool = False
    _sole: bool = False  # the lock was ours alone when it was last looked at
    _watched_since: datetime | None = None  # on the database's clock
    _last: datetime | None = None  # sign of life, likewise
    _missing: frozenset[tuple[int, int]] = field(default=frozenset())
    _beating: DatabaseTrouble = field(init=False)
    _locking: DatabaseTrouble = field(init=False)

    def __post_init__(self) -> None:
        self._beating = DatabaseTrouble(self.log, "heartbeat")
        self._locking = DatabaseTrouble(self.log, "lock")

    async def run(self) -> None:
        """Renew the lease until cancelled, or until another process has the lock."""
        while await self._hold_lock():
            if self._sole:
                await self.locked()
            await self.renew()
            await anyio.sleep(until_tick(BEAT_SECONDS, anyio.current_time()))

    async def renew(self) -> None:
        """Renew the lease once, and stop sessions that this daemon no longer owns. Raises nothing."""
        known = self._known()
        try:
            life = await self.recovery.renew_lease(self.owner, now=self.clock.now(), digests=self.digests())
            self._check_revision(life)
            await self._compare_clocks(life)
        except StoreError as error:
            self._beating.failed(error)
            self._note(str(error))
            return
        self._beating.over()
        self._note(None)
        self._look_around(life)
        missing = known - life.running
        # Only sessions that are missing twice: the first time, the end may just have been written.
        for session_id, attempt in missing & self._missing & self._known():
            session, control = self.running[session_id]
            if control.cause is None:
                why = f"session {session_id} is no longer running as attempt {attempt}."
                log_context(self.log, session).error(LogEvent.STALE_ATTEMPT, error=why)
                control.stop(StopCause.CANCELLED)
        self._missing = missing

    def holds_back(self) -> bool:
        """Tell whether no schedule may fire: the clock is wrong, or was never compared."""
        return self.compares_clocks and (not self._compared or self.clock_fault is not None)

    def _look_around(self, life: SignOfLife) -> None:
        """Report owners that are dead by now, and sessions that are left of such."""
        if life.at is None:
            return
        self._watched_since = watched_since(self._watched_since, self._last, life.at)
        self._last = life.at
        outlook = Outlook(owner=self.owner, sole=self._sole, watched=life.at - self._watched_since)
        if life.orphans or not all(lives(other, outlook) for other in life.others):
            self.found_dead(outlook)

    def _check_revision(self, life: SignOfLife) -> None:
        if life.newer_revision is not None and not self._is_outdated:
            self._is_outdated = True
            self.log.critical(LogEvent.SCHEMA_NEWER, revision=life.newer_revision)
            self.outdated()

    async def _compare_clocks(self, life: SignOfLife) -> None:
        """Say once, in log and event, that this machine's clock is wrong, and once that it is right again."""
        if not self.compares_clocks:
            return
        fault = life.clock_fault()
        if (fault is None) != (self.clock_fault is None) or not self._compared:
            self._noted = False
            if fault is not None:
                self.log.error(LogEvent.CLOCK_OFF, error=fault)
            elif self._compared:
                self.log.info(LogEvent.CLOCK_RIGHT)
        self.clock_fault, self._compared = fault, True
        if not self._noted:
            await self.recovery.note_clock(fault, self.owner, now=self.clock.now())
            self._noted = True

    def _note(self, trouble: str | None) -> None:
        before, self.trouble = self.trouble, trouble
        if trouble != before:
            self.changed()

    async def _hold_lock(self) -> bool:
        self._sole = self.check_lock is None
        if self.check_lock is None:  # it cannot be lost
            return True
        try:
            await anyio.to_thread.run_sync(self.check_lock)
        except AlreadyRunningError as error:
            self.log.critical(LogEvent.LOCK_LOST, error=str(error))
            self.lost()
            return False
        except StoreError as error:
            self._locking.failed(error)
        else:
            self._locking.over()
            self._sole = not self.shares_lock
        return True

    def _known(self) -> frozenset[tuple[int, int]]:
        return frozenset((session.id, session.attempt) for session, _ in self.running.values())
