"""Reads the bodies of requests: bounded in length and time, and in sum while it is not proven who sends them.

A signature is of the whole body, so anyone may make us wait for one. Over the bound the body that was begun first goes,
as in a `ConnectionPool`: an honest sender's comes at once, and whoever holds others back is among the first to go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import msgspec
from starlette.requests import Request

from claudeops.web.problems import RefusedError, later

MOST_BYTES: Final = 1024 * 1024
"""Of a body."""

BODY_SECONDS: Final = 10.0
UNPROVEN_SECONDS: Final = 2.0
"""For a body whose sender is known only by a signature of the whole."""

UNPROVEN_BYTES: Final = 16 * MOST_BYTES
"""Of all such bodies together."""

_FEWEST_BYTES: Final = 16 * 1024
"""For which such a body counts at least: a request costs us something before any of its body is here."""

AGAIN_SECONDS: Final = 5
"""After which a sender may try again."""


async def read_body(
    request: Request, *, seconds: float = BODY_SECONDS, received: Callable[[int], None] = lambda _: None
) -> bytes:
    """Return a request's whole body; ``received`` is called with its length so far. Raises `RefusedError`."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:19]) > MOST_BYTES:
        raise _too_long()
    body = bytearray()
    with anyio.move_on_after(seconds) as waiting:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise _too_long()
            received(len(body))
    if waiting.cancelled_caught:
        raise RefusedError(408, f"The body did not come within {seconds:g} s.", retry_after=AGAIN_SECONDS)
    return bytes(body)


class _Unfinished(msgspec.Struct, eq=False):
    """A body that is being read."""

    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    size: int = _FEWEST_BYTES


class UnprovenBodies(msgspec.Struct, kw_only=True):
    """The bodies that are read before it is known who sends them."""

    most_bytes: int = UNPROVEN_BYTES
    seconds: float = UNPROVEN_SECONDS
    _unfinished: dict[_Unfinished, None] = msgspec.field(default_factory=dict)  # in the order in which they were begun
    _size: int = 0

    async def read(self, request: Request) -> bytes:
        """Return a request's whole body. Raises `RefusedError`, also when later ones need its room."""
        one = _Unfinished()
        self._unfinished[one] = None
        self._size += one.size
        self._make_room()

        def received(length: int) -> None:
            if one in self._unfinished and length > one.size:
                self._size += length - one.size
                one.size = length
                self._make_room()

        try:
            with one.scope:
                return await read_body(request, seconds=self.seconds, received=received)
        finally:
            self._remove(one)
        raise later("Too many bodies wait for the rest of themselves.", seconds=AGAIN_SECONDS)

    def _make_room(self) -> None:
        while self._size > self.most_bytes:
            oldest = next(iter(self._unfinished))
            self._remove(oldest)
            oldest.scope.cancel()

    def _remove(self, one: _Unfinished) -> None:
        if one in self._unfinished:
            del self._unfinished[one]
            self._size -= one.size


def _too_long() -> RefusedError:
    return RefusedError(413, f"A body has at most {MOST_BYTES} bytes.")
