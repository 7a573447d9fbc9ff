"""What sessions do, published live to any number of readers within the process.

Publishing never waits: a reader that is too slow loses its oldest facts, and is told how many. Without a reader a
fact costs one look at an empty tuple; code that has to work to make a fact asks `Hub.listening` first.

`Broadcast` turns what one session does (its stream, its gate, its end) into these facts.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypedDict

import anyio
import msgspec

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.live import (
    AssistantSaid,
    CallEnded,
    CallJudged,
    CallStarted,
    LinesLost,
    LiveFact,
    ResultCame,
    SessionBegan,
    SessionEnded,
)
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.sessions import DecisionReason, Ending, Finished, Outcome, Session
from claudeops.domain.stream.transcript import characters
from claudeops.formats.stream import AssistantText, StreamEvent, ToolEnded, ToolStarted, Transcript
from claudeops.logs import LogEvent, get_logger
from claudeops.wording.live import Redact, Viewpoint, agent_text_line, live_status, result_line

KEPT: Final = 1000
"""How many facts may wait for a reader; a session of half an hour has about this many."""

COMMAND_CHARACTERS: Final = 200
"""Length to which commands are cut; a renderer may show less."""

_REASON_CHARACTERS: Final = 500


class Subscription:
    """One reader's queue: facts in order, and a mark where some were lost. One reader may use it, from any thread."""

    def __init__(self, kept: int, wake: Callable[[], None]) -> None:
        self._facts: deque[LiveFact] = deque(maxlen=kept)
        self._lost = 0
        self._lock = threading.Lock()  # held for a few instructions: the sessions' event loop takes it too
        self._wake = wake
        self._arrived = anyio.Event()

    def give(self, fact: LiveFact) -> None:
        """Add one fact; when the queue is full the oldest is dropped. Call it on the event loop."""
        with self._lock:
            if len(self._facts) == self._facts.maxlen:
                self._lost += 1
            self._facts.append(fact)
        self._arrived.set()
        self._wake()

    def take(self) -> LiveFact | None:
        """Return the next fact, or `LinesLost` where some are missing before it; ``None`` if there is nothing new."""
        with self._lock:
            if self._lost:
                lost, self._lost = self._lost, 0
                return LinesLost(at=self._facts[0].at, count=lost)
            return self._facts.popleft() if self._facts else None

    async def receive(self) -> LiveFact:
        """Wait for the next fact. The waiter's task group bounds the wait."""
        while (fact := self.take()) is None:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return fact


def _nobody() -> None:
    return


class Hub:
    """Hands every fact to every reader. Everything happens on one event loop, the one of the sessions."""

    def __init__(self) -> None:
        self._readers: tuple[Subscription, ...] = ()

    @property
    def listening(self) -> bool:
        """Whether there is a reader; without one no fact needs to be made."""
        return bool(self._readers)

    def publish(self, fact: LiveFact) -> None:
        """Give a fact to all readers. Never waits, never raises: a reader's fault must not undo what has happened."""
        for reader in self._readers:
            try:
                reader.give(fact)
            except Exception as error:  # noqa: BLE001 - see above
                get_logger().error(LogEvent.LISTENER_FAILED, error=f"{type(error).__name__}: {error}")

    def from_threads(self) -> Callable[[LiveFact], None]:
        """Return a function that publishes from other threads. Call this method on the event loop of the sessions."""
        loop = asyncio.get_running_loop()

        def publish(fact: LiveFact) -> None:
            if self.listening:
                loop.call_soon_threadsafe(self.publish, fact)

        return publish

    @contextmanager
    def subscribe(self, *, kept: int = KEPT, wake: Callable[[], None] = _nobody) -> Iterator[Subscription]:
        """Subscribe for the length of the block; ``wake`` is called on the event loop for every new fact."""
        reader = Subscription(kept, wake)
        self._readers = (*self._readers, reader)
        try:
            yield reader
        finally:
            self._readers = tuple(other for other in self._readers if other is not reader)


