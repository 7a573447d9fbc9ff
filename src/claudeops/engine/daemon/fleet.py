"""What is wrong with a fleet as a whole: nodes that decide by different things, sessions that no node may run.

One node looks, the one that keeps the database tidy. What it finds twice in succession is an event, raised once and
over when it is: files that are changed on one machine after the other differ for seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio

from claudeops.clock import Clock
from claudeops.domain.events import DEAD, DIFFERENT, EventLevel, NewEvent
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.acts.instances import ABSENT, fleet_conditions
from claudeops.store.database import Database
from claudeops.store.probes import Probes
from claudeops.tasks import DatabaseTrouble, until_tick

LOOK_SECONDS: Final = 30.0

_OF_SITES: Final = (LogEvent.SITE_UNSERVED, LogEvent.SITE_SERVED)
_LINES: Final = {
    DIFFERENT: (LogEvent.NODES_DIFFER, LogEvent.NODES_AGREE),
    ABSENT: (LogEvent.NODE_ABSENT, LogEvent.NODE_PRESENT),
}
"""The lines that a condition begins and ends with, by how its name begins."""


@dataclass(kw_only=True, slots=True)
class FleetWatch:
    """Raises and ends the events of the fleet."""

    database: Database
    events: Probes
    clock: Clock
    log: Logger
    _found: Mapping[str, str] = field(default_factory=dict)  # by the last look

    async def run(self) -> None:
        """Look until cancelled."""
        trouble = DatabaseTrouble(self.log, "fleet")
        while True:
            wait = 0.0
            try:
                await self.look()
            except StoreError as error:
                wait = trouble.failed(error)
            else:
                trouble.over()
            await anyio.sleep(wait or until_tick(LOOK_SECONDS, anyio.current_time()))

    def forget(self) -> None:
        """Drop what was found: another node has looked since."""
        self._found = {}

    async def look(self) -> None:
        """Compare what is wrong with what is on record; raises `StoreError`."""
        now = self.clock.now()
        found, on_record = await self.database.read(partial(fleet_conditions, now=now))
        for name, message in found.items():
            if name.startswith(DEAD):  # written by the sweep that found it
                continue
            before = self._found.get(name)
            is_new = name not in on_record and before is not None
            if is_new or (name in on_record and before not in {None, message}):
                await self._note(name, message, over=False)
        for name in on_record - found.keys():
            await self._note(name, "", over=True)
        self._found = found

    async def _note(self, name: str, message: str, *, over: bool) -> None:
        event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint=name)
        await self.events.note(event, over=over, now=self.clock.now())
        begins, ends = next((lines for mark, lines in _LINES.items() if name.startswith(mark)), _OF_SITES)
        if over and name.startswith(DEAD):  # one that is back says so itself
            self.log.info(LogEvent.NODE_FORGOTTEN, condition=name)
        elif over:
            self.log.info(ends, condition=name)
        else:
            self.log.warning(begins, error=message)
