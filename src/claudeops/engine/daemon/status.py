"""``<state>/daemon.json``: what the running daemon is doing, readable while the database is away.

`StatusWriter` writes the file; `claudeops.engine.daemon.liveness` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import anyio
import msgspec
import orjson

from claudeops.clock import Clock
from claudeops.domain.holds import Hold, HoldKind, has_lapsed
from claudeops.domain.owner import Owner
from claudeops.domain.schedules.plan import Saved
from claudeops.domain.sessions import Session
from claudeops.domain.spending.budget import Budgets
from claudeops.engine.ports import SessionListener
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.holds import Holds
from claudeops.structs import replace
from claudeops.tasks import Threads, until_tick

LOOK_SECONDS: Final = 30.0
"""How soon what nothing announces shows in the file. The file is rewritten then even if nothing has changed, so that an
old ``written_at`` shows a dead daemon."""

_KNOWN_SECONDS: Final = 300.0
"""For which the holds count as known: whatever is written to the database announces itself."""

REST_SECONDS: Final = 0.05
"""The shortest pause between two writes, and how long one of sessions alone waits for more to write, so that a hundred
that start at once cause one write; what starts them has the processor meanwhile."""

_AGAIN_SECONDS: Final = 5.0  # to the next look at a database that gave no answer
_FRESH_SECONDS: Final = 5.0  # for which a look that finds nothing new writes nothing

WRITE_SECONDS: Final = 5.0
"""How long a write may take. While one hangs nothing else is written, so that an older state never comes last."""


class SchedulesState(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says about schedules."""

    next_fires: tuple[tuple[str, datetime | None], ...] = ()  # by schedule; None: it is switched off
    saved: Saved | None = None  # fires that started nothing; None: not counted yet


