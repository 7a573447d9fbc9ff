"""Housekeeping while the daemon runs, and the watch over free disk space.

`Housekeeping` packs old logs, later removes them, removes old rows, and truncates the database's own log. It works by
its own schedule, bounded, and off the event loop: files in one thread, the database a little at a time. A failure costs
a log line and is tried again in the next round.

`DiskFloor` watches the free space of the disks that are written to, also while sessions run. Below the floor no session
is started on this machine. Running sessions go on, because what fills the disk need not be one of them; below half of
the floor they are stopped politely, and below a quarter killed, before the machine is full.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from claudeops.clock import Clock
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.retention import MOST_ROWS, Aged, Cutoffs, cutoffs, next_rows
from claudeops.domain.sessions import Session, Status
from claudeops.engine.ports import SessionListener
from claudeops.engine.session_log import reader
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.holds import Holds
from claudeops.store.retention import Retention
from claudeops.store.sessions import Records
from claudeops.tasks import DatabaseTrouble, Threads, check_abandoned, until_tick

T = TypeVar("T")

FIRST_SECONDS: Final = 60.0
"""From the start to the first round: what was missed while no daemon ran is done soon, but not at once."""

EVERY_SECONDS: Final = 3600.0
ROUND_SECONDS: Final = 900.0
"""How long a round may take; the next one goes on where it was cut off."""

ROWS_SECONDS: Final = 600.0
"""How much of a round may go to removing rows, one short transaction after the other."""

PACK_AFTER: Final = timedelta(hours=1)
"""How long a log stays plain after its session's end: people look at recent ones, and a late backfill reads them."""

_LONGEST_PAUSE_SECONDS: Final = 0.25  # between two steps
_LOG_NAME: Final = re.compile(r"session-(\d{6,18})(\.\d+)?\.ndjson(\.zst)?")

LOOK_SECONDS: Final = 1.0
"""Between two looks while a session runs: a disk is filled by hundreds of MiB a second."""

IDLE_SECONDS: Final = 5.0
"""The same while none runs."""

STOP: Final = 0.5
KILL: Final = 0.25
"""The parts of the floor below which running sessions are stopped, and killed."""

_ANSWER_SECONDS: Final = 10.0  # a network disk that does not answer counts as neither full nor free
_ENOUGH: Final = 1.1  # times the floor: space that hovers at the floor must not start and stop sessions by the minute
_MIB: Final = 1024 * 1024


