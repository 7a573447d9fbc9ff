"""A file of the operator's, read again when it changes. After a wrong edit the last good one serves, which is told.

Its disk may hang, so it is looked at in a thread and within a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

import anyio

from claudeops.clock import Clock
from claudeops.domain.events import Level, NewEvent
from claudeops.errors import ConfigurationError, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.probes import Probes
from claudeops.tasks import DatabaseTrouble, Threads

LOOK_SECONDS: Final = 5.0
"""How soon a changed file is read."""

_READ_SECONDS: Final = 5.0

T = TypeVar("T")
Signature = tuple[tuple[int, int, int, int], ...]


def _alone(_: object) -> tuple[Path, ...]:
    return ()


@dataclass(kw_only=True, slots=True)
class OperatorFile(Generic[T]):
    """Keeps what the operator's file says."""

    path: Path | None  # None: there is no file, and what was read at the start stays
    value: T  # what the file said at the start
    read: Callable[[Path], T]  # raises `ConfigurationError`; blocks
    name: str  # of what is in it, in the plural, such as "alerts"
    refused: LogEvent  # logged after a wrong edit
    events: Probes
    clock: Clock
    log: Logger
    beside: Callable[[T], Sequence[Path]] = _alone  # other files that it names, and whose contents belong to it
    _seen: Signature | None = None
    _fault: str | None = None  # as it was last told; None: an earlier daemon may have told one
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _thread: Threads = field(default_factory=lambda: Threads(most=1))

    async def run(self) -> None:
        """Look at the file until cancelled."""
        trouble = DatabaseTrouble(self.log, f"file of {self.name}")
        while True:
            wait = LOOK_SECONDS
            try:
                await self.look()
            except StoreError as error:
                wait = trouble.failed(error)
            else:
                trouble.over()
            await anyio.sleep(wait)

    async def change(self) -> None:
        """Wait until the file says something else than now."""
        await self._changed.wait()

    async def look(self) -> None:
        """Read the file if it has changed; raises `StoreError` where a fault could not be told."""
        before = self.value
        try:
            fault = await self._thread.run(self._look, seconds=_READ_SECONDS, what=f"reading the file of {self.name}")
        except OSError:
            return  # its disk does not answer: what it said before serves
        if self.value != before:
            self._changed.set()
            self._changed = anyio.Event()
        if fault == self._fault:
            return
        message = f"{fault} What it said before serves."
        event = NewEvent(level=Level.WARNING, message=message, fingerprint=f"{self.name}:file")
        await self.events.note(event, over=not fault, now=self.clock.now())
        self._fault = fault
        if fault:
            self.log.error(self.refused, error=fault)

    def _look(self) -> str:
        """Return what is wrong with the file, nothing if it is right."""
        if self.path is None:
            return ""
        try:
            signature = _signature(self.path, *self.beside(self.value))
            if signature == self._seen:
                return self._fault or ""
            self.value = self.read(self.path)
            self._seen = signature
        except ConfigurationError as error:
            return str(error)
        except FileNotFoundError as error:
            return f"{error.filename} is not there any more."
        return ""


def _signature(*paths: Path) -> Signature:
    found = [path.stat() for path in paths]
    return tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in found)
