"""A file of the operator's, read again when it changes. After a wrong edit the last good one serves, by an event.

Its disk may hang, so it is looked at in a thread and within a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

import anyio

from claudeops.clock import Clock
from claudeops.domain.events import EventLevel, NewEvent, of_node
from claudeops.engine.last_good import LastGood, look_again
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.probes import Probes
from claudeops.store.schedules import Schedules
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble, Threads, until_tick

LOOK_SECONDS: Final = 5.0
"""How soon a changed file is read."""

_READ_SECONDS: Final = 5.0

T = TypeVar("T")


def _alone(_: object) -> tuple[Path, ...]:
    return ()


def _still_serves(fault: str) -> str:
    return f"{fault} What it said before serves."


@dataclass(kw_only=True, slots=True)
class OperatorFile(Generic[T]):
    """Keeps what the operator's file says."""

    path: Path | None  # None: there is no file, and what was read at the start stays
    value: T  # what the file said at the start
    read: Callable[[Path], T]  # raises `ConfigurationError`; blocks
    name: str  # of what is in it, in the plural, such as "alerts"
    refused: LogEvent  # logged after a wrong edit
    events: Probes | Schedules
    clock: Clock
    log: Logger
    beside: Callable[[T], Sequence[Path]] | None = _alone
    """Other files that it names, and whose contents belong to it; None: they are not known, so each look reads all."""

    about: str = ""  # what is read, in messages; "": the file of what has the name
    fingerprint: str = ""  # of the event; "": made of the name
    message: Callable[[str], str] = _still_serves  # of the event about a fault
    look_seconds: float = LOOK_SECONDS
    read_seconds: float = _READ_SECONDS
    node: str = ""  # the machine whose file it is
    has_to_answer: bool = False  # a disk that does not answer is a fault
    _last: LastGood[T] = field(init=False)
    _fault: str | None = None  # as it was last reported; None: an earlier daemon may have reported one
    _paused: bool = False
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _thread: Threads = field(default_factory=lambda: Threads(most=1, joins=True))

    def __post_init__(self) -> None:
        self.about = self.about or f"file of {self.name}"
        self.fingerprint = self.fingerprint or f"{self.name}:file"
        self._last = LastGood(self.value)

    async def run(self) -> None:
        """Look at the file until cancelled."""
        trouble = DatabaseTrouble(self.log, self.about)
        while True:
            wait = 0.0
            try:
                if not self._paused:
                    await self.look()
            except StoreError as error:
                wait = trouble.failed(error)
            else:
                trouble.over()
                if self.path is None:
                    return  # the look has ended the event of a file that an earlier daemon had
            await anyio.sleep(wait or until_tick(self.look_seconds, anyio.current_time()))

    def pause(self) -> None:
        """Read no more."""
        self._paused = True

    async def change(self) -> None:
        """Wait until the file says something else than now."""
        await self._changed.wait()

    async def look(self) -> None:
        """Read the file if it has changed; raises `StoreError` where a fault could not be reported."""
        try:
            found = await self._read()
        except OSError as error:
            if not self.has_to_answer:
                return  # its disk does not answer: what it said before serves
            found = replace(self._last, fault=str(error))
        has_changed = found.value != self.value
        self.value, self._last = found.value, found
        if has_changed:
            self._changed.set()
            self._changed = anyio.Event()
        if found.fault == self._fault:
            return
        event = NewEvent(level=EventLevel.WARNING, message=self.message(found.fault), fingerprint=self.fingerprint)
        await self.events.note(of_node(event, self.node), over=not found.fault, now=self.clock.now())
        self._fault = found.fault
        if found.fault:
            self.log.error(self.refused, error=found.fault)

    async def _read(self) -> LastGood[T]:
        if self.path is None:
            return self._last
        beside = None if self.beside is None else self.beside(self.value)
        look = partial(look_again, self._last, self.path, self.read, beside=beside)
        return await self._thread.run(look, seconds=self.read_seconds, what=f"reading the {self.about}")