class Housekeeping(msgspec.Struct, frozen=True, kw_only=True):
    """The housekeeping of one node."""

    database: Retention
    records: Records
    clock: Clock
    results_dir: Path
    retention_days: int
    running: Callable[[], Collection[int]]  # ids of the sessions that run here
    log: Logger
    removes_rows: Callable[[], bool] = lambda: True  # False: another node does
    _one_thread: Threads = msgspec.field(default_factory=lambda: Threads(most=1))

    async def run(self) -> None:
        """Do a round every hour until cancelled."""
        await anyio.sleep(FIRST_SECONDS)
        while True:
            with anyio.move_on_after(ROUND_SECONDS):
                await self.round()
            await anyio.sleep(EVERY_SECONDS)

    async def round(self) -> Counter[str]:
        """Do everything once; return how much was done, by kind."""
        done: Counter[str] = Counter()
        now = self.clock.now()
        try:
            await self._logs(now, done)
            if self.removes_rows():
                await self._rows(now, done)
            if not await self.database.checkpoint():
                done["checkpoints_missed"] += 1
        except StoreError as error:
            self.log.error(LogEvent.UPKEEP_FAILED, error=str(error))
        done = Counter({what: count for what, count in done.items() if count})
        if done:
            self.log.info(LogEvent.UPKEEP_DONE, **done)
        return done

    # --- logs -------------------------------------------------------------------------------------------

    async def _logs(self, now: datetime, done: Counter[str]) -> None:
        too_old = cutoffs(now, retention_days=self.retention_days).details
        for name in await self._names():
            session = await self._owner(name)
            if session is None or session.ended_at is None:
                continue
            log = Path(session.log_path or "")
            if session.ended_at < too_old:
                await self._remove(log, done)
            elif session.ended_at < now - PACK_AFTER and not name.endswith(reader.PACKED):
                await self._pack(log, done)

    async def _names(self) -> list[str]:
        def found() -> list[str]:
            return sorted(path.name for path in self.results_dir.iterdir() if _LOG_NAME.fullmatch(path.name))

        try:
            return await self._in_thread(found)
        except OSError as error:
            self.log.error(LogEvent.UPKEEP_FAILED, path=str(self.results_dir), error=str(error))
            return []

    async def _owner(self, name: str) -> Session | None:
        """Return the ended session that a log belongs to; a log of an unknown session is not touched."""
        session_id = log_id(name)
        if session_id is None or session_id in self.running():
            return None
        session = await self.records.session(session_id)
        if session is None or session.status is not Status.ENDED or session.log_path is None:
            return None
        plain = name.removesuffix(reader.PACKED)
        return session if Path(session.log_path) == self.results_dir / plain else None

    async def _remove(self, log: Path, done: Counter[str]) -> None:
        try:
            done["logs_removed"] += await self._in_thread(lambda: reader.remove(log))
        except OSError as error:
            self.log.error(LogEvent.UPKEEP_FAILED, path=str(log), error=str(error))

    async def _pack(self, log: Path, done: Counter[str]) -> None:
        try:
            done["bytes_saved"] += await self._in_thread(lambda: reader.pack(log, check_abandoned))
            done["logs_packed"] += 1
        except FileNotFoundError:
            pass  # somebody removed it meanwhile
        except OSError as error:
            self.log.error(LogEvent.UPKEEP_FAILED, path=str(log), error=str(error))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # A round may not take longer, nor may one piece of it.
        return await self._one_thread.run(work, seconds=ROUND_SECONDS, what="upkeep of the logs")

    # --- rows -------------------------------------------------------------------------------------------

    async def _rows(self, now: datetime, done: Counter[str]) -> None:
        old = cutoffs(now, retention_days=self.retention_days)
        enough = self.clock.monotonic() + ROWS_SECONDS
        for aged in Aged:
            await self.remove(aged, old, done, now=now, until=enough)

    async def remove(self, aged: Aged, old: Cutoffs, done: Counter[str], *, now: datetime, until: float) -> None:
        """Remove old rows of a kind, a step after the other, for as long as there is time; count them in ``done``."""
        rows, more = MOST_ROWS, True
        while more and (began := self.clock.monotonic()) < until:
            expired = await self.database.expire(aged, old, now=now, rows=rows)
            done[aged.value] += expired.done
            more = expired.more
            took = self.clock.monotonic() - began
            rows = next_rows(rows, took)
            if more:  # for as long as the step took others have disk and processor for themselves
                await anyio.sleep(min(took, _LONGEST_PAUSE_SECONDS))


def log_id(name: str) -> int | None:
    """Return the session id in the name of a log; ``None`` if a file in the results directory is no log."""
    named = _LOG_NAME.fullmatch(name)
    return None if named is None else int(named[1])


def free_bytes(directory: Path) -> int:
    """Return the free space of the disk that a directory is on; raises `OSError`."""
    return shutil.disk_usage(directory).free


def _disk(directory: Path) -> str:
    """Return a name for the disk that a directory is on; its own where that cannot be seen."""
    try:
        return str(directory.stat().st_dev)
    except OSError:
        return str(directory)


def _nobody_runs(_cause: StopCause) -> int:
    return 0


def _nothing() -> None:
    return


