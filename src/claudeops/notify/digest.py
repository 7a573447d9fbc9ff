"""Sends the daily digest when it is due, once, whichever daemon lives then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import anyio

from claudeops.domain.schedules import Cron
from claudeops.errors import StoreError
from claudeops.logs import Logger
from claudeops.store.notify.outbox import Outbox
from claudeops.tasks import DatabaseTrouble
from claudeops.wording.notices.digest import digest, due, key_of

LOOK_SECONDS: Final = 20.0


@dataclass(kw_only=True)
class DigestSender:
    """Looks whether a digest is due, until cancelled."""

    outbox: Outbox
    cron: Cron
    daily_budget_usd: float
    now: Callable[[], datetime]
    log: Logger
    _sent: datetime | None = None  # the due time of the last one that is on record

    async def run(self) -> None:
        """Send each digest when it is due."""
        trouble = DatabaseTrouble(self.log, "the daily sum")
        while True:
            wait = LOOK_SECONDS
            try:
                await self.look_once()
                trouble.over()
            except StoreError as error:
                wait = max(wait, trouble.failed(error))
            await anyio.sleep(wait)

    async def look_once(self) -> None:
        """Write the digest to the outbox if one is due that is not there."""
        now = self.now()
        found = due(self.cron, now)
        if found is None or found[0] == self._sent:
            return
        at, since = found
        if not await self.outbox.has(key_of(at)):
            figures = await self.outbox.sums(since, now=now)
            await self.outbox.add(digest(figures, at=at, daily_budget_usd=self.daily_budget_usd), now=now)
        self._sent = at
