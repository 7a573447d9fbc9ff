"""Connections as the relay reads and writes them: sockets, what was read of them already, and HTTP/1.1 over them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import h11
from anyio.abc import ByteStream

QUIET_SECONDS: Final = 600.0
"""How long neither a byte may come nor one go: an answer may take minutes."""

MOST_HEAD: Final = 64 * 1024
_AT_ONCE: Final = 64 * 1024
_LONGEST_HELLO: Final = 64 * 1024
_NOT_TLS: Final = ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE


class GoneError(OSError):
    """The other side has ended or reset its connection in the middle."""


class SocketStream(ByteStream):
    """A connected socket, behind bytes that were read of it before."""

    def __init__(self, connection: socket.socket, ahead: bytes = b"") -> None:
        self._socket = connection
        self._ahead = ahead

    async def receive(self, max_bytes: int = _AT_ONCE) -> bytes:
        """Return what comes next."""
        if self._ahead:
            content, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
            return content
        try:
            content = await asyncio.get_running_loop().sock_recv(self._socket, max_bytes)
        except OSError as error:
            raise anyio.BrokenResourceError from error
        if not content:
            raise anyio.EndOfStream
        return content

    async def send(self, item: bytes) -> None:
        """Send all of it."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, item)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Send no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Leave the socket to its owner."""

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return nothing more about it."""
        return {}


class Wire:
    """HTTP/1.1 over a stream. Raises `OSError` where the other side fails, and `h11.RemoteProtocolError`."""

    def __init__(self, stream: ByteStream, role: type[h11.CLIENT | h11.SERVER]) -> None:
        self.stream = stream
        self.http = h11.Connection(role, MOST_HEAD)

    async def next_event(self) -> h11.Event | type[h11.PAUSED]:
        """Return what comes next."""
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]  # h11 types all its signs alike
            self.http.receive_data(await self.read())

    async def read(self) -> bytes:
        """Return some bytes, b"" at the end."""
        try:
            with anyio.fail_after(QUIET_SECONDS):
                return await self.stream.receive(_AT_ONCE)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise GoneError from error

    async def send(self, event: h11.Event) -> None:
        """Send something."""
        content = self.http.send(event)
        if not content:
            return
        try:
            with anyio.fail_after(QUIET_SECONDS):
                await self.stream.send(content)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise GoneError from error


async def begun(connection: socket.socket) -> tuple[bytes, str | None]:
    """Return what a session sends first, and the name of the server that it begins TLS with.

    "": it names none, as with an address; None: this is not the beginning of TLS.
    """
    loop, ahead = asyncio.get_running_loop(), b""
    named: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def note(_of: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
        named.append(name)
        return _NOT_TLS  # the real handshake begins anew, with all that was read

    context.sni_callback = note
    incoming = ssl.MemoryBIO()
    hello = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    while len(ahead) < _LONGEST_HELLO:
        more = await loop.sock_recv(connection, _AT_ONCE)
        ahead += more
        incoming.write(more)
        if not more:
            break
        try:
            hello.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            break
    return ahead, (named[0] or "").lower() if named else None
