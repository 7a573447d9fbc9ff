"""One answer going out over its connection: the delay, the pieces, the scripted or unscripted end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from claudeops.loopback import disconnected, drop
from claudeops.rehearsal.player import Finish
from claudeops.rehearsal.traffic import Ending

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from claudeops.rehearsal.player import Reply


class Performance:
    """Sends a reply, until it is out, the client leaves or the server closes, whatever comes first."""

    def __init__(self, reply: Reply, *, closing: anyio.Event, on_end: Callable[[Performance, Ending], None]) -> None:
        self.started = False  # did anything go out?
        self._sent = False  # the whole answer?
        self._ending: Ending | None = None  # None while it goes on
        self._reply = reply
        self._closing = closing
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run as an ASGI response; the request's body must have been read."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_client, receive, tasks.cancel_scope)
            tasks.start_soon(self._watch_server, tasks.cancel_scope)
            await self._perform(send)
            tasks.cancel_scope.cancel()
        if not self._sent:
            await drop(scope, receive, unsent=self._ending is Ending.CUT)

    def end(self, ending: Ending) -> None:
        """Say how it ended. The first call counts: uvicorn reports a disconnection after every answer as well."""
        if self._ending is None:
            self._ending = ending
            self._on_end(self, ending)

    async def _perform(self, send: Send) -> None:
        await anyio.sleep(self._reply.delay_seconds)
        if self._reply.status is not None:
            await self._send_pieces(send, self._reply.status)
        if self._reply.finish is Finish.SILENCE:
            await anyio.sleep_forever()
        if not self._sent:
            self.end(Ending.CUT)

    async def _send_pieces(self, send: Send, status: int) -> None:
        headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in self._reply.headers.items()]
        self.started = True
        await send({"type": "http.response.start", "status": status, "headers": headers})
        is_whole = self._reply.finish is Finish.END
        for piece in self._reply.pieces[:-1] if is_whole else self._reply.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if is_whole:
            self.end(Ending.COMPLETE)  # before the last piece: what the client has read stands in the record
            await send({"type": "http.response.body", "body": self._reply.pieces[-1], "more_body": False})
            self._sent = True

    async def _watch_client(self, receive: Receive, performance: anyio.CancelScope) -> None:
        await disconnected(receive)
        self.end(Ending.GONE)
        performance.cancel()

    async def _watch_server(self, performance: anyio.CancelScope) -> None:
        await self._closing.wait()
        self.end(Ending.CLOSED)
        performance.cancel()
