"""Copies bytes between two connected sockets, both ways, as fast as an event loop of Python can."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from typing import Final, cast

import anyio

_WRITES_COPY: Final = sys.version_info < (3, 12)
_RESET: Final = struct.pack("ii", 1, 0)  # struct linger


async def copy_both_ways(one_socket: socket.socket, other_socket: socket.socket, room: memoryview) -> None:
    """Copy until both ends are closed, or one was reset, and close both; an end that sends no more may still read.

    All connections of a loop may share ``room``, to which they read.
    """
    loop = asyncio.get_running_loop()
    over = anyio.Event()
    one, other = _End(room, over), _End(room, over)
    one.other, other.other = other, one
    try:
        # What arrives waits until both ends are there. Before Python 3.12 a pause does not hold that is requested in
        # ``connection_made``; here nothing has been read yet, because this task goes on before the loop's next look.
        await loop.connect_accepted_socket(lambda: one, one_socket)
        one.transport.pause_reading()
        await loop.create_connection(lambda: other, sock=other_socket)
        one.transport.resume_reading()
        await over.wait()
    finally:
        for end in (one, other):
            end.abort()


def reset(connection: socket.socket) -> None:
    """Make the close of a connection a reset."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


class _End(asyncio.BufferedProtocol):
    """One of the two ends of a forwarded connection.

    All ends of a session share one buffer: what was read is copied out of it before anything else is read.
    """

    transport: asyncio.Transport
    other: _End

    def __init__(self, room: memoryview, over: anyio.Event) -> None:
        self._buffer = room
        self._over = over
        self.is_open = False
        self.has_ended = False  # it sends no more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        # Python 3.11's transport copies what it cannot send at once, later ones keep a view of it.
        content = self._buffer[:nbytes]
        self.other.transport.write(content if _WRITES_COPY else bytes(content))

    def eof_received(self) -> bool:
        """Pass the end on; the other way stays open."""
        self.has_ended = True
        if self.other.has_ended:
            self.other.transport.close()
            return False
        try:
            self.other.transport.write_eof()
        except OSError:  # it was reset, and its transport does not know yet
            self.other.abort()
            self.abort()
        return True

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if not self.other.has_ended:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss on: a reset as a reset, a close as a close, once what was read is written."""
        self.is_open = False
        if exc is not None:
            self.other.abort()
        elif self.other.is_open:
            self.other.transport.close()
        if not self.other.is_open:
            self._over.set()

    def abort(self) -> None:
        """Close the connection with a reset, unless it is closed."""
        if self.is_open:
            reset(self.transport.get_extra_info("socket"))
            self.transport.abort()
