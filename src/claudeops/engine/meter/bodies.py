"""The bodies of requests while the meter holds them: how many bytes at once, how fast they arrive, how they are read.

A body is held from its first byte until it has gone out to the model API. Room for the whole body is reserved before
any of it is read, so that two half-read bodies never wait for each other; a request that finds no room waits, and its
bytes stay in its socket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Self

import anyio
import anyio.to_thread
import msgspec
from starlette.types import Receive, Scope

from claudeops.formats.model_request import ModelRequest, RequestObjection
from claudeops.http_server import ConnectionLimits
from claudeops.structs import replace

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""The API's own limit for a request: https://docs.anthropic.com/en/api/errors."""

_AT_ONCE_BYTES: Final = 128 * 1024  # parsed within a millisecond; longer bodies go to a thread
_LOOK_AGAIN_SECONDS: Final = 1.0


class MeterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the daemon's resources sessions and strangers on loopback may take up, through the meter."""

    connections: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)
    held_bytes: int = 8 * MAX_BODY_BYTES  # of bodies, of all sessions together
    held_bytes_of_one: int = 2 * MAX_BODY_BYTES
    room_seconds: float = 60.0  # that a request waits for room
    quiet_seconds: float = 10.0  # between two pieces of a body
    body_seconds: float = 60.0  # for a whole body, once it is read

    @classmethod
    def within(cls, descriptors: int) -> Self:
        """Return limits that leave most of a process's descriptors to its own work."""
        usual = ConnectionLimits()
        nameless, in_all = min(usual.nameless, descriptors // 8), min(usual.in_all, descriptors // 4)
        return cls(connections=replace(usual, nameless=nameless, in_all=in_all))


class BodyRefusedError(Exception):
    """A body was not taken; its sender gets ``status`` and the sentence."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class BodyRoom:
    """The room reserved for one body; given back once."""

    def __init__(self, bodies: Bodies, owner: object, size: int) -> None:
        self._bodies = bodies
        self._owner = owner
        self._size = size

    def leave(self) -> None:
        """Give the room back: the body is held no longer."""
        size, self._size = self._size, 0
        self._bodies.release(self._owner, size)


class Bodies:
    """The bodies that one meter holds."""

    def __init__(self, limits: MeterLimits) -> None:
        self._limits = limits
        self._held: Counter[object] = Counter()
        self._freed = anyio.Event()
        self._reader = anyio.CapacityLimiter(1)  # one at a time: all of them need the interpreter

    @property
    def held_bytes(self) -> int:
        """The bytes for which room is reserved."""
        return self._held.total()

    @asynccontextmanager
    async def place(self, owner: object, scope: Scope) -> AsyncIterator[BodyRoom]:
        """Reserve room for a request's body for the length of the block, or until `BodyRoom.leave`.

        Raises `BodyRefusedError` if the body is too large, or there is no room in time.
        """
        size = _announced(scope)
        if size > MAX_BODY_BYTES:
            raise BodyRefusedError(413, "request_too_large", "the request is too large")
        with anyio.move_on_after(self._limits.room_seconds):
            while not self._fits(owner, size):
                freed = self._freed
                with anyio.move_on_after(_LOOK_AGAIN_SECONDS):
                    await freed.wait()
        if not self._fits(owner, size):
            raise BodyRefusedError(500, "api_error", "too much is being sent at once")
        self._held[owner] += size
        place = BodyRoom(self, owner, size)
        try:
            yield place
        finally:
            place.leave()

    async def read(self, receive: Receive) -> bytes | None:
        """Return the whole body; ``None`` if its sender has gone.

        Raises `BodyRefusedError` if it does not arrive in time.
        """
        body = bytearray()
        with anyio.move_on_after(self._limits.body_seconds):
            while True:
                with anyio.move_on_after(self._limits.quiet_seconds) as quiet:
                    message = await receive()
                if quiet.cancelled_caught:
                    break
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise BodyRefusedError(413, "request_too_large", "the request is too large")
                if not message.get("more_body", False):
                    return bytes(body)
        raise BodyRefusedError(408, "timeout_error", "the request did not come in time")

    async def understood(
        self, body: bytes, read: Callable[[bytes], ModelRequest | RequestObjection]
    ) -> ModelRequest | RequestObjection:
        """Return what a body asks for; long bodies are parsed off the event loop."""
        if len(body) <= _AT_ONCE_BYTES:
            return read(body)
        return await anyio.to_thread.run_sync(read, body, limiter=self._reader)

    def release(self, owner: object, size: int) -> None:
        """Take room back."""
        self._held[owner] -= size
        if self._held[owner] <= 0:
            del self._held[owner]
        freed, self._freed = self._freed, anyio.Event()
        freed.set()

    def _fits(self, owner: object, size: int) -> bool:
        limits = self._limits
        return self._held.total() + size <= limits.held_bytes and self._held[owner] + size <= limits.held_bytes_of_one


class OutgoingBody:
    """A body on its way out, released as soon as it is sent."""

    def __init__(self, body: bytes, place: BodyRoom) -> None:
        self.length = len(body)
        self._body = body
        self._place = place

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the whole body, once."""
        body, self._body = self._body, b""
        yield body
        del body
        self._place.leave()


def _announced(scope: Scope) -> int:
    """Return the announced length of a body; the longest that is allowed if none is announced."""
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    length = headers.get(b"content-length")
    return MAX_BODY_BYTES if length is None else int(length)
