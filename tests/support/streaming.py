"""Streams between a test and stand-ins: logs in memory, and a reader of events by the letter of the standard."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import h11
from anyio.abc import SocketStream

from claudeops.domain.live import AssistantSaid
from claudeops.web.ports import LinesPart
from claudeops.wording.stream import ShownKind, ShownLine
from support.waiting import PATIENCE_SECONDS

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(text: str, *, session_id: int = 7) -> AssistantSaid:
    """Return a fact of a session."""
    return AssistantSaid(at=NOON, session_id=session_id, chain=session_id, tier=1, text=text)


@dataclass
class HeldLog:
    """A log in memory, which a test lets grow."""

    texts: list[str] = field(default_factory=list)
    ended: bool = False
    error: OSError | None = None
    reads: list[int] = field(default_factory=list)  # after which line each began

    async def read(self, after: int, *, limit: int) -> LinesPart:
        self.reads.append(after)
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        there = len(self.texts)
        lines = [
            ShownLine(line=number, at=NOON, kind=ShownKind.TEXT, title=self.texts[number - 1])
            for number in range(after + 1, min(after + limit, there) + 1)
        ]
        more = after + limit < there
        return LinesPart(lines=lines, verdicts={}, more=more, ended=self.ended and not lines and not more)

    async def digest(self) -> str:
        await anyio.lowlevel.checkpoint()
        return sha256("\n".join(self.texts).encode()).hexdigest()

    def close(self) -> None:
        return


@dataclass
class HeldLogs:
    """The log of session 7."""

    log: HeldLog = field(default_factory=HeldLog)

    async def open(self, session_id: int) -> HeldLog | None:
        return self.log if session_id == 7 else None


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event, as a browser gives it to a page."""

    id: str  # the last one that was sent
    name: str
    data: str


@dataclass
class EventReader:
    """Reads events as the standard says (html.spec.whatwg.org, 9.2.6), from bytes that may be cut anywhere."""

    last_id: str = ""
    events: list[Event] = field(default_factory=list)
    comments: int = 0
    _rest: str = ""
    _name: str = ""
    _data: list[str] = field(default_factory=list)
    _decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    def feed(self, chunk: bytes) -> None:
        self._rest += self._decoder.decode(chunk)
        while (cut := _line_end(self._rest)) is not None:
            line, self._rest = self._rest[: cut[0]], self._rest[cut[1] :]
            self._take(line)

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def _take(self, line: str) -> None:
        if not line:
            if self._data:
                self.events.append(Event(id=self.last_id, name=self._name, data="\n".join(self._data)))
            self._name, self._data = "", []
        elif line.startswith(":"):
            self.comments += 1
        else:
            field_name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field_name == "event":
                self._name = value
            elif field_name == "data":
                self._data.append(value)
            elif field_name == "id" and "\0" not in value:
                self.last_id = value


def _line_end(text: str) -> tuple[int, int] | None:
    """Return where the first line ends and the next one begins."""
    for at, sign in enumerate(text):
        if sign == "\n":
            return at, at + 1
        if sign == "\r":
            if at + 1 == len(text):
                return None  # a line feed may follow
            return at, at + (2 if text[at + 1] == "\n" else 1)
    return None


@dataclass
class Reading:
    """An open stream."""

    status: int
    headers: Mapping[str, str]
    reader: EventReader
    _stream: SocketStream
    _connection: h11.Connection
    is_over: bool = False
    is_whole: bool = False  # it ended, and was not cut

    async def until(self, count: int, name: str | None = None) -> Sequence[Event]:
        """Return the events once there are so many of a name, or the stream is over."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while not self.is_over and len(self._wanted(name)) < count:
                await self._more()
        return self._wanted(name)

    async def until_heartbeat(self) -> None:
        """Return once a comment has come."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while not self.is_over and not self.reader.comments:
                await self._more()

    async def to_end(self) -> Sequence[Event]:
        """Return all events once the stream is over."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while not self.is_over:
                await self._more()
        return self.reader.events

    def _wanted(self, name: str | None) -> Sequence[Event]:
        return self.reader.events if name is None else self.reader.named(name)

    async def _more(self) -> None:
        event = self._connection.next_event()
        if event is h11.NEED_DATA:
            try:
                self._connection.receive_data(await self._stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.is_over = True
        elif isinstance(event, h11.Data):
            self.reader.feed(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            self.is_over, self.is_whole = True, isinstance(event, h11.EndOfMessage)


@asynccontextmanager
async def reading(url: str, headers: Mapping[str, str] | None = None, *, last_id: str = "") -> AsyncIterator[Reading]:
    """Open a stream for the length of the block; leaving it cuts the connection."""
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    named = {"host": parts.netloc, **(headers or {}), **({"last-event-id": last_id} if last_id else {})}
    async with await anyio.connect_tcp(str(parts.hostname), int(parts.port or 0)) as stream:
        connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method="GET", target=target, headers=list(named.items()))
        await stream.send(b"".join(connection.send(part) or b"" for part in (request, h11.EndOfMessage())))
        with anyio.fail_after(PATIENCE_SECONDS):
            while (event := connection.next_event()) is h11.NEED_DATA:
                connection.receive_data(await stream.receive())
        assert isinstance(event, h11.Response)
        answered = {name.decode(): value.decode() for name, value in event.headers}
        yield Reading(event.status_code, answered, EventReader(last_id=last_id), stream, connection)
