"""Availability of the model API: reports that it refuses us or serves us again, and what follows for all sessions.

Reports come from anywhere in the event loop, at once and without waiting. What follows from them is written to the
database later, in the order of the reports.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.clock import Clock
from claudeops.domain.chains.failure import kind_of_call
from claudeops.domain.holds import REFUSALS, ApiRefusal
from claudeops.domain.sessions import FailureKind, Session
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.formats.stream import ApiRetried, RateLimited, StreamEvent, ToolStarted
from claudeops.logs import LogEvent, Logger
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble

if TYPE_CHECKING:  # SQL: commands that only read the wiring do without
    from claudeops.store.holds import Holds

_TRIES: Final = 5  # over a quarter of a minute


class Availability:
    """Takes reports about the model API and writes them. One per daemon; reports from before `run` are kept for it."""

    def __init__(self, *, holds: Holds, clock: Clock, log: Logger) -> None:
        self._holds = holds
        self._clock = clock
        self._log = log
        self._trouble = DatabaseTrouble(log, "hold")
        self._reports: deque[ApiRefusal | Session] = deque()  # a refusal, or a session that was answered
        self._served: set[int] = set()  # sessions that were answered since they began, or since their last refusal
        self._more = anyio.Event()

    def report_refusal(self, refusal: ApiRefusal) -> None:
        """Report that the model API refused a call; kinds that cause no hold are ignored. Raises nothing."""
        if refusal.session_id is not None:
            self._served.discard(refusal.session_id)
        if refusal.kind in REFUSALS:
            self._report(refusal)

    def report_success(self, session: Session) -> None:
        """Report that the model API has answered a session; only the first answer after a refusal is news.

        Both the meter and the stream report what they see, so the second report is ignored. Raises nothing.
        """
        if session.id not in self._served:
            self._served.add(session.id)
            self._report(session)

    def forget(self, session_id: int) -> None:
        """Drop what is known of a session that has ended."""
        self._served.discard(session_id)

    async def run(self) -> None:
        """Write what was reported, until cancelled."""
        while True:
            while self._reports:
                await self._write(self._reports.popleft())
            self._more = anyio.Event()
            await self._more.wait()

    def _report(self, what: ApiRefusal | Session) -> None:
        self._reports.append(what)
        self._more.set()

    async def _write(self, report: ApiRefusal | Session) -> None:
        for _ in range(_TRIES):
            try:
                await (self._refused(report) if isinstance(report, ApiRefusal) else self._answered(report))
            except StaleAttemptError as error:
                self._log.error(LogEvent.STALE_ATTEMPT, error=str(error))
                return
            except StoreError as error:
                # A bounded number of tries, because the end of the session says it again.
                await anyio.sleep(self._trouble.failed(error))
            else:
                self._trouble.over()
                return

    async def _refused(self, refusal: ApiRefusal) -> None:
        await self._holds.refused(refusal, now=self._clock.now())
        self._log.warning(
            LogEvent.MODEL_API_REFUSED,
            session_id=refusal.session_id,
            kind=refusal.kind.value,
            resets_at=None if refusal.resets_at is None else refusal.resets_at.isoformat(),
            detail=refusal.message,
        )

    async def _answered(self, session: Session) -> None:
        released = await self._holds.answered(session.id, attempt=session.attempt, now=self._clock.now())
        if released:
            self._log.info(LogEvent.HOLD_RELEASED, kinds=[kind.value for kind in released], session_id=session.id)


class SessionAvailability:
    """Reports what one session's stream shows about the model API."""

    def __init__(self, availability: Availability | None, session: Session) -> None:
        self._availability = availability
        self._session = session

    def handle(self, fact: StreamEvent) -> None:
        """Report what a fact says about the model API. A tool call is an answer; a text may be the CLI's own."""
        if self._availability is None:
            return
        match fact:
            case ApiRetried():
                kind = kind_of_call(label=fact.error, status=fact.status)
                trying = kind in {FailureKind.RATE_LIMIT, FailureKind.OVERLOADED}
                message = " ".join(str(part) for part in (fact.status, fact.error) if part is not None)
                self._refused(self._availability, ApiRefusal(kind=kind, message=message, trying=trying))
            case RateLimited(rejected=True):
                refusal = ApiRefusal(
                    kind=FailureKind.RATE_LIMIT,
                    message=fact.window or "",
                    resets_at=fact.resets_at,
                    trying=True,
                )
                self._refused(self._availability, refusal)
            case ToolStarted():
                self._availability.report_success(self._session)
            case _:
                pass

    def _refused(self, availability: Availability, refusal: ApiRefusal) -> None:
        availability.report_refusal(replace(refusal, session_id=self._session.id, attempt=self._session.attempt))
