"""The daemon's lease: how it shows that it lives, and how it learns that it no longer owns a session or the database.

Every few seconds the owner's heartbeat and leases are renewed, and the sessions that it runs are compared with those
that the rows say it runs. A session that another daemon has taken over is stopped, because it can write nothing more.
The lock on the database is checked too: on PostgreSQL it ends with its connection. There the clocks are compared as
well, because due times of schedules are those of this machine, and a wrong clock would use up those to come.

The same look shows whether another owner is dead, or has left sessions: then these are taken over, as at the start.

Where other daemons can do the same with this one, the lease is obeyed. A daemon that could not show that it lives stops
its sessions in time: when another one may take them over, none of their processes is left. Until it has shown that it
lives it claims nothing. Its own clock says when, one that goes on while the machine sleeps, from the moment in which
the last sign of life *began*; a daemon that was stopped, or slept, stops its sessions first of all.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio
import anyio.to_thread

from claudeops.clock import Clock
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.owner import OWNER_LEASE, Outlook, Owner, SignOfLife, watched_since
from claudeops.domain.sessions import Session
from claudeops.engine.control import StopControl
from claudeops.engine.owners import lives
from claudeops.errors import AlreadyRunningError, StoreError
from claudeops.logs import LogEvent, Logger, log_context
from claudeops.store.recovery import Recovery
from claudeops.tasks import DatabaseTrouble, open_tasks, until_tick

BEAT_SECONDS: Final = 5.0
_BEATS: Final = 12  # in a lease, at least

LOOK_SECONDS: Final = 1.0
"""How often a daemon with sessions looks at the clock that goes on while the machine sleeps, which wakes nobody."""

_SKEW_SECONDS: Final = 1.0
"""Between two signs of life, by which the wall clock may run away from the one that never goes back."""

STOP_SECONDS: Final = 15.0
"""How long before the end of its lease a daemon begins to stop its sessions, with the default grace of a stop."""


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
    shares_lock: bool = False  # others may have it too: it says nothing about them, and they take over from this one
    outdated: Callable[[], None] = _unheeded  # called once when a newer version has migrated the database
    job_tables: str | None = None  # the newest version of them that this one knows; None: it takes no jobs
    digests: Callable[[], Mapping[str, str] | None] = _undigested  # of what the daemon decides by, as it is now
    compares_clocks: bool = False  # the database has a clock of its own
    lease: timedelta = OWNER_LEASE  # this and the others': how long one lives after its last sign of life
    stop_seconds: float = STOP_SECONDS  # before their lease is over sessions are stopped: the grace of that, and more
    locked: Callable[[], Awaitable[None]] = _nothing_to_do  # called at each sign of life while the lock is ours alone
    changed: Callable[[], None] = _unheeded  # called when ``trouble`` comes or goes
    found_dead: Callable[[Outlook], None] = _unheeded  # called while dead owners have rows, or have left sessions
    leapt: Callable[[], None] = _unheeded  # called when the wall clock was set, or the machine has slept
    trouble: str | None = None  # why the database took no writes at the last renewal
    clock_fault: str | None = None  # what is wrong with this machine's clock
    _skew: float | None = None  # seconds from the clock that never goes back to the wall clock, at the last sign
    _noted: bool = False  # the event says so, or is over
    _compared: bool = False
    _is_outdated: bool = False
    _sole: bool = False  # the lock was ours alone when it was last looked at
    _watched_since: datetime | None = None  # on the database's clock
    _last: datetime | None = None  # sign of life, likewise
    _missing: frozenset[tuple[int, int]] = field(default=frozenset())
    _stop_at: float = -math.inf  # seconds since boot: when the sessions are stopped unless it shows that it lives
    _beating: DatabaseTrouble = field(init=False)
    _locking: DatabaseTrouble = field(init=False)

    def __post_init__(self) -> None:
        self._beating = DatabaseTrouble(self.log, "heartbeat")
        self._locking = DatabaseTrouble(self.log, "lock")

    async def run(self) -> None:
        """Renew the lease until cancelled, or until another process has the lock."""
        async with open_tasks() as tasks:
            if self.shares_lock:
                tasks.start_soon(self._stop_in_time)
            while await self._hold_lock():
                if self._sole:
                    await self.locked()
                await self.renew()
                await anyio.sleep(until_tick(self._beat_seconds, anyio.current_time()))
            tasks.cancel_scope.cancel()

    async def renew(self) -> None:
        """Renew the lease once, and stop sessions that this daemon no longer owns. Raises nothing."""
        self._stop_overdue()  # first of all: the machine may have slept
        self._watch_clock()
        known, began = self._known(), self.clock.since_boot()
        try:
            life = await self.recovery.renew_lease(self.owner, now=self.clock.now(), digests=self.digests())
            self._check_revision(life)
            await self._compare_clocks(life)
        except StoreError as error:
            self._beating.failed(error)
            self._note(str(error))
            return
        self._beating.over()
        self._stop_at = began + self.lease.total_seconds() - self.stop_seconds
        self._stop_overdue()  # it may have taken long
        self._note(None)
        if life.is_back:
            self.log.warning(LogEvent.NODE_BACK, node=self.owner.node)
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

    @property
    def _beat_seconds(self) -> float:
        return min(BEAT_SECONDS, self.lease.total_seconds() / _BEATS)

    def may_claim(self) -> bool:
        """Return whether this daemon may take a session: no other one may take over from it, and its clock is right."""
        return not self.shares_lock or not (self._is_overdue() or self.holds_back())

    def holds_back(self) -> bool:
        """Tell whether no schedule may fire: the clock is wrong, or was never compared."""
        return self.compares_clocks and (not self._compared or self.clock_fault is not None)

    async def _stop_in_time(self) -> None:
        """Stop the sessions when the lease demands it, until cancelled."""
        while True:
            self._stop_overdue()
            left = self._stop_at - self.clock.since_boot()
            pause = left if left > 0 else self._beat_seconds
            await anyio.sleep(min(pause, LOOK_SECONDS) if self.running else pause)

    def _stop_overdue(self) -> None:
        if not self.shares_lock or not self._is_overdue():
            return
        stopped = [session.id for session, control in self.running.values() if control.cause is None]
        for session_id in stopped:
            self.running[session_id][1].stop(StopCause.LEASE_OVER)
        if stopped:
            self.log.error(LogEvent.LEASE_OVER, sessions=stopped)

    def _is_overdue(self) -> bool:
        return self.clock.since_boot() >= self._stop_at

    def _watch_clock(self) -> None:
        """Report a leap of the wall clock: what became due by it is waited for by a clock that has not leapt."""
        before, self._skew = self._skew, self.clock.now().timestamp() - self.clock.monotonic()
        if before is not None and abs(self._skew - before) > _SKEW_SECONDS:
            self.leapt()

    def _look_around(self, life: SignOfLife) -> None:
        """Report owners that are dead by now, and sessions that are left of such."""
        if life.at is None:
            return
        self._watched_since = watched_since(self._watched_since, self._last, life.at, lease=self.lease)
        self._last = life.at
        watched = life.at - self._watched_since
        outlook = Outlook(owner=self.owner, sole=self._sole, watched=watched, lease=self.lease)
        if life.orphans or not all(lives(other, outlook) for other in life.others):
            self.found_dead(outlook)

    def _check_revision(self, life: SignOfLife) -> None:
        newer = life.newer_revision
        if newer is None and self.job_tables is not None and (life.job_tables or "") > self.job_tables:
            newer = life.job_tables
        if newer is not None and not self._is_outdated:
            self._is_outdated = True
            self.log.critical(LogEvent.SCHEMA_NEWER, revision=newer)
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