class DaemonState(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says about the daemon, besides its identity."""

    ready: bool  # sessions can be claimed, and their ends can be written
    reason: str | None = None  # why not ready, one sentence
    running: tuple[Session, ...] = ()
    holds: tuple[Hold, ...] | None = None  # None: the database did not say
    schedules: SchedulesState = SchedulesState()
    untold_since: datetime | None = None  # since then the oldest notice waits; None: none waits
    roles: tuple[str, ...] = ()  # what this daemon does for all that work on the database


class StatusFile(msgspec.Struct, frozen=True):
    """The file itself; it is written whole and renamed into place, so that a reader never sees half of it."""

    path: Path
    owner: Owner
    started_at: datetime
    budgets: Budgets | None = None  # None: nothing limits what is spent
    write_seconds: float = WRITE_SECONDS
    _one_at_a_time: Threads = msgspec.field(default_factory=lambda: Threads(most=1, joins=True))

    async def write(self, standing: DaemonState, *, at: datetime, monotonic: float) -> None:
        """Replace the file; raises `OSError`, also when its disk does not answer."""
        content = orjson.dumps(
            {
                "ready": standing.ready,
                "reason": standing.reason,
                "pid": self.owner.pid,
                "process_started_at": self.owner.process_started_at,
                "boot_id": self.owner.boot_id,
                "owner": self.owner.name,
                "isolation": self.owner.isolation,
                "node": self.owner.node,
                "site": self.owner.site,
                "version": self.owner.version,
                "started_at": self.started_at,
                "written_at": at,
                "written_monotonic": monotonic,  # all processes of the machine share this clock
                "running": [
                    {
                        "session_id": session.id,
                        "chain": session.root_session_id,
                        "tier": session.tier,
                        "trigger": session.trigger,
                        "started_at": session.started_at,
                    }
                    for session in standing.running
                ],
                "holds": None if standing.holds is None else [_shown(hold) for hold in standing.holds],
                "schedules": [
                    {"name": name, "next_fire": next_fire} for name, next_fire in standing.schedules.next_fires
                ],
                "budgets": None if self.budgets is None else _limits(self.budgets),
                "skipped": _skipped(standing.schedules.saved),
                "untold_since": standing.untold_since,
                "roles": standing.roles,
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )
        await self._one_at_a_time.run(
            lambda: self._replace(content), seconds=self.write_seconds, what=f"writing {self.path}"
        )

    def _replace(self, content: bytes) -> None:
        beside = self.path.with_suffix(".json.new")
        beside.write_bytes(content)
        os.replace(beside, self.path)  # noqa: PTH105 - os.replace says that it is atomic

    async def remove(self) -> None:
        """Remove the file: no daemon runs. Raises `OSError`."""
        await self._one_at_a_time.run(
            lambda: self.path.unlink(missing_ok=True), seconds=self.write_seconds, what=f"removing {self.path}"
        )


@dataclass(kw_only=True)
class StatusWriter(SessionListener):
    """Keeps the file up to date while the daemon runs: looks when there is news, and writes what has changed."""

    file: StatusFile
    holds: Holds
    clock: Clock
    running: Callable[[], Sequence[Session]]
    log: Logger
    trouble: Callable[[], str | None] = lambda: None  # why the database takes no writes; None: it does
    schedules: Callable[[], SchedulesState] = SchedulesState
    untold_since: Callable[[], datetime | None] = lambda: None  # since then the oldest notice waits
    roles: Callable[[], Sequence[str]] = tuple  # that this daemon has
    rest_seconds: float = REST_SECONDS
    _stopping: bool = False
    _written: DaemonState | None = None
    _written_at: float = 0.0  # monotonic seconds
    _known: tuple[Hold, ...] | None = None  # as they were last read; None: they have to be read
    _known_at: float = 0.0  # monotonic seconds
    _news: anyio.Event = field(default_factory=anyio.Event)
    _haste: anyio.Event = field(default_factory=anyio.Event)  # there is news of more than sessions
    _turn: anyio.Lock = field(default_factory=anyio.Lock)  # one writer at a time, so that the newest is written last

    async def run(self) -> None:
        """Look and write until cancelled. Without news the database is not asked again."""
        anew = True
        while True:
            self._news, self._haste = news, haste = anyio.Event(), anyio.Event()  # before the look, which may miss some
            await self.refresh(anew=anew)
            with anyio.move_on_after(self._rest()):
                await news.wait()
                with anyio.move_on_after(self.rest_seconds):
                    await haste.wait()
                await anyio.sleep(max(0.0, self._written_at + self.rest_seconds - self.clock.monotonic()))
            anew = news.is_set()

    def _rest(self) -> float:
        """Return how long it is until the next look, unless there is news: at the end of a hold, or with the others."""
        every = _AGAIN_SECONDS if self._known is None else LOOK_SECONDS
        now, rest = self.clock.now(), until_tick(every, anyio.current_time())
        holds = (self._written.holds if self._written is not None else None) or ()
        ends = [(hold.until - now).total_seconds() for hold in holds if hold.until is not None]
        return max(self.rest_seconds, min([rest, *ends]))

    def started(self, session: Session) -> None:  # noqa: ARG002 - the registry of running sessions has it
        """Have the file written soon, without waiting for it."""
        self._news.set()

    def left(self, session: Session) -> None:  # noqa: ARG002 - as above
        """Have the file written soon, without waiting for it."""
        self._news.set()

    def wake(self) -> None:
        """Look now, without waiting for it: a hold may have come or gone."""
        self._news.set()
        self._haste.set()

    def disk_is_low(self) -> str:
        """Return why no session starts for want of disk space, as last seen; empty: there is enough."""
        holds = (self._written.holds if self._written is not None else None) or ()
        return next((hold.reason for hold in holds if hold.kind is HoldKind.DISK), "")

    async def stop(self) -> None:
        """Write that the daemon is shutting down, from now on."""
        self._stopping = True
        await self.refresh()

    async def refresh(self, *, anew: bool = True) -> None:
        """Write the file if its content has changed or it has become old. Raises nothing.

        Unless the holds are read ``anew``, those last read serve, except for those that have ended since.
        """
        async with self._turn:
            if anew:
                self._known = None
            standing = await self._look()
            now = self.clock.monotonic()
            if standing == self._written and now - self._written_at < _FRESH_SECONDS:
                return
            try:
                await self.file.write(standing, at=self.clock.now(), monotonic=now)
            except OSError as error:
                self.log.error(LogEvent.STATUS_NOT_WRITTEN, path=str(self.file.path), error=str(error))
                return
            self._written, self._written_at = standing, now

    async def _look(self) -> DaemonState:
        seen = DaemonState(
            ready=True,
            running=tuple(self.running()),
            schedules=self.schedules(),
            untold_since=self.untold_since(),
            roles=tuple(self.roles()),
        )
        try:
            holds = await self._standing()
        except StoreError as error:
            return replace(seen, ready=False, reason=str(error))
        if self._stopping:
            return replace(seen, ready=False, reason="the daemon is shutting down", holds=holds)
        trouble = self.trouble()
        return replace(seen, ready=trouble is None, reason=trouble, holds=holds)

    async def _standing(self) -> tuple[Hold, ...]:
        now, at = self.clock.now(), self.clock.monotonic()
        if self._known is None or at - self._known_at > _KNOWN_SECONDS:
            self._known = None  # also where the database gives no answer
            self._known = tuple(await self.holds.standing(now, node=self.file.owner.node))
            self._known_at = at
        return tuple(hold for hold in self._known if not has_lapsed(hold, now))


def _shown(hold: Hold) -> dict[str, object]:
    return {
        "kind": hold.kind.value,
        "reason": hold.reason,
        "since": hold.since,
        "until": hold.until,
        "by": hold.by,
        "probe": hold.trial,
    }


def _limits(budgets: Budgets) -> dict[str, object]:
    return {"day_usd": budgets.day_usd, "timezone": budgets.timezone}


def _skipped(saved: Saved | None) -> dict[str, object] | None:
    return None if saved is None else {"since": saved.since, "fires": dict(saved.skipped), "saved_usd": saved.usd}
