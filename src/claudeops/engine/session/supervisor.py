"""Claims queued sessions, runs them within the free slots, writes their ends, and drains when the daemon stops."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.holds import Capacity
from claudeops.domain.owner import Owner
from claudeops.domain.report.report import Extraction, ExtractionMethod
from claudeops.domain.sessions import Ending, Finished, Outcome, Session
from claudeops.engine.control import RunningSessions, StopControl
from claudeops.engine.live.hub import Hub, session_began, session_ended
from claudeops.engine.ports import Dispatcher, SessionListener
from claudeops.engine.session.completion import commit_result, log_result
from claudeops.engine.system import FreeMemory
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger, log_context
from claudeops.store.claims import Claims
from claudeops.store.queue import Queue
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble
from claudeops.wording.live import Redact

LOOK_SECONDS: Final = 1.0
"""Between two looks at a queue in which a session waits though it is due."""

WAITING_FACTOR: Final = 2
"""Times the slots: the most sessions that may be under way, including those that hold no slot, because they wait for
approval or their end is being written."""

_FEW: Final = 4  # sessions that are claimed one by one

LONGEST_CLAIM_PAUSE_SECONDS: Final = 5.0
"""The longest pause between two claims while the database fails: sessions should not start much later than due."""

STOP_MARGIN_SECONDS: Final = 5.0
"""Time on top of the stop grace, to write the row and close the files."""


@dataclass(kw_only=True)
class Supervisor:
    """Runs sessions until it is drained. One per process."""

    queue: Queue
    claims: Claims
    dispatcher: Dispatcher
    clock: Clock
    owner: Owner
    rules: Callable[[], EscalationRules]  # as they are now: the estate may change
    run_session: Callable[[Session, StopControl], AbstractAsyncContextManager[Ending]]  # leaves nothing of it behind
    new_cli_session_id: Callable[[], str]
    log_path: Callable[[int], str]
    give_up: Callable[[Session, Ending], Awaitable[None]]  # writes the end of one that another daemon may have by now
    slots: int  # sessions at once; if there are several, one is kept for the lowest tier
    stop_grace_seconds: float
    hub: Hub
    redact: Redact
    log: Logger
    margin_seconds: float = STOP_MARGIN_SECONDS  # for the ends of sessions after a stop's grace
    may_claim: Callable[[], bool] = lambda: True  # False: another daemon may take over from this one at any moment
    chain: int | None = None  # run only this chain (a foreground run); None: everything that is queued
    listeners: Sequence[SessionListener] = ()
    running: RunningSessions = field(default_factory=RunningSessions)
    memory: FreeMemory = field(default_factory=FreeMemory)
    _written: set[int] = field(default_factory=set)  # ids of running sessions of which only the end is to be written
    _draining: bool = False
    _hurrying: bool = False
    _claiming: bool = False  # a claim is under way: its rows may be running already, and are not in ``running`` yet
    _claimed_at: datetime | None = None  # of what was due at this moment the last claim has taken what it could
    _claim_at: float = 0.0  # monotonic seconds; in the future while the database fails
    _trouble: DatabaseTrouble = field(init=False)
    _less: anyio.Event = field(default_factory=anyio.Event)  # set, and replaced, whenever a session or a claim ends

    def __post_init__(self) -> None:
        self._trouble = DatabaseTrouble(self.log, "claim", longest_seconds=LONGEST_CLAIM_PAUSE_SECONDS)

    async def run(self) -> None:
        """Claim and run until `drain`. Raises nothing if a session or the database fails."""
        async with anyio.create_task_group() as tasks:
            while not self._draining:
                await self._fill_slots(tasks)
                with anyio.move_on_after(await self._rest()):
                    await self.dispatcher.wait()
            await self._until_idle()

    async def drain(self, timeout_seconds: float) -> Sequence[int]:
        """Claim nothing more, wait for running sessions, then stop the rest politely. Bounded.

        Returns the ids of those whose ends are not written: the database is away, or has not taken them in time. A
        claim under way is waited for too, because what it takes is a running session. Call `hurry` to cut the wait
        short.
        """
        self._draining = True
        await self.dispatcher.announce()
        if self.running:
            self.log.info(LogEvent.SUPERVISOR_DRAINING, running=len(self.running), timeout_seconds=timeout_seconds)
        with anyio.move_on_after(timeout_seconds):
            await self._until_idle()
        self.hurry()
        with anyio.move_on_after(self.stop_grace_seconds + self.margin_seconds):
            await self._until_idle()
        return sorted(self.running)

    def hurry(self) -> None:
        """Ask every running session to stop now, and those of a claim under way; they end as ``cancelled``."""
        self._hurrying = True
        self.running.stop_all(StopCause.CANCELLED)

    async def _until_idle(self) -> None:
        while self.running or self._claiming:
            await self._less.wait()

    def _notify_less(self) -> None:
        less, self._less = self._less, anyio.Event()
        less.set()

    async def _fill_slots(self, tasks: TaskGroup) -> None:
        if self.clock.monotonic() < self._claim_at:
            return
        rules = self.rules()  # once: they are made anew of the estate
        while not self._draining and self.may_claim() and (capacity := self._capacity(rules)).sessions > 0:
            self._claiming = True
            try:
                claimed = await self._claim(_at_once(capacity), rules)
                for session in claimed:
                    control = StopControl()
                    if self._hurrying:  # since the claim began
                        control.stop(StopCause.CANCELLED)
                    elif not self.may_claim():  # by now
                        control.stop(StopCause.LEASE_OVER)
                    self.running[session.id] = (session, control)
                    tasks.start_soon(self._carry_out, session, control)
            finally:
                self._claiming = False
                self._notify_less()
            if not claimed or not self.claims.may_have_left:
                return

    async def _rest(self) -> float:
        """Return after how many seconds to look again, if no announcement comes: time alone may make a session due."""
        if self._draining or self._capacity(self.rules()).sessions <= 0:
            return math.inf  # whatever ends is announced
        if (left := self._claim_at - self.clock.monotonic()) > 0:
            return left
        if not self.may_claim():
            return LOOK_SECONDS
        try:
            due_at = await self.claims.next_due(self.owner, rules=self.rules(), chain=self.chain)
        except StoreError:
            return LOOK_SECONDS  # the claim says so
        if due_at is None:
            return math.inf
        left = (due_at - self.clock.now()).total_seconds()
        # What was due at the last claim waits for money, or for the end of a hold; what is due since then for nothing.
        was_due = left <= 0 and (self._claimed_at is None or due_at <= self._claimed_at)
        return LOOK_SECONDS if was_due else max(left, 0.0)

    def _capacity(self, rules: EscalationRules) -> Capacity:
        """Return how many sessions may start; those that wait for approval, or only for their end, hold no slot.

        A long remediation must not blind the lowest tier: with more than one slot, one is kept for it.
        """
        lowest, at_work = rules.lowest.number, self._at_work
        above = sum(1 for session in at_work if session.tier > lowest)
        return Capacity(
            sessions=min(self.slots - len(at_work), self._left_under_way),
            above=self.slots - 1 - above if self.slots > 1 else None,
        )

    @property
    def _is_crowded(self) -> bool:
        """Whether slots are free that no session may have, because too many are under way."""
        return self._left_under_way < self.slots - len(self._at_work)

    @property
    def _left_under_way(self) -> int:
        """How many more sessions may be under way."""
        return WAITING_FACTOR * self.slots - len(self.running)

    @property
    def _at_work(self) -> Sequence[Session]:
        """The sessions that hold a slot."""
        return [
            session
            for session, control in self.running.values()
            if not control.awaiting_approval and session.id not in self._written
        ]

    async def _claim(self, capacity: Capacity, rules: EscalationRules) -> Sequence[Session]:
        now = self._claimed_at = self.clock.now()
        try:
            claimed = await self.claims.claim(
                self.owner,
                rules=rules,
                now=now,
                cli_session_id=self.new_cli_session_id,
                log_path=self.log_path,
                chain=self.chain,
                room=capacity,
            )
        except StoreError as error:
            self._claim_at = self.clock.monotonic() + self._trouble.failed(error)
            return ()
        self._trouble.over()
        for session in claimed:
            log_context(self.log, session).info(
                LogEvent.SESSION_CLAIMED,
                trigger=session.trigger.value,
                attempt=session.attempt,
                started_by=session.started_by,
            )
        return claimed

    async def _carry_out(self, session: Session, control: StopControl) -> None:
        log, is_followed = log_context(self.log, session), False
        try:
            for listener in self.listeners:
                with _guarded(log):
                    listener.started(session)
            with _guarded(log):
                if self.hub.listening:
                    self.hub.publish(session_began(session, self.redact, self.clock.now()))
            async with self._run_guarded(session, control, log) as ending:
                is_followed = await self._write_end(session, ending, log)
                del ending  # with all its texts, which are given back below
        finally:
            is_awaited = self._is_crowded  # else the claim for its slot has taken all that is due
            del self.running[session.id]
            self._written.discard(session.id)
            self._notify_less()
        for listener in self.listeners:
            with _guarded(log):
                listener.left(session)
        if is_awaited or not is_followed:
            await self.dispatcher.announce()
        await self.memory.give_back()

    async def _write_end(self, session: Session, ending: Ending, log: Logger) -> bool:
        """Write an end, and announce it; return whether a session that follows was announced too."""
        # Its processes are gone, so another session may start. The claim goes first in the writer's queue, because it
        # is short and a slot is empty meanwhile; but not where the next tier, which is queued with the end, goes first.
        rules, report = self.rules(), ending.extraction.report
        is_last = report is None or not report.escalation.needed
        is_awaited = is_last and self._capacity(rules).is_short  # else all that is due has been claimed
        self._written.add(session.id)
        if is_awaited:
            await self.dispatcher.announce()
            await anyio.lowlevel.checkpoint()
        if ending.outcome is Outcome.LOST:
            await self.give_up(session, ending)
            return False
        finished = await commit_result(ending, queue=self.queue, rules=rules, log=log)
        if finished is None:
            return False
        is_followed = finished.next_session_id is not None
        if is_followed or not is_last:  # the claim looks at the database meanwhile
            await self.dispatcher.announce()
            await anyio.lowlevel.checkpoint()
        self._announce_end(session, ending, finished, log)
        return is_followed

    def _announce_end(self, session: Session, ending: Ending, finished: Finished, log: Logger) -> None:
        """Log and publish an end that the database has taken."""
        log_result(ending, finished, log)
        for listener in self.listeners:
            with _guarded(log):
                listener.ended(session, ending, finished)
        with _guarded(log):
            self.hub.publish(session_ended(session, ending, finished))

    @asynccontextmanager
    async def _run_guarded(self, session: Session, control: StopControl, log: Logger) -> AsyncIterator[Ending]:
        """Run one session; a fault in our own code ends this session only."""
        started = self.clock.monotonic()
        async with AsyncExitStack() as left:
            if control.cause is not None:
                why = "the daemon was stopped before it began"
                outcome = Outcome.LOST if control.cause is StopCause.LEASE_OVER else Outcome.CANCELLED
                ending = self._without_result(session, outcome, why, started)
            else:
                try:
                    ending = await left.enter_async_context(self.run_session(session, control))
                except Exception as error:
                    detail = f"{type(error).__name__}: {error}"
                    log.critical(LogEvent.SESSION_CRASHED, error=detail, exc_info=True)
                    ending = self._without_result(session, Outcome.ERROR, f"internal error: {detail}", started)
            yield ending

    def _without_result(self, session: Session, outcome: Outcome, error: str, started: float) -> Ending:
        return Ending(
            session_id=session.id,
            attempt=session.attempt,
            outcome=outcome,
            error=error,
            extraction=Extraction(method=ExtractionMethod.NONE, report=None),
            ended_at=self.clock.now(),
            duration_ms=round((self.clock.monotonic() - started) * 1000),
            calls_ran=0,
        )


def _at_once(capacity: Capacity) -> Capacity:
    """Return how many sessions to claim in one go: few one by one, many together.

    One starts while the next is claimed, and does not end together with it, which would have both wait for the
    database. Of many the last would wait for what all those do that have started.
    """
    return replace(capacity, sessions=1) if 1 < capacity.sessions <= _FEW else capacity


@contextmanager
def _guarded(log: Logger) -> Iterator[None]:
    """Log a listener's fault, so that it neither undoes what has happened nor ends the daemon."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any fault is the listener's own
        log.error(LogEvent.LISTENER_FAILED, error=f"{type(error).__name__}: {error}")
