"""Server-sent events: frames, ids, and the response that sends them as they come.

A frame is encoded once and goes to every reader as the same bytes. What a text holds cannot end its frame: a line of
it ends where the standard says that one ends, and begins with `data:` again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from claudeops.http_server import disconnected, drop, may_wait

EVENTS: Final = "text/event-stream"
"""The media type."""

RETRY_MILLISECONDS: Final = 2000
HEARTBEAT_SECONDS: Final = 15.0
HEARTBEAT: Final = b": hb\n\n"

SEND_SECONDS: Final = 60.0
"""A reader that takes nothing for this long has gone, whatever its connection says."""

_BYE_SECONDS: Final = 0.3
_MOST_DIGITS: Final = 18
_HEADERS: Final = {
    "Content-Type": EVENTS,
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

Write = Callable[[bytes], Awaitable[None]]


class StreamedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream, as a reader has it once its lines are put together."""

    data: str
    id: str = ""  # empty: as before
    event: str = "message"


def frame(frame_id: str, event: str, data: str) -> bytes:
    """Return one event; without a name it is a message. An id is not sent where it is empty.

    A browser drops an event without data, so it has at least a space. Raises `ValueError` for an id or a name
    that is no single line.
    """
    if any(sign in name for name in (frame_id, event) for sign in "\r\n\0"):
        raise ValueError("an id or a name of an event is one line")
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = [f"id: {frame_id}"] if frame_id else []
    head += [f"event: {event}"] if event else []
    return ("\n".join([*head, *(f"data: {line}" for line in lines)]) + "\n\n").encode(errors="replace")


def opening(frame_id: str) -> bytes:
    """Return what a stream begins with: when to come back, and with which id if nothing has come by then."""
    return f"retry: {RETRY_MILLISECONDS}\nid: {frame_id}\n\n".encode()


def number_after(name: str, frame_id: str) -> int | None:
    """Return the number of an id ``<name>.<number>``; ``None`` for what is no such id."""
    before, dot, digits = frame_id.rpartition(".")
    return natural(digits) if dot and before == name else None


def natural(digits: str) -> int | None:
    """Return a number as people and programs write it; ``None`` for anything else."""
    is_one = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return int(digits) if is_one else None


class EventStream(Response):
    """Sends what ``body`` writes until that returns, the reader goes, or everything stops.

    ``room`` is what it takes while it lasts.
    """

    def __init__(
        self,
        body: Callable[[Write], Awaitable[None]],
        *,
        closing: anyio.Event,
        room: AbstractContextManager[None],
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        """Keep what sends; ``closing`` is set when the daemon stops."""
        self.status_code = 200
        self.background = None
        self._write_body = body
        self._closing = closing
        self._room = room
        self._send_seconds = send_seconds
        self.init_headers(_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end."""
        with self._room:
            await self._send(scope, receive, send)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_stuck = has_gone = False

        async def write(content: bytes) -> None:
            nonlocal is_stuck
            message = {"type": "http.response.body", "body": content, "more_body": True}
            if not may_wait(scope):  # a bound costs as much as what it bounds
                await send(message)
                return
            with anyio.move_on_after(self._send_seconds) as sending:
                await send(message)
            if sending.cancelled_caught:
                is_stuck = True
                tasks.cancel_scope.cancel()
                await anyio.lowlevel.checkpoint()  # which ends the body: it writes nothing more

        async def watch() -> None:
            nonlocal has_gone
            await disconnected(receive)
            has_gone = True
            tasks.cancel_scope.cancel()

        async def stop() -> None:
            await self._closing.wait()
            tasks.cancel_scope.cancel()

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(stop)
            await self._write_body(write)
            tasks.cancel_scope.cancel()
        if has_gone:
            return
        if not is_stuck:
            last = frame("", "bye", "bye") if self._closing.is_set() else b""
            with anyio.move_on_after(_BYE_SECONDS) as saying:  # one that does not read cannot be sent it
                await send({"type": "http.response.body", "body": last, "more_body": False})
            is_stuck = saying.cancelled_caught
        if is_stuck and "state" in scope:
            await drop(scope, receive, unsent=False)
