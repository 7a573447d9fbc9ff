"""The lines of one session as they come, for any number of readers: each line read once and each frame encoded once.

A reader first reads the log by itself, up to its end, and then goes on with what all readers of the session share: the
last lines, in memory. One that falls behind them reads the log by itself again, so that none is ever left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import anyio
import msgspec
from markupsafe import escape

from claudeops.store.reading.calls import CallVerdict
from claudeops.web.news import NewsFeed
from claudeops.web.ports import LinesPart, OpenLog
from claudeops.web.sse import HEARTBEAT, HEARTBEAT_SECONDS, Write, frame
from claudeops.wording.stream import ShownLine

Render = Callable[[Sequence[ShownLine], Mapping[str, CallVerdict]], str]
"""Makes HTML of lines, without attributes that act: what is in it comes from models."""

BATCH: Final = 200
"""Lines of one reading."""

SHARED: Final = 500
"""Lines that readers share."""

_PAUSES: Final = (1.0, 0.3, 0.1, 0.03)  # seconds before a look, by how many more were asked for
_NEWS: Final = 3  # looks after news: the line may be on disk only a moment later
_GAPS: Final = (0.5, 0.02, 0.02, 0.02)  # between two looks, however many readers want one


class SessionTail:
    """The last lines of a session, read by whichever reader looks first."""

    def __init__(self, log: OpenLog, *, last: int) -> None:
        """Begin after line ``last``."""
        self.readers = 0
        self.ended = False  # these are the session's last lines
        self._log = log
        self._last = last
        self._kept: deque[TailLine] = deque(maxlen=SHARED)
        self._stirred = anyio.Event()
        self._soon = 0  # looks to be had soon
        self._looked_at = float("-inf")
        self._is_watched = False  # one of the readers looks; the others wait for what it finds
        self._found = NewsFeed()

    def stir(self) -> None:
        """There is news of the session."""
        self._soon = _NEWS
        self._stirred.set()
        self._stirred = anyio.Event()

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def after(self, number: int) -> Sequence[TailLine] | None:
        """Return the lines after one; ``None``: they are not all here any more."""
        if number < self._last - len(self._kept):
            return None
        return [line for line in self._kept if line.number > number]

    async def news(self, number: int) -> None:
        """Wait for lines after one, or for a while. Raises `OSError`."""
        if self._is_watched:
            with anyio.move_on_after(_PAUSES[0]):
                await self._found.wait()
            return
        self._is_watched = True
        try:
            with anyio.move_on_after(_PAUSES[self._soon]):
                await self._stirred.wait()
            if self._last <= number and not self.ended:
                await self._look()
        finally:
            self._is_watched = False
            self._found.tell_one()  # who looks on; this reader may be gone, or be busy for long

    async def _look(self) -> None:
        now = anyio.current_time()
        if now - self._looked_at < _GAPS[self._soon]:
            return
        self._looked_at = now
        self._soon = max(0, self._soon - 1)
        part = await self._log.read(self._last, limit=BATCH)
        for line in part.lines:
            self._kept.append(TailLine(line, part.verdicts))
            self._last = line.line
        self.ended = part.ended
        if part.more:
            self._soon = _NEWS
        if part.lines or part.ended:
            self._found.tell()


class TailLine:
    """A line, with what is on record about its call; each of its frames is encoded when it is first wanted."""

    __slots__ = ("_frames", "_shown", "_verdicts", "number")

    def __init__(self, shown: ShownLine, verdicts: Mapping[str, CallVerdict]) -> None:
        self.number = shown.line
        self._shown = shown
        self._verdicts = verdicts
        self._frames: dict[Render | None, bytes] = {}

    def frame(self, session_id: int, render: Render | None) -> bytes:
        """Return its frame, as JSON without something that renders it."""
        if (encoded := self._frames.get(render)) is None:
            frame_id = f"{session_id}.{self.number}"
            if render is None:
                encoded = frame(frame_id, "line", msgspec.json.encode(self._shown).decode())
            else:
                encoded = frame(frame_id, "", render([self._shown], self._verdicts))
            self._frames[render] = encoded
        return encoded


class LinesReader(msgspec.Struct, kw_only=True):
    """Sends the lines of a session to one reader, each once and in order."""

    session_id: int
    log: OpenLog
    at: int  # the last line that it has
    render: Render | None  # None: JSON
    write: Write
    join: Callable[
        [int], Awaitable[SessionTail]
    ]  # what readers of the session share; where there is none yet, it begins after a line
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    _wrote_at: float = 0.0

    async def send(self) -> None:
        """Write all lines, to the session's last, and then that it has ended. Raises `OSError`."""
        part = await self._read()
        while part.lines or part.more:
            part = await self._read()
        if not part.ended:
            await self._follow(await self.join(self.at))
        await self.write(frame("", "ended", "ended"))

    async def _read(self) -> LinesPart:
        """Write the next lines of the log, read by itself."""
        part = await self.log.read(self.at, limit=BATCH)
        await self._write([TailLine(line, part.verdicts) for line in part.lines])
        return part

    async def _follow(self, tail: SessionTail) -> None:
        while True:
            lines = tail.after(self.at)
            if lines is None:
                await self._read()
            elif lines:
                await self._write(lines[:BATCH])
            elif tail.ended:
                return
            else:
                await tail.news(self.at)
                if anyio.current_time() - self._wrote_at >= self.heartbeat_seconds:
                    await self.write(HEARTBEAT)
                    self._wrote_at = anyio.current_time()

    async def _write(self, lines: Sequence[TailLine]) -> None:
        if lines:
            await self.write(b"".join(line.frame(self.session_id, self.render) for line in lines))
            self.at = lines[-1].number
        self._wrote_at = anyio.current_time()


def plain(lines: Sequence[ShownLine], verdicts: Mapping[str, CallVerdict]) -> str:
    """Return lines as plain items of a list."""
    return "\n".join(_item(line, verdicts.get(line.tool_use_id or "")) for line in lines)


def _item(line: ShownLine, verdict: CallVerdict | None) -> str:
    said = "" if verdict is None else f" <b>{escape(verdict.verdict.value)}</b> {escape(verdict.reason)}"
    text = f"<pre>{escape(line.text)}</pre>" if line.text and line.text != line.title else ""
    failed = " error" if line.is_error else ""
    return f'<li id="L{line.line}" class="{line.kind.value}{failed}">{escape(line.title)}{said}{text}</li>'
