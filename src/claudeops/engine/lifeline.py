"""The daemon's end of a session's lifeline: a guardian ends the session with it, a namespace does not begin without."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import UNIXSocketStream

from claudeops.errors import SpawnError

if TYPE_CHECKING:
    import socket
    from typing import Self

START_SECONDS: Final = 20.0
"""How long a guardian may take to start a CLI; a machine under load takes a second."""

_LINE_BYTES: Final = 64


@dataclass(slots=True)
class Lifeline:
    """What a guardian tells over it, and the way to have it end everything. See ``guardian.py``."""

    stream: UNIXSocketStream
    _unread: bytes = b""

    @classmethod
    async def over(cls, ours: socket.socket) -> Self:
        """Take over a socket whose other end a guardian has, or will have."""
        return cls(await UNIXSocketStream.from_socket(ours))

    async def started(self) -> int:
        """Return the CLI's pid once it runs; raises `SpawnError`. Bounded by `START_SECONDS`."""
        with anyio.move_on_after(START_SECONDS):
            word, _, number = (await self._line()).partition(" ")
            if word == "started":
                return int(number)
            if word == "failed":
                raise SpawnError(os.strerror(int(number)))
            raise SpawnError("its guardian ended before it ran")
        raise SpawnError(f"its guardian did not start it within {START_SECONDS:g} s")

    async def let_go_on(self) -> None:
        """Tell what waits in a namespace that we are there; raises `SpawnError`. Bounded by `START_SECONDS`."""
        with anyio.move_on_after(START_SECONDS):
            if await self._line() != "ready":
                raise SpawnError("its namespace could not be made")
            with contextlib.suppress(anyio.BrokenResourceError):  # gone already, as the exit will say
                await self.stream.send(b"go\n")
            return
        raise SpawnError(f"its namespace was not there within {START_SECONDS:g} s")

    async def strays(self, seconds: float) -> int:
        """Return how many processes the ended CLI had left to its guardian; 0 when it does not say so in time."""
        with anyio.move_on_after(seconds):
            while line := await self._line():
                word, _, number = line.partition(" ")
                if word == "strays":
                    return int(number)
        return 0

    async def cut(self) -> None:
        """Have the guardian kill everything that it holds, the CLI first. Safe to call twice."""
        await self.stream.aclose()

    async def _line(self) -> str:
        """Return the next line without its end; empty when there is none any more."""
        while b"\n" not in self._unread:
            try:
                self._unread += await self.stream.receive(_LINE_BYTES)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return ""
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode("ascii", "replace")
