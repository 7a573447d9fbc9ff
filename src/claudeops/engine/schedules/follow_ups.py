"""Has the daemon's probes answer the follow-ups that are due: whether what was done to a service still holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio

from claudeops.clock import Clock
from claudeops.domain.actions import Recheck
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.follow_up import FollowedUp
from claudeops.engine.ports import Dispatcher
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.follow_ups import FollowUps
from claudeops.tasks import DatabaseTrouble, Waiter

LOOK_SECONDS: Final = 5.0
"""How soon a follow-up that is due is answered; without any, only what is written is waited for."""


@dataclass(kw_only=True)
class FollowUpWorker:
    """Looks for follow-ups that are due, until it is cancelled."""

    follow_ups: FollowUps
    clock: Clock
    log: Logger
    dispatcher: Dispatcher
    rules: Callable[[], EscalationRules]
    waiter: Waiter = field(default_factory=lambda: Waiter(longest_seconds=LOOK_SECONDS))

    async def run(self) -> None:
        """Answer what is due, again and again."""
        trouble = DatabaseTrouble(self.log, "follow_ups")
        while True:
            try:
                done = await self.follow_ups.answer_due(rules=self.rules(), now=self.clock.now())
                may_come = await self.follow_ups.may_come(now=self.clock.now())
            except StoreError as error:
                await anyio.sleep(trouble.failed(error))
            else:
                trouble.over()
                await self._tell(done)
                await self.waiter.pause(LOOK_SECONDS if may_come else math.inf)

    async def _tell(self, done: FollowedUp) -> None:
        for action, held in done.answers.items():
            tell = self.log.warning if held is Recheck.RELAPSED else self.log.info
            tell(LogEvent.ACTION_FOLLOWED_UP, service=action.service, action=action.kind, held=held.value)
        for session in done.queued:
            self.log.info(LogEvent.SESSION_QUEUED, session_id=session.id)
        if done.queued:
            await self.dispatcher.announce()