@dataclass(kw_only=True)
class DiskFloor(SessionListener):
    """Keeps a machine with a full disk from claiming, by one critical event; stops sessions before it is full."""

    holds: Holds
    clock: Clock
    directories: Collection[Path]
    floor_bytes: int  # 0: no floor
    node: str = ""  # the machine's name
    log: Logger
    stop_all: Callable[[StopCause], int] = _nobody_runs  # politely; returns how many run
    kill_all: Callable[[], None] = _nothing
    is_idle: Callable[[], bool] = bool  # no session runs that could fill a disk
    free: Callable[[Path], int] = free_bytes
    # One thread for each disk: one that never answers keeps its own thread, and does not delay the other disks.
    _disks: dict[tuple[Path, ...], Threads] = field(init=False)
    _began: anyio.Event = field(default_factory=anyio.Event)
    _low: Path | None = field(init=False, default=None)  # the disk for which the hold stands, if it stands
    _ending: bool = field(init=False, default=False)  # whether the stopping of sessions was logged
    _released: bool = field(init=False, default=False)  # whether an earlier daemon's hold was looked for
    _trouble: DatabaseTrouble = field(init=False)

    def __post_init__(self) -> None:
        self._trouble = DatabaseTrouble(self.log, "disk floor")
        by_disk = {key: tuple(each) for key, each in groupby(sorted(self.directories, key=_disk), key=_disk)}
        self._disks = {directories: Threads(most=1, joins=True) for directories in by_disk.values()}

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Look again and again until cancelled; started after the first look."""
        await self.look()
        task_status.started()
        while self.floor_bytes:
            self._began = anyio.Event()
            if self.is_idle():
                with anyio.move_on_after(until_tick(IDLE_SECONDS, anyio.current_time())):
                    await self._began.wait()
            else:
                await anyio.sleep(until_tick(LOOK_SECONDS, anyio.current_time()))
            await self.look()

    def started(self, session: Session) -> None:  # noqa: ARG002 - whichever it is, it writes
        """Look soon, and more often from now on."""
        self._began.set()

    async def look(self) -> None:
        """Look once. While the database is away the hold waits for it; without a database no session starts anyway."""
        if not self.floor_bytes:
            return
        found = [each for directories in self._disks for each in await self._answer(directories)]
        if not found:
            return
        free, directory = min(found)
        # First, and without the database, because its disk may be the one that is full.
        self._end_sessions(free, directory)
        try:
            if free < self.floor_bytes and self._low is None:
                await self._stop(free, directory)
            elif free >= self.floor_bytes * (_ENOUGH if self._low else 1) and (self._low or not self._released):
                await self._go_on(free)
        except StoreError as error:
            self._trouble.failed(error)
        else:
            self._trouble.over()

    async def _answer(self, directories: tuple[Path, ...]) -> Sequence[tuple[int, Path]]:
        """Return the free bytes for each directory of one disk; none if the disk does not answer."""

        def look() -> Sequence[tuple[int | OSError, Path]]:
            return [(self._free_or_error(directory), directory) for directory in directories]

        what = f"asking what is free at {directories[0]}"
        try:
            answers = await self._disks[directories].run(look, seconds=_ANSWER_SECONDS, what=what)
        except TimeoutError:
            return ()  # the next look asks again
        for free, directory in answers:
            if isinstance(free, OSError):
                self.log.error(LogEvent.UPKEEP_FAILED, path=str(directory), error=str(free))
        return [(free, directory) for free, directory in answers if not isinstance(free, OSError)]

    def _free_or_error(self, directory: Path) -> int | OSError:
        try:
            return self.free(directory)
        except OSError as error:
            return error

    def _end_sessions(self, free: int, directory: Path) -> None:
        if free >= self.floor_bytes * STOP:
            self._ending = False
            return
        running = self.stop_all(StopCause.DISK_LOW)
        if running and not self._ending:
            self._ending = True
            self.log.critical(LogEvent.DISK_NEARLY_FULL, path=str(directory), free_mb=free // _MIB, running=running)
        if free < self.floor_bytes * KILL:
            self.kill_all()

    async def _stop(self, free: int, directory: Path) -> None:
        where = f" on node {self.node}" if self.node else ""
        reason = (
            f"The disk of {directory}{where} has {free // _MIB} MiB left, less than the {self.floor_bytes // _MIB} MiB "
            f"of CLAUDEOPS_DISK_FLOOR_MB: no session is started{' there' if where else ''} until there is room again."
        )
        self.log.critical(LogEvent.DISK_LOW, path=str(directory), free_mb=free // _MIB)
        now = self.clock.now()
        await self.holds.hold(Hold(kind=HoldKind.DISK, reason=reason, since=now, node=self.node), now=now)
        self._low = directory

    async def _go_on(self, free: int) -> None:
        released = await self.holds.release(HoldKind.DISK, node=self.node, now=self.clock.now())
        if released:
            self.log.info(LogEvent.DISK_RECOVERED, free_mb=free // _MIB)
        self._low, self._released = None, True
