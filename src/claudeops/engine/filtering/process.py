"""The process of a session's filter, and the lines between it and the daemon.

It runs as a program (``python -I -m …``), with the listening socket as stdin and the line to the daemon as stdout. It
has no environment; the daemon's first line says what it has to know. For every change it asks the daemon, which holds
the grants: it parses what a session and an engine send, and decides nothing about what the gate has allowed. It ends
with the line.
"""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketListener, SocketStream, UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.clock import Clock
from claudeops.domain.gate.granted import Change
from claudeops.tasks import open_tasks

LINE_BYTES: Final = 8 * 1024 * 1024
"""The longest line between daemon and process; the first one holds all secrets that are known."""

_CONNECTIONS: Final = 32  # of a session; more wait
_MEMORY_BYTES: Final = 1024 * 1024 * 1024  # address space
ANSWER_SECONDS: Final = 10.0
"""How old a request may be when the daemon's answer to it is acted on, also where one of the two was stopped, or the
machine slept, in between."""


class FilterRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was not sent on."""

    method: str
    target: str
    status: int
    sentence: str


class DaemonLine(msgspec.Struct, kw_only=True):
    """The line to the daemon."""

    stream: UNIXSocketStream
    received: BufferedByteReceiveStream
    clock: Clock = msgspec.field(default_factory=Clock)
    _count: int = 0
    _waiting: dict[int, tuple[anyio.Event, list[int]]] = msgspec.field(default_factory=dict)
    _turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)

    async def receive(self) -> dict[str, object]:
        """Return the next line; raises `anyio.IncompleteRead` at the end."""
        found: dict[str, object] = json.loads(await self.received.receive_until(b"\n", LINE_BYTES))
        return found

    async def answers(self) -> None:
        """Hand out the daemon's answers, until it has gone."""
        while True:
            line = await self.receive()
            waiting = self._waiting.pop(int(str(line["asked"])), None)
            if waiting is not None:
                waiting[1].append(int(str(line["grant"])))
                waiting[0].set()

    async def _send(self, line: dict[str, object]) -> None:
        async with self._turn:
            await self.stream.send(json.dumps(line).encode() + b"\n")

    async def allows(self, change: Change) -> int:
        """Return the number of a grant for a change; 0: there is none, or it came too late and was given back."""
        began = self.clock.since_boot()
        self._count += 1
        number, event, answer = self._count, anyio.Event(), list[int]()
        self._waiting[number] = (event, answer)
        await self._send({"asked": number, "change": msgspec.to_builtins(change)})
        with anyio.move_on_after(ANSWER_SECONDS):
            await event.wait()
        self._waiting.pop(number, None)
        grant = answer[0] if answer else 0
        if grant and self.clock.since_boot() - began > ANSWER_SECONDS:
            await self.ended(grant, 0)
            return 0
        return grant

    async def ended(self, grant: int, status: int) -> None:
        """Tell what came of a change: the engine's status; 0: nothing was sent, -1: it is not known."""
        await self._send({"grant": grant, "status": status})

    async def refused(self, refusal: FilterRefusal) -> None:
        """Tell what was not sent on."""
        await self._send({"refused": msgspec.to_builtins(refusal)})

    async def dropped(self, target: str, names: Sequence[str]) -> None:
        """Tell which parameters of a read are not known, and were left out."""
        await self._send({"dropped": {"target": target, "names": list(names)}})

    async def failed(self, error: str) -> None:
        """Tell what went wrong here."""
        await self._send({"failed": error})


Serving = Callable[[SocketStream], Awaitable[None]]


async def run(opened: Callable[[dict[str, object], DaemonLine], Serving]) -> None:
    """Serve until the daemon has gone; ``opened`` returns what serves a connection, by the daemon's first line."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stream = await UNIXSocketStream.from_socket(socket.socket(fileno=1))
    async with stream, await SocketListener.from_socket(socket.socket(fileno=0)) as listener:
        line = DaemonLine(stream=stream, received=BufferedByteReceiveStream(stream))
        served = opened(await line.receive(), line)
        connections = anyio.Semaphore(_CONNECTIONS)

        async def serve(connection: SocketStream) -> None:
            async with connections, connection:
                try:
                    await served(connection)
                except Exception as error:  # noqa: BLE001 - what one connection brings about ends no other
                    await line.failed(repr(error))

        async with open_tasks() as tasks:
            tasks.start_soon(listener.serve, serve)
            try:
                await line.answers()
            except (anyio.IncompleteRead, anyio.BrokenResourceError):
                tasks.cancel_scope.cancel()


def texts(value: object) -> list[str]:
    """Return the texts of a list in the first line."""
    return list(map(str, value)) if isinstance(value, list) else []
