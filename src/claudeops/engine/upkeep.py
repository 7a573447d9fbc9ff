"""Keeps house while the daemon runs: old logs are packed, then removed; old rows go; the database's own log is cut.

By its own schedule, bounded, and off the event loop: files are worked on in one thread, the database a little at a
time. What goes wrong costs a log line and is tried again in the next round.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from claudeops.domain.expiry import Aged, cutoffs
from claudeops.domain.model import Status
from claudeops.engine import old_logs
from claudeops.errors import StoreError
from claudeops.logs import LogEvent
from claudeops.tasks import Threads, check_abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from claudeops.domain.model import Session
    from claudeops.engine.ports import Clock, Store
    from claudeops.logs import Logger

T = TypeVar("T")

FIRST_SECONDS: Final = 60.0
"""From the start to the first round: whatever was missed while no daemon ran is caught up soon, but not at once."""

EVERY_SECONDS: Final = 3600.0
ROUND_SECONDS: Final = 900.0
"""So long a round may take; the next one goes on where it was cut off."""

ROWS_SECONDS: Final = 600.0
"""So long of it rows are removed, a short transaction after the other."""

PACK_AFTER: Final = timedelta(hours=1)
"""After its end a log stays plain for so long: people look at young ones, and a late amendment reads them."""

_ROWS: Final = 500  # in one transaction
_LOG_NAME: Final = re.compile(r"session-(\d{6,18})(\.\d+)?\.ndjson(\.zst)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upkeep:
    """The upkeep of one node."""

    store: Store
    clock: Clock
    results_dir: Path
    retention_days: int
    running: Callable[[], Collection[int]]  # ids of the sessions that run here
    log: Logger
    _one_thread: Threads = field(default_factory=lambda: Threads(most=1))

    async def run(self) -> None:
        """Keep house until cancelled."""
        await anyio.sleep(FIRST_SECONDS)
        while True:
            with anyio.move_on_after(ROUND_SECONDS):
                await self.round()
            await anyio.sleep(EVERY_SECONDS)

    async def round(self) -> Counter[str]:
        """Do everything once; return what was done, by what it was."""
        done: Counter[str] = Counter()
        now = self.clock.now()
        try:
            await self._logs(now, done)
            await self._rows(now, done)
            if not await self.store.checkpoint():
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
            elif session.ended_at < now - PACK_AFTER and not name.endswith(old_logs.PACKED):
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
        """Return the ended session that a log belongs to; what belongs to nobody known is nobody's to touch."""
        session_id = log_id(name)
        if session_id is None or session_id in self.running():
            return None
        session = await self.store.session(session_id)
        if session is None or session.status is not Status.ENDED or session.log_path is None:
            return None
        plain = name.removesuffix(old_logs.PACKED)
        return session if Path(session.log_path) == self.results_dir / plain else None

    async def _remove(self, log: Path, done: Counter[str]) -> None:
        try:
            done["logs_removed"] += await self._in_thread(lambda: old_logs.remove(log))
        except OSError as error:
            self.log.error(LogEvent.UPKEEP_FAILED, path=str(log), error=str(error))

    async def _pack(self, log: Path, done: Counter[str]) -> None:
        try:
            done["bytes_saved"] += await self._in_thread(lambda: old_logs.pack(log, check_abandoned))
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
            more = True
            while more and self.clock.monotonic() < enough:
                expired = await self.store.expire(aged, old, now=now, rows=_ROWS)
                done[aged.value] += expired.done
                more = expired.more


def log_id(name: str) -> int | None:
    """Return the id of the session that a file in the results directory is the log of, by its name."""
    named = _LOG_NAME.fullmatch(name)
    return None if named is None else int(named[1])