class Broadcast(msgspec.Struct, kw_only=True):
    """Publishes what one session does while it runs; does nothing while nobody listens."""

    session: Session
    view: Viewpoint
    asks: bool  # its CLI asks before every call, so a call is published with its verdict
    hub: Hub
    _open: dict[str, str] = msgspec.field(default_factory=dict)  # the line of each call that has no result yet
    _silent: set[str] = msgspec.field(default_factory=set)  # calls that deliver the report; they are not published

    def note(self, fact: StreamEvent, at: datetime) -> None:
        """Publish a fact of the stream, if it is one that people want to see."""
        if not self.hub.listening:
            return
        match fact:
            case ToolStarted(name=name) if name == STRUCTURED_OUTPUT_TOOL:
                self._silent.add(fact.tool_use_id)
            case ToolStarted():
                self._start(fact, at)
            case ToolEnded() if fact.tool_use_id not in self._silent:
                self._end(fact, at)
            case AssistantText(from_subagent=False) if line := agent_text_line(fact.text, self.view):
                self.hub.publish(AssistantSaid(**self._about(), at=at, text=line))
            case _:
                pass

    def judged(self, call: ToolCall, verdict: Verdict, at: datetime) -> None:
        """Publish a call with the gate's verdict."""
        if not self.hub.listening:
            return
        if call.tool_name == STRUCTURED_OUTPUT_TOOL:
            self._silent.add(call.tool_use_id)
            return
        line = live_status(call.tool_name, call.input, self.view, task="")
        self._open[call.tool_use_id] = line
        self.hub.publish(
            CallJudged(
                **self._about(),
                at=at,
                tool_use_id=call.tool_use_id,
                tool=self.view.display(call.tool_name),
                line=line,
                verdict=verdict.kind,
                reason=self.view.display(verdict.reason, _REASON_CHARACTERS),
            )
        )

    def result(self, transcript: Transcript, at: datetime) -> None:
        """Publish that a result line came."""
        if not self.hub.listening:
            return
        self.hub.publish(
            ResultCame(
                **self._about(),
                at=at,
                is_error=transcript.is_error,
                cost_usd=transcript.cost_usd,
                num_turns=transcript.num_turns,
            )
        )

    def _start(self, fact: ToolStarted, at: datetime) -> None:
        if self.asks:
            return  # its verdict comes in a moment, and the call with it
        line = live_status(fact.name, fact.input, self.view, task="")
        self._open[fact.tool_use_id] = line
        tool = self.view.display(fact.name)
        self.hub.publish(CallStarted(**self._about(), at=at, tool_use_id=fact.tool_use_id, tool=tool, line=line))

    def _end(self, fact: ToolEnded, at: datetime) -> None:
        self.hub.publish(
            CallEnded(
                **self._about(),
                at=at,
                tool_use_id=fact.tool_use_id,
                line=self._open.pop(fact.tool_use_id, ""),
                is_error=fact.is_error,
                text=result_line(fact.text, self.view),
                characters=characters(fact.text or ""),
            )
        )

    def _about(self) -> _About:
        return _about(self.session)


def session_began(session: Session, redact: Redact, at: datetime) -> SessionBegan:
    """Return the fact that a session starts."""
    reason = session.context.reason if session.context is not None else session.prompt_text
    return SessionBegan(
        **_about(session),
        at=at,
        model=session.model,
        trigger=session.trigger,
        started_by=session.started_by,
        reason=None if reason is None else _one_line(reason, redact),
    )


def session_ended(session: Session, ending: Ending, finished: Finished) -> SessionEnded:
    """Return the fact that a session is over. Its texts were redacted when the ending was made."""
    report, following = ending.extraction.report, finished.decision.next
    return SessionEnded(
        **_about(session),
        at=ending.ended_at,
        outcome=ending.outcome,
        decision=finished.decision.reason,
        cost_usd=ending.cost_usd,
        duration_ms=ending.duration_ms,
        num_turns=ending.num_turns,
        summary=None if report is None else _one_line(report.summary),
        error=None if ending.error is None else _one_line(ending.error),
        next_session_id=finished.next_session_id,
        next_tier=None if following is None else following.tier,
    )


def session_lost(session: Session, at: datetime) -> SessionEnded:
    """Return the fact that a session was lost with its daemon; ``session``: its row as it is now."""
    return SessionEnded(
        **_about(session),
        at=at,
        outcome=session.outcome or Outcome.LOST,
        decision=session.decision_reason or DecisionReason.SESSION_FAILED,
        cost_usd=session.cost_usd,
        error=None if session.error is None else _one_line(session.error),
    )


class _About(TypedDict):
    session_id: int
    chain: int
    tier: int


def _about(session: Session) -> _About:
    return {"session_id": session.id, "chain": session.root_session_id, "tier": session.tier}


def _one_line(text: str, redact: Redact = str) -> str:
    return " ".join(redact(text).split())[:_REASON_CHARACTERS]
