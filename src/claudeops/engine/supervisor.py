"""Claims queued sessions, runs them within the slots there are, writes their ends, and drains at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.model import Ending, Extraction, ExtractionMethod, Outcome
from claudeops.domain.outcome import StopCause
from claudeops.engine.broadcast import session_began, session_ended
from claudeops.engine.control import Control
from claudeops.engine.ends import tell_end, write_end
from claudeops.errors import DatabaseUnavailableError
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from claudeops.domain.activity import Redact
    from claudeops.domain.model import EscalationRules, Finished, Owner, Session
    from claudeops.engine.hub import Hub
    from claudeops.engine.ports import Clock, Dispatcher, Store
    from claudeops.logs import Logger

WAITING_FACTOR: Final = 2
"""So many times the slots is the most that runs at once, those that wait for people among them."""

STOP_MARGIN_SECONDS: Final = 5.0
"""On top of the stop grace: the row is written and the files are closed in it."""


def _nobody(_session: Session, _finished: Finished) -> None:
    return


@dataclass(kw_only=True)
class Supervisor:
    """Runs sessions until it is drained. One per process."""

    store: Store
    dispatcher: Dispatcher
    clock: Clock
    owner: Owner
    rules: EscalationRules
    run_session: Callable[[Session, Control], Awaitable[Ending]]
    new_cli_session_id: Callable[[], str]
    log_path: Callable[[int], str]
    slots: int  # sessions at once; with more than one, one is kept for tier 1
    stop_grace_seconds: float
    hub: Hub
    redact: Redact
    log: Logger
    chain: int | None = None  # only this chain (a foreground run), or whatever is queued
    on_change: Callable[[], Awaitable[None]] | None = None  # told after a session starts or ends
    on_ended: Callable[[Session, Finished], None] = _nobody  # told of each end that was written
    running: dict[int, tuple[Session, Control]] = field(default_factory=dict)
    _draining: bool = False
    _ended: anyio.Event = field(default_factory=anyio.Event)  # set, and replaced, whenever a session ends

    async def run(self) -> None:
        """Claim and run until `drain`. Raises nothing for a session that fails, nor for an absent database."""
        async with anyio.create_task_group() as tasks:
            while not self._draining:
                await self._fill_slots(tasks)
                await self.dispatcher.wait()
            await self._until_idle()

    async def drain(self, timeout_seconds: float) -> None:
        """Claim nothing more, wait for running sessions, then stop the rest politely. Bounded.

        Call `hurry` to cut the waiting short.
        """
        self._draining = True
        await self.dispatcher.announce()
        if self.running:
            self.log.info(LogEvent.SUPERVISOR_DRAINING, running=len(self.running), timeout_seconds=timeout_seconds)
        with anyio.move_on_after(timeout_seconds):
            await self._until_idle()
        self.hurry()
        with anyio.move_on_after(self.stop_grace_seconds + STOP_MARGIN_SECONDS):
            await self._until_idle()

    def hurry(self) -> None:
        """Ask every running session to stop now; it ends as ``cancelled``."""
        self.stop_all(StopCause.CANCELLED)

    def stop_all(self, cause: StopCause) -> int:
        """Ask every running session to stop now; return how many run."""
        for _, control in self.running.values():
            control.stop(cause)
        return len(self.running)

    async def _until_idle(self) -> None:
        while self.running:
            await self._ended.wait()

    async def _fill_slots(self, tasks: TaskGroup) -> None:
        while not self._draining and self._slot_is_free():
            session = await self._claim()
            if session is None:
                return
            control = Control()
            self.running[session.id] = (session, control)
            tasks.start_soon(self._carry_out, session, control)

    def _slot_is_free(self) -> bool:
        """Tell whether one more may run. Who waits for people holds no slot; but each of them is a process."""
        working = sum(1 for _, control in self.running.values() if not control.waits_for_people)
        return working < self.slots and len(self.running) < WAITING_FACTOR * self.slots

    def _claimable_tiers(self) -> tuple[int, ...] | None:
        """Return the tiers that may start now; ``None`` for all. A long remediation must not blind tier 1."""
        lowest = min(tier.number for tier in self.rules.tiers)
        above = sum(
            1 for session, control in self.running.values() if session.tier > lowest and not control.waits_for_people
        )
        if self.slots > 1 and above >= self.slots - 1:
            return (lowest,)
        return None

    async def _claim(self) -> Session | None:
        try:
            session = await self.store.claim(
                self.owner,
                rules=self.rules,
                now=self.clock.now(),
                cli_session_id=self.new_cli_session_id,
                log_path=self.log_path,
                chain=self.chain,
                tiers=self._claimable_tiers(),
            )
        except DatabaseUnavailableError as error:
            self.log.error(LogEvent.DATABASE_UNAVAILABLE, while_doing="claim", error=str(error))
            return None
        if session is not None:
            _bound(self.log, session).info(
                LogEvent.SESSION_CLAIMED, trigger=session.trigger.value, attempt=session.attempt
            )
        return session

    async def _carry_out(self, session: Session, control: Control) -> None:
        log = _bound(self.log, session)
        try:
            await self._changed()
            if self.hub.listening:
                self.hub.publish(session_began(session, self.redact, self.clock.now()))
            ending = await self._run_guarded(session, control, log)
            finished = await write_end(ending, store=self.store, rules=self.rules, log=log)
            if finished is not None:
                tell_end(ending, finished, log)
                self.on_ended(session, finished)
                self.hub.publish(session_ended(session, ending, finished))
        finally:
            del self.running[session.id]
            ended, self._ended = self._ended, anyio.Event()
            ended.set()
        await self._changed()
        # Also without a next tier: the freed slot may be what another queued session waits for.
        await self.dispatcher.announce()

    async def _run_guarded(self, session: Session, control: Control, log: Logger) -> Ending:
        """Run one session; whatever goes wrong in our own code ends this session only."""
        started = self.clock.monotonic()
        try:
            return await self.run_session(session, control)
        except Exception as error:
            log.critical(LogEvent.SESSION_CRASHED, error=f"{type(error).__name__}: {error}", exc_info=True)
            return Ending(
                session_id=session.id,
                attempt=session.attempt,
                outcome=Outcome.ERROR,
                error=f"internal error: {type(error).__name__}: {error}",
                extraction=Extraction(method=ExtractionMethod.NONE, report=None),
                ended_at=self.clock.now(),
                duration_ms=round((self.clock.monotonic() - started) * 1000),
                calls_ran=0,
            )

    async def _changed(self) -> None:
        if self.on_change is not None:
            await self.on_change()


def _bound(log: Logger, session: Session) -> Logger:
    return log.bind(session_id=session.id, chain=session.root_session_id, tier=session.tier)
