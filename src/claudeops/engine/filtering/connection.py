"""The two sides of a connection to a filter, as HTTP/1.1: the session's, and the engine's, for one request each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio
import h11
import msgspec
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from claudeops.tasks import open_tasks

_CHUNK_BYTES: Final = 64 * 1024
_IDLE_SECONDS: Final = 300.0  # between two requests of a connection
_WITHOUT_BODY: Final = frozenset({204, 304})  # and so without its length
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
MOST_BODY: Final = 256 * 1024  # bytes of a request
ERROR: Final = 400
SWITCHING: Final = 101
_MIGHT_SWITCH: Final = h11._state.MIGHT_SWITCH_PROTOCOL  # noqa: SLF001 - h11 has it in its documentation alone


class PeerGoneError(Exception):
    """The other side of a connection has closed it, or sends what is no HTTP."""


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    """The head of an answer."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]  # names in lower case


class Client(msgspec.Struct, kw_only=True):
    """The session's side of a connection."""

    stream: ByteStream
    worded: Callable[[int, str], bytes]  # a status and a sentence, as the engine itself answers
    has_begun: bool = False  # the answer to the last request
    may_switch: bool = False  # the last request wants another protocol
    _wire: h11.Connection = msgspec.field(default_factory=lambda: h11.Connection(h11.SERVER))

    async def request(self) -> tuple[h11.Request, bytes] | None:
        """Return the next request with its body; None: there are no more."""
        self.has_begun = False
        try:
            with anyio.fail_after(_IDLE_SECONDS):
                request = await self._event()
                if not isinstance(request, h11.Request):
                    return None
                body = bytearray()
                while isinstance(event := await self._event(), h11.Data):
                    body += event.data
                    if len(body) > MOST_BODY:
                        await self.send(413, self.worded(413, "the body of the request is too long"))
                        return None
        except TimeoutError:
            return None
        except h11.RemoteProtocolError as error:
            with suppress(h11.LocalProtocolError):
                await self.send(error.error_status_hint, self.worded(error.error_status_hint, "that is no request"))
            return None
        self.may_switch = self._wire.their_state is _MIGHT_SWITCH
        return request, bytes(body)

    async def _event(self) -> object:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            if self._wire.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._wire.receive_data(await _received(self.stream))
        return event

    async def _send(self, event: h11.Event) -> None:
        if (data := self._wire.send(event)) is not None:
            await self.stream.send(data)

    async def send(
        self,
        status: int,
        body: bytes,
        *,
        head: bool = False,
        kept: Sequence[tuple[bytes, bytes]] = (),
        media: bytes = b"application/json",
    ) -> None:
        """Send a whole answer; ``head``: without its body."""
        headers = [*kept]
        if body or status >= ERROR:
            headers += [(b"content-type", media)]
        if status not in _WITHOUT_BODY:
            headers += [(b"content-length", str(len(body)).encode())]
        self.has_begun = True
        await self._send(h11.Response(status_code=status, headers=headers))
        if body and not head:
            await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Begin an answer of unknown length."""
        self.has_begun = True
        await self._send(h11.Response(status_code=status, headers=[*headers, (b"transfer-encoding", b"chunked")]))

    async def go_on(self, chunk: bytes) -> None:
        """Send a part of it."""
        await self._send(h11.Data(data=chunk))

    async def finish(self) -> None:
        """End it."""
        await self._send(h11.EndOfMessage())

    async def switch(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Say that the other protocol begins."""
        self.has_begun = True
        await self._send(h11.InformationalResponse(status_code=101, headers=[*headers], reason=b"UPGRADED"))

    def rest(self) -> bytes:
        """Return what came behind the request."""
        return bytes(self._wire.trailing_data[0])

    def goes_on(self) -> bool:
        """Return whether another request may follow."""
        if self._wire.our_state is not h11.DONE or self._wire.their_state is not h11.DONE:
            return False
        self._wire.start_next_cycle()
        return True

    async def until_gone(self, scope: anyio.CancelScope) -> None:
        """Wait for the end of a connection on which an answer goes out, and cancel; further requests are not read."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            # What comes meanwhile would be a request that is sent ahead: it is refused with the connection.
            await self.stream.receive(1)
        scope.cancel()
        raise PeerGoneError


class EngineConnection(msgspec.Struct, kw_only=True):
    """The engine's side of a connection, for one request."""

    stream: ByteStream
    _wire: h11.Connection = msgspec.field(default_factory=lambda: h11.Connection(h11.CLIENT))

    async def ask(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes = b"", *, upgrade: str = ""
    ) -> ResponseHead:
        """Send a request; return the head of the answer. With ``upgrade``, a protocol, its status may be `SWITCHING`.

        ``headers``: all but those about the connection and the length of the body.
        """
        length = [("Content-Length", str(len(body)))] if body or method in _WITH_BODY else []
        way = [("Connection", "Upgrade"), ("Upgrade", upgrade)] if upgrade else [("Connection", "close")]
        wanted = [("User-Agent", "claudeops"), *headers, *length, *way]
        data = self._wire.send(h11.Request(method=method, target=target, headers=wanted)) or b""
        data += self._wire.send(h11.Data(data=body)) or b"" if body else b""
        data += self._wire.send(h11.EndOfMessage()) or b""
        await self.stream.send(data)
        while True:
            event = await self._event()
            if isinstance(event, h11.Response) or (
                isinstance(event, h11.InformationalResponse) and event.status_code == SWITCHING
            ):
                return ResponseHead(status=event.status_code, headers=tuple(event.headers))

    async def _event(self) -> object:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            try:
                self._wire.receive_data(await self.stream.receive(_CHUNK_BYTES))
            except anyio.EndOfStream:
                self._wire.receive_data(b"")
        return event

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)

    async def whole(self, most: int) -> bytes | None:
        """Return the body; None: it has more than ``most`` bytes."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > most:
                return None
        return bytes(body)

    def rest(self) -> bytes:
        """Return what came behind the head of the answer."""
        return bytes(self._wire.trailing_data[0])


async def _received(stream: ByteStream) -> bytes:
    try:
        return await stream.receive(_CHUNK_BYTES)
    except anyio.EndOfStream:
        return b""


async def both_ways(client: Client, engine: EngineConnection) -> None:
    """Copy what a command in a container takes and prints, until the engine ends it."""

    async def feed() -> None:
        with suppress(anyio.EndOfStream):
            if rest := client.rest():
                await engine.stream.send(rest)
            while True:
                await engine.stream.send(await client.stream.receive(_CHUNK_BYTES))
        await _ended(engine.stream)

    async with open_tasks() as tasks:
        tasks.start_soon(feed)
        if rest := engine.rest():
            await client.stream.send(rest)
        with suppress(anyio.EndOfStream):
            while True:
                await client.stream.send(await engine.stream.receive(_CHUNK_BYTES))
        tasks.cancel_scope.cancel()
    await _ended(client.stream)


async def _ended(stream: ByteStream) -> None:
    """Say that nothing more comes; over TLS only the end of the connection says so."""
    if not isinstance(stream, TLSStream):
        await stream.send_eof()
