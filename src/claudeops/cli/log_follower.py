"""One session's log, read as it grows and told as if one had been there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from claudeops.domain.activity import Viewpoint
from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL, ToolCall
from claudeops.domain.stream import LineSplitter, ResultSeen, ToolEnded, ToolStarted, decode
from claudeops.engine.arrivals import Arrivals
from claudeops.engine.broadcast import COMMAND_CHARACTERS, Broadcast
from claudeops.engine.hub import Hub
from claudeops.engine.old_logs import open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from claudeops.domain.activity import Redact
    from claudeops.domain.live import LiveFact
    from claudeops.domain.model import Session, Verdict
    from claudeops.domain.stream import StreamEvent, Transcript
    from claudeops.harness.protocol import Harness

CHUNK_BYTES: Final = 1024 * 1024

_PATIENCE_LOOKS: Final = 5
"""So many looks long a call waits for its verdict: the stream shows it a moment before the gate is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A fact of the stream, or the result line's transcript, that is to be told."""

    fact: StreamEvent
    at: datetime
    transcript: Transcript | None = None  # as it stood at a result line


class LogFollower:
    """Gives what is new in a log at each look. Half a line at its end waits for its other half.

    Use it as a context manager. Not for an event loop that others share: it reads as fast as the disk does.
    """

    def __init__(self, session: Session, harness: Harness, *, redact: Redact, now: Callable[[], datetime]) -> None:
        """Open the log of ``session``, packed or not; raises `OSError`."""
        path = Path(session.log_path or "")
        self._log: BinaryIO = open_log(path)
        self._arrivals = Arrivals(path)
        self._now = now
        self._asks = harness.capabilities.gate
        self._reader = harness.reader()
        self._splitter = LineSplitter()
        self._line, self._offset = 0, 0
        self._untold: deque[_Seen] = deque()
        self._looks = 0  # since the first of them waits for its verdict
        self._hub = Hub()
        view = Viewpoint(root="/", redact=redact, command_chars=COMMAND_CHARACTERS)
        self._broadcast = Broadcast(session=session, view=view, asks=False, hub=self._hub)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()
        self._arrivals.close()

    def look(self) -> bool:
        """Read what came since the last look, at most `CHUNK_BYTES`; tell whether there may be more at once."""
        chunk = self._log.read(CHUNK_BYTES)
        for line in self._splitter.push(chunk):
            self._read(line)
        return len(chunk) == CHUNK_BYTES

    def facts(self, verdicts: Mapping[str, Verdict], *, ended: bool = False) -> list[LiveFact]:
        """Return what can be told by now; once the session has ``ended``, all of it."""
        if ended and (rest := self._splitter.flush()) is not None:
            self._read(rest)
        self._looks += 1
        with self._hub.subscribe(kept=max(1, len(self._untold))) as told:
            while self._untold and (ended or self._may_be_told(self._untold[0], verdicts)):
                self._tell(self._untold.popleft(), verdicts)
                self._looks = 0
            return list(iter(told.take, None))

    def _read(self, line: bytes) -> None:
        self._line += 1
        # What is in the index came earlier; what is not yet has come just now.
        at = self._arrivals.next(self._line, self._offset) or self._now()
        self._offset += len(line) + 1
        for fact in self._reader.feed(decode(line)):
            transcript = self._reader.close() if isinstance(fact, ResultSeen) else None
            self._untold.append(_Seen(fact=fact, at=at, transcript=transcript))

    def _may_be_told(self, seen: _Seen, verdicts: Mapping[str, Verdict]) -> bool:
        fact = seen.fact
        if not self._asks or not isinstance(fact, ToolStarted) or fact.name == STRUCTURED_OUTPUT_TOOL:
            return True
        return fact.tool_use_id in verdicts or self._looks > _PATIENCE_LOOKS or self._ended(fact.tool_use_id)

    def _ended(self, tool_use_id: str) -> bool:
        return any(isinstance(seen.fact, ToolEnded) and seen.fact.tool_use_id == tool_use_id for seen in self._untold)

    def _tell(self, seen: _Seen, verdicts: Mapping[str, Verdict]) -> None:
        fact = seen.fact
        verdict = verdicts.get(fact.tool_use_id) if isinstance(fact, ToolStarted) else None
        if isinstance(fact, ToolStarted) and verdict is not None:
            call = ToolCall(tool_use_id=fact.tool_use_id, tool_name=fact.name, input=fact.input or {})
            self._broadcast.judged(call, verdict, seen.at)
        elif seen.transcript is not None:
            self._broadcast.result(seen.transcript, seen.at)
        else:
            self._broadcast.note(fact, seen.at)
