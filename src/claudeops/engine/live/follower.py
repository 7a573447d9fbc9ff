"""One session's log, followed as it grows and turned into the live facts that a subscriber would have seen."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import msgspec

from claudeops.domain.calls import ToolCall
from claudeops.domain.chains.chain_record import TimedVerdict
from claudeops.domain.live import CallJudged, CallStarted, LiveFact
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.sessions import Session
from claudeops.engine.live.hub import COMMAND_CHARACTERS, Broadcast, Hub
from claudeops.engine.session_log.reader import LogIndexReader
from claudeops.engine.session_log.tail import GrowingLog
from claudeops.formats.stream import (
    ResultRead,
    SessionStarted,
    StreamEvent,
    ToolEnded,
    ToolStarted,
    Transcript,
    decode_abridged,
)
from claudeops.harness.protocol import Harness
from claudeops.structs import replace
from claudeops.wording.live import Redact, Viewpoint

_PATIENCE_LOOKS: Final = 5
"""How many looks a call waits for its verdict: the stream shows the call a moment before the gate is asked."""


class LogFollower:
    """Returns what is new in a log at each look. An incomplete last line waits for its end.

    Use it as a context manager. Keep it off an event loop that others share: it blocks on the disk.
    """

    def __init__(self, session: Session, harness: Harness, *, redact: Redact, now: Callable[[], datetime]) -> None:
        """Open the log of ``session``, packed or not; raises `OSError`."""
        path = Path(session.log_path or "")
        self._log = GrowingLog(path)
        self._arrivals = LogIndexReader(path)
        self._now = now
        self._asks = harness.capabilities.gate
        self._reader = harness.reader()
        self._line, self._offset = 0, 0
        self._pending: deque[_Seen] = deque()
        self._looks = 0  # since the first pending fact began to wait for its verdict
        self._open: dict[str, ToolStarted] = {}  # calls that were published and have no result yet
        self._verdicts_published: Counter[str] = Counter()  # by call
        self._hub = Hub()
        view = Viewpoint(root=None, redact=redact, command_chars=COMMAND_CHARACTERS)
        self._broadcast = Broadcast(session=session, view=view, asks=False, hub=self._hub)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()
        self._arrivals.close()

    def look(self) -> bool:
        """Read what came since the last look, up to a bound; return whether there may be more already."""
        lines, more = self._log.look()
        for line in lines:
            self._read(line)
        return more

    def facts(self, verdicts: Mapping[str, Sequence[TimedVerdict]], *, ended: bool = False) -> list[LiveFact]:
        """Return the facts that are complete by now, in order of time; all of them once the session has ``ended``.

        A call comes with its first verdict. Further verdicts, perhaps given by people much later, are placed by their
        own time.
        """
        if ended and (rest := self._log.rest()) is not None:
            self._read(rest)
        self._looks += 1
        facts: list[LiveFact] = []
        with self._hub.subscribe() as published:
            while self._pending and (ended or self._is_ready(self._pending[0], verdicts)):
                seen = self._pending.popleft()
                if isinstance(seen.fact, ToolEnded):  # all verdicts on a call come before its result
                    self._publish_further(seen.fact.tool_use_id, verdicts)
                    in_order(facts, iter(published.take, None))
                    self._open.pop(seen.fact.tool_use_id, None)
                self._publish(seen, verdicts)
                facts.extend(iter(published.take, None))
                self._looks = 0
            for tool_use_id in self._open:
                self._publish_further(tool_use_id, verdicts)
            in_order(facts, iter(published.take, None))
        return facts

    def _read(self, line: bytes) -> None:
        self._line += 1
        # A line that is not in the index yet has come just now.
        at = self._arrivals.next(self._line, self._offset) or self._now()
        self._offset += len(line) + 1
        for fact in self._reader.feed(decode_abridged(line)):
            transcript = self._reader.close() if isinstance(fact, ResultRead) else None
            self._pending.append(_Seen(fact=fact, at=at, transcript=transcript))

    def _is_ready(self, seen: _Seen, verdicts: Mapping[str, Sequence[TimedVerdict]]) -> bool:
        fact = seen.fact
        if not self._asks or not isinstance(fact, ToolStarted) or fact.name == STRUCTURED_OUTPUT_TOOL:
            return True
        return fact.tool_use_id in verdicts or self._looks > _PATIENCE_LOOKS or self._ended(fact.tool_use_id)

    def _ended(self, tool_use_id: str) -> bool:
        return any(isinstance(seen.fact, ToolEnded) and seen.fact.tool_use_id == tool_use_id for seen in self._pending)

    def _publish(self, seen: _Seen, verdicts: Mapping[str, Sequence[TimedVerdict]]) -> None:
        fact = seen.fact
        if isinstance(fact, SessionStarted):
            self._broadcast.view = replace(self._broadcast.view, root=fact.cwd)
        if isinstance(fact, ToolStarted):
            self._open[fact.tool_use_id] = fact
            if given := verdicts.get(fact.tool_use_id):
                self._judged(fact, given[0], seen.at)
                return
        if seen.transcript is not None:
            self._broadcast.result(seen.transcript, seen.at)
        else:
            self._broadcast.note(fact, seen.at)

    def _publish_further(self, tool_use_id: str, verdicts: Mapping[str, Sequence[TimedVerdict]]) -> None:
        """Publish the verdicts on an open call that were not published yet."""
        call = self._open.get(tool_use_id)
        for judged in verdicts.get(tool_use_id, ())[self._verdicts_published[tool_use_id] :]:
            if call is not None:
                self._judged(call, judged, judged.at)

    def _judged(self, call: ToolStarted, judged: TimedVerdict, at: datetime) -> None:
        self._verdicts_published[call.tool_use_id] += 1
        named = ToolCall(tool_use_id=call.tool_use_id, tool_name=call.name, input=call.input or {})
        self._broadcast.judged(named, judged.verdict, at)


def in_order(facts: list[LiveFact], late: Iterable[LiveFact]) -> None:
    """Insert late facts into an ordered list by their time, but never before the call that they are about."""
    for fact in late:
        place = len(facts)
        while place and facts[place - 1].at > fact.at and not _same_call(facts[place - 1], fact):
            place -= 1
        facts.insert(place, fact)


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of the stream that is not published yet; for a result line, with the transcript."""

    fact: StreamEvent
    at: datetime
    transcript: Transcript | None = None  # as it was at a result line


def _same_call(one: LiveFact, other: LiveFact) -> bool:
    calls = CallStarted | CallJudged
    return isinstance(one, calls) and isinstance(other, calls) and one.tool_use_id == other.tool_use_id
