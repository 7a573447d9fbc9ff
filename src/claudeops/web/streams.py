"""The live streams: what one session does, line by line, and what all of them do."""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, Literal

import anyio
import msgspec
from starlette.responses import Response

from claudeops.domain.access.tokens import ScopeKind
from claudeops.errors import StoreError
from claudeops.web.endpoints import LAST_EVENT_ID, Endpoint, WebCall
from claudeops.web.feed import Feed
from claudeops.web.ports import Live, LogElsewhereError, LogLines, OpenLog
from claudeops.web.problems import RefusedError, later
from claudeops.web.sse import (
    EVENTS,
    HEARTBEAT_SECONDS,
    EventStream,
    StreamedEvent,
    Write,
    frame,
    natural,
    number_after,
    opening,
)
from claudeops.web.tail import LinesReader, Render, SessionTail, plain
from claudeops.wording.stream import ShownLine

MOST_STREAMS: Final = 200
MOST_OF_ONE: Final = 20
"""Streams of one caller."""

FULL_SECONDS: Final = 15
"""After which a reader may try again for whom there was no room."""

_PAGE: Final = 200  # lines
_LAST_ID: Final = LAST_EVENT_ID.lower()
_MOST_LINE: Final = 10**18


EventId = Annotated[str, msgspec.Meta(extra_json_schema={"format": "event-id"})]


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stream is wanted."""

    after: EventId = ""  # the line, or the id, up to which the reader has all; the header `Last-Event-ID` wins
    format: Literal["html", "json"] | None = None


class LinesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines are wanted."""

    after: Annotated[int, msgspec.Meta(ge=0, le=_MOST_LINE)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=_PAGE)] = 50


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a log."""

    items: Sequence[ShownLine]
    next: int | None  # what to give as ``after`` for more; None: there are no more now


@dataclass(kw_only=True)
class Streams:
    """Everybody who reads live."""

    live: Live
    logs: LogLines
    render: Render = plain
    closing: anyio.Event = field(default_factory=anyio.Event)  # set when the listener stops
    boot: str = field(default_factory=partial(secrets.token_hex, 6))
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    clients: int = 0  # streams that are open
    feed: Feed = field(init=False)
    _of_one: Counter[str] = field(default_factory=Counter)
    _tails: dict[int, SessionTail] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.feed = Feed(self.live, self.boot, stir=self._stir)

    @property
    def dropped(self) -> int:
        """Facts that readers were too slow for."""
        return self.feed.dropped

    def listens(self, closing: anyio.Event) -> None:
        """End the streams when ``closing`` is set: the listener that carries them closes."""
        self.closing = closing

    def close(self) -> None:
        """Let go of what sessions do; the streams end by themselves when the listener does."""
        self.feed.close()

    # --- the whole fleet ------------------------------------------------------------------------------

    async def fleet(self, call: WebCall) -> Response:
        """Answer with what all sessions do from now on, or from an id on."""
        wanted = call.asked(StreamQuery)
        after = call.headers.get(_LAST_ID) or wanted.after
        send = partial(self.feed.send, heartbeat_seconds=self.heartbeat_seconds)
        return self._stream(call, partial(send, after=after, as_json=_as_json(wanted, call)))

    # --- one session ----------------------------------------------------------------------------------

    async def session(self, call: WebCall) -> Response:
        """Answer with the lines of a session, as they come."""
        wanted = call.asked(StreamQuery)
        after = natural(wanted.after or "0")
        if after is None:
            raise RefusedError(422, "The query is not as it should be: `after` is the number of a line.")
        session_id, log = await self._log(call)
        last_id = call.headers.get(_LAST_ID)
        given = after if last_id is None else number_after(str(session_id), last_id)
        with _closed(log):
            known = [line for line in (given, after) if line is not None and await _is_there(log, line)]
        at = known[0] if known else 0
        render = None if _as_json(wanted, call) else self.render
        return self._stream(call, partial(self._lines, session_id, log, at, is_known=at == given, render=render))

    async def lines(self, call: WebCall) -> LogPage:
        """Answer with some lines of a session."""
        wanted = call.asked(LinesQuery)
        _, log = await self._log(call)
        with _closed(log):
            part = await log.read(wanted.after, limit=wanted.limit)
        return LogPage(items=part.lines, next=part.lines[-1].line if part.lines and part.more else None)

    async def _log(self, call: WebCall) -> tuple[int, OpenLog]:
        session_id = natural(call.params["id"])
        log = None if session_id is None else await self.logs.open(session_id)
        if session_id is None or log is None:
            raise RefusedError(404, "There is no such session.")
        return session_id, log

    async def _lines(
        self, session_id: int, log: OpenLog, at: int, write: Write, *, is_known: bool, render: Render | None
    ) -> None:
        """Write the lines of a session after a line; ``is_known``: it is the one that the reader named."""
        joined: list[SessionTail] = []

        async def join(last: int) -> SessionTail:
            joined.append(await self._joined(session_id, last))
            return joined[0]

        reader = LinesReader(
            session_id=session_id,
            log=log,
            at=at,
            render=render,
            write=write,
            join=join,
            heartbeat_seconds=self.heartbeat_seconds,
        )
        try:
            with self.feed.reader():
                await write(opening(f"{session_id}.{at}"))
                if not is_known:
                    await write(frame(f"{session_id}.{at}", "resync", str(at)))
                with contextlib.suppress(OSError, StoreError):  # it comes back, and is answered why
                    await reader.send()
        finally:
            log.close()
            for tail in joined:
                self._leave(session_id, tail)

    async def _joined(self, session_id: int, last: int) -> SessionTail:
        if session_id not in self._tails and (log := await self.logs.open(session_id)) is not None:
            self._tails.setdefault(session_id, SessionTail(log, last=last))  # another reader may have been quicker
        if (tail := self._tails.get(session_id)) is None:
            raise FileNotFoundError
        tail.readers += 1
        return tail

    def _leave(self, session_id: int, tail: SessionTail) -> None:
        tail.readers -= 1
        if not tail.readers:
            del self._tails[session_id]
            tail.close()

    # --- all of them ----------------------------------------------------------------------------------

    def _stir(self, session_id: int) -> None:
        if (tail := self._tails.get(session_id)) is not None:
            tail.stir()

    def _stream(self, call: WebCall, body: Callable[[Write], Awaitable[None]]) -> Response:
        """Return the answer that goes on and on. Raises `RefusedError` where there is no room.

        The room is taken when the answer is sent, which is before anybody else is asked for.
        """
        name = "" if call.caller is None else call.caller.name
        if self._of_one[name] >= MOST_OF_ONE:
            raise later(f"{name} has too many streams.", seconds=FULL_SECONDS)
        if self.clients >= MOST_STREAMS:
            raise later("There are too many streams.", seconds=FULL_SECONDS)
        return EventStream(partial(_while_current, call, body), closing=self.closing, room=self._room(name))

    @contextlib.contextmanager
    def _room(self, name: str) -> Iterator[None]:
        self._of_one[name] += 1
        self.clients += 1
        try:
            yield
        finally:
            self.clients -= 1
            self._of_one[name] -= 1
            if not self._of_one[name]:
                del self._of_one[name]


def stream_endpoints(streams: Streams) -> Sequence[Endpoint]:
    """Return the rows of the streams and of lines."""
    read = ScopeKind.READ.value
    return (
        Endpoint(
            method="GET",
            path="/stream",
            scope=read,
            query=StreamQuery,
            answer=StreamedEvent,
            media=EVENTS,
            headers=(LAST_EVENT_ID,),
            handler=streams.fleet,
            summary="Streams what all sessions do, from now on or from an id on.",
        ),
        Endpoint(
            method="GET",
            path="/sessions/{id}/stream",
            scope=read,
            query=StreamQuery,
            answer=StreamedEvent,
            media=EVENTS,
            headers=(LAST_EVENT_ID,),
            handler=streams.session,
            summary="Streams the log of a session line by line, from a line on and as it grows.",
        ),
        Endpoint(
            method="GET",
            path="/api/v1/sessions/{id}/lines",
            scope=read,
            query=LinesQuery,
            answer=LogPage,
            handler=streams.lines,
            summary="Gives lines of a session's log, `?limit=` (at most 200) after line `?after=`.",
        ),
    )


async def _while_current(call: WebCall, body: Callable[[Write], Awaitable[None]], write: Write) -> None:
    """Let a stream go on for as long as its reader may have it: a login ends, a token is revoked."""
    with anyio.CancelScope() as scope:

        async def send(content: bytes) -> None:
            if not await call.is_current():
                scope.cancel()
                await anyio.lowlevel.checkpoint()  # which ends the body
            await write(content)

        await body(send)


async def _is_there(log: OpenLog, line: int) -> bool:
    lines = (await log.read(max(0, line - 1), limit=1)).lines
    return line == 0 or bool(lines)


def _as_json(wanted: StreamQuery, call: WebCall) -> bool:
    if wanted.format is not None:
        return wanted.format == "json"
    return "profile=json" in call.headers.get("accept", "").replace(" ", "").replace('"', "").lower().split(",")[0]


@contextlib.contextmanager
def _closed(log: OpenLog) -> Iterator[None]:
    """Close the log after the block. Raises `RefusedError` where it cannot be read."""
    try:
        yield
    except LogElsewhereError as error:
        raise RefusedError(404, error.strerror or "") from None
    except FileNotFoundError:
        raise RefusedError(404, "The log of this session is not kept any more.") from None
    except OSError:
        raise later("The log of this session cannot be read now.", seconds=FULL_SECONDS) from None
    finally:
        log.close()
