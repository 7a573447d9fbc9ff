"""``<state>/daemon.json``: what the running daemon is doing, readable when the database is away."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from claudeops.errors import StoreError
from claudeops.logs import LogEvent
from claudeops.tasks import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from claudeops.domain.holds import Hold
    from claudeops.domain.model import Owner, Session
    from claudeops.engine.ports import Clock, Store
    from claudeops.logs import Logger

LOOK_SECONDS: Final = 1.0
"""How soon a hold, or a database that went away, shows in the file."""

REST_SECONDS: Final = 0.05
"""Between two writes at least: a hundred sessions that start at once are one piece of news."""

STALE_SECONDS: Final = 10.0
"""The file is rewritten after this time even when nothing has changed: an old ``written_at`` is a dead daemon's."""


WRITE_SECONDS: Final = 5.0
"""How long a write may take. While one hangs nothing else is written: what is older must not come last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What the file says beside who wrote it."""

    ready: bool  # sessions can be claimed and their ends be written
    reason: str | None = None  # why not ready, one sentence
    running: tuple[Session, ...] = ()
    holds: tuple[Hold, ...] | None = None  # None: the database did not say


@dataclass(frozen=True, slots=True)
class StatusFile:
    """Written whole and renamed into place, so that a reader never sees half of it."""

    path: Path
    owner: Owner
    started_at: datetime
    write_seconds: float = WRITE_SECONDS
    _one_at_a_time: Threads = field(default_factory=lambda: Threads(most=1))

    async def write(self, standing: Standing, *, at: datetime, monotonic: float) -> None:
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
                "started_at": self.started_at,
                "written_at": at,
                "written_monotonic": monotonic,  # every process of the machine counts these seconds alike
                "running": [
                    {"session_id": session.id, "chain": session.root_session_id, "tier": session.tier}
                    for session in standing.running
                ],
                "holds": None if standing.holds is None else [_shown(hold) for hold in standing.holds],
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
class StatusKeeper:
    """Keeps the file true while the daemon runs: looks every second, writes what has changed."""

    file: StatusFile
    store: Store
    clock: Clock
    running: Callable[[], Sequence[Session]]
    log: Logger
    trouble: Callable[[], str | None] = lambda: None  # why the database takes no writes, if it does not
    _stopping: bool = False
    _written: Standing | None = None
    _written_at: float = 0.0  # monotonic seconds
    _news: anyio.Event = field(default_factory=anyio.Event)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)  # one writer at a time, so that the newest is written last

    async def run(self) -> None:
        """Look and write until cancelled."""
        while True:
            self._news = anyio.Event()  # before the look: news that come during it are not missed
            await self.refresh()
            with anyio.move_on_after(LOOK_SECONDS):
                await self._news.wait()
                await anyio.sleep(REST_SECONDS)

    def changed(self) -> None:
        """Have the file written soon. Whoever has changed something does not wait for that."""
        self._news.set()

    async def stop(self) -> None:
        """Say that the daemon takes nothing more; it goes on saying so."""
        self._stopping = True
        await self.refresh()

    async def refresh(self) -> None:
        """Write the file if it would say something else by now, or has become old. Raises nothing."""
        async with self._turn:
            standing = await self._look()
            now = self.clock.monotonic()
            if standing == self._written and now - self._written_at < STALE_SECONDS:
                return
            try:
                await self.file.write(standing, at=self.clock.now(), monotonic=now)
            except OSError as error:
                self.log.error(LogEvent.STATUS_NOT_WRITTEN, path=str(self.file.path), error=str(error))
                return
            self._written, self._written_at = standing, now

    async def _look(self) -> Standing:
        running = tuple(self.running())
        try:
            holds = tuple(await self.store.holds(self.clock.now()))
        except StoreError as error:
            return Standing(ready=False, reason=str(error), running=running)
        if self._stopping:
            return Standing(ready=False, reason="the daemon is shutting down", running=running, holds=holds)
        trouble = self.trouble()
        return Standing(ready=trouble is None, reason=trouble, running=running, holds=holds)


def _shown(hold: Hold) -> dict[str, object]:
    return {
        "kind": hold.kind.value,
        "reason": hold.reason,
        "since": hold.since,
        "until": hold.until,
        "by": hold.by,
        "probe": hold.probe,
    }
