"""Has Apprise look at addresses while the daemon runs, each value once: what it does not understand is an event.

Apprise takes half a second and 40 MB to import, so a courier does it, and no start of the daemon waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.gate.approval import visible
from claudeops.domain.notices.notice import ADDRESS
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.notify.delivery import Courier
from claudeops.store.probes import Probes
from claudeops.tasks import DatabaseTrouble
from claudeops.text import clip, one_line

_TRIES: Final = 5  # of couriers that die or cannot be started
_PAUSE_SECONDS: Final = 30.0


@dataclass(kw_only=True)
class AddressCheck:
    """Checks the addresses of targets that were not checked before."""

    courier: Courier
    addresses: Mapping[str, str] = field(repr=False)  # by targets
    events: Probes
    redact: Callable[[str], str]
    now: Callable[[], datetime]
    log: Logger
    checked: Mapping[str, str] = field(repr=False)  # as they were when they were checked

    async def run(self) -> None:
        """Check until Apprise has said something of every address; then there is nothing more to do."""
        trouble = DatabaseTrouble(self.log, "addresses of targets")
        for _ in range(_TRIES):
            wait = _PAUSE_SECONDS
            try:
                if await self.check_once():
                    return
                trouble.over()
            except OSError:
                pass  # no process can be started, which its deliveries say as well
            except StoreError as error:
                wait = max(wait, trouble.failed(error))
            await anyio.sleep(wait)

    async def check_once(self) -> bool:
        """Check what is new; tell whether nothing is left to check. Raises `OSError` and `StoreError`."""
        new = {name: address for name, address in self.addresses.items() if self.checked.get(name) != address}
        if new:
            for name, reason in (await self.courier.check(new)).items():
                await self._note(name, visible(self.redact(one_line(reason))))
                self.checked = {**self.checked, name: new[name]}
        return all(self.checked.get(name) == address for name, address in new.items())

    async def _note(self, name: str, reason: str) -> None:
        message = f"Apprise does not understand the address of {name}, so nothing is sent there: {reason}."
        event = NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint=clip(f"{ADDRESS}{name}"))
        await self.events.note(event, over=not reason, now=self.now())
        if reason:
            self.log.error(LogEvent.ADDRESS_REFUSED, target=name, error=reason)
