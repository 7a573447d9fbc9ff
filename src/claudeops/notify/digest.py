"""Tells the daily sum when it is due, once, whichever daemon lives then."""

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
class DigestKeeper:
    """Looks whether a sum is due, until cancelled."""

    outbox: Outbox
    cron: Cron
    daily_budget_usd: float
    now: Callable[[], datetime]
    log: Logger
    _told: datetime | None = None  # the due time of the last one that is on record

    async def run(self) -> None:
        """Tell each sum when it is due."""
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
        """Tell the sum if one is due that nobody has told."""
        now = self.now()
        found = due(self.cron, now)
        if found is None or found[0] == self._told:
            return
        at, since = found
        if not await self.outbox.is_told(key_of(at)):
            sums = await self.outbox.sums(since, now=now)
            await self.outbox.tell(digest(sums, at=at, daily_budget_usd=self.daily_budget_usd), now=now)
        self._told = at
