"""An ASGI application on loopback in the caller's event loop, by uvicorn, and its bounded end.

uvicorn is written to own its process: it takes the signals, and waits for open connections to finish. Here
it does neither. Its log lines go to whatever logging the process has; nothing is written to stdout.

It also takes as many connections as come, and waits for ever for the rest of a request. Every process of the machine
may connect to loopback, so where that matters a `Crowd` bounds both.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

import anyio
import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from claudeops.errors import ConfigurationError
from claudeops.tasks import open_tasks

_TRANSPORT: Final = "transport"
"""In the scope's ``state``: the `asyncio.Transport` of the request's connection, to close it in mid-answer."""

_CONNECTION: Final = "connection"
"""In the scope's ``state``: the connection itself, as its crowd knows it."""

_BACKLOG: Final = 64  # connections that are taken in one turn of the event loop
_QUIET: Final = "uvicorn.error.clients"  # a logger on which what clients do wrong is not worth a line

_CLOSE_SECONDS: Final = 1  # for a client that does not read what it was sent

_IDLE_SECONDS: Final = 3600  # longer than any tool runs: a connection closed just when it is used again is an error
_GRACE_SECONDS: Final = 0.5  # for requests to end by themselves
_CANCEL_SECONDS: Final = 2  # then uvicorn cancels what is left; whole seconds, for uvicorn
_STOP_SECONDS: Final = 5  # then uvicorn itself is cancelled


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionLimits:
    """How many connections are kept, and how long they may take over what they owe."""

    nameless: int = 256  # several times as many as are taken in one turn, or a client may have to go before it is read
    of_one: int = 32
    in_all: int = 2048
    head_seconds: float = 10.0  # from the connection, or the first byte of a later request, to its body
    rest_seconds: float = 5.0  # for the rest of a request that has been answered already


class Crowd:
    """The connections of one server: strangers first, then each by the name that its request has shown.

    Where there are too many, the one that has been idle for longest has to go: a client sends its request at once and
    has a name then, so those that are pushed out are those that send none.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._nameless: dict[_Protocol, None] = {}  # in order of their arrival
        self._named: dict[Hashable, dict[_Protocol, None]] = {}  # in order of their last request

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._nameless) + sum(map(len, self._named.values()))

    def name(self, scope: Scope, name: Hashable) -> bool:
        """Take a request's connection as somebody's; ``False``: he has too many that are busy, or all have."""
        connection: _Protocol = scope["state"][_CONNECTION]
        self.went(connection)
        own = self._named.setdefault(name, {})
        own[connection] = None
        if len(own) > self.limits.of_one and not self._drop_idle(own):
            return False
        return len(self) <= self.limits.in_all or self._drop_idle(self._everybody())

    def dismiss(self, name: Hashable) -> None:
        """Drop all that are somebody's."""
        for connection in self._named.pop(name, {}):
            connection.transport.abort()

    def came(self, connection: _Protocol) -> None:
        """Take in a stranger."""
        self._nameless[connection] = None
        if len(self._nameless) > self.limits.nameless or len(self) > self.limits.in_all:
            self._drop(next(iter(self._nameless)))

    def went(self, connection: _Protocol) -> None:
        """Forget a connection."""
        self._nameless.pop(connection, None)
        for name, own in list(self._named.items()):
            own.pop(connection, None)
            if not own:
                del self._named[name]

    def _everybody(self) -> list[_Protocol]:
        return [connection for own in (self._nameless, *self._named.values()) for connection in own]

    def _drop_idle(self, connections: Iterable[_Protocol]) -> bool:
        idle = next((connection for connection in connections if connection.is_idle), None)
        if idle is not None:
            self._drop(idle)
        return idle is not None

    def _drop(self, connection: _Protocol) -> None:
        self.went(connection)
        connection.transport.abort()


class _Protocol(H11Protocol):
    """Shows a request its own connection, keeps uvicorn's access log out of the process's logging, and bounds waits."""

    crowd: Crowd | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False
        self._patience: asyncio.TimerHandle | None = None  # with whoever owes us a head
        if self.crowd is not None:
            self.logger = logging.getLogger(_QUIET)
            self.logger.setLevel(logging.ERROR)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn leaves out that there may be none
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn itself
        super().connection_made(transport)
        self.app_state = {**self.app_state, _TRANSPORT: transport, _CONNECTION: self}
        if self.crowd is not None:
            self._expect_head()
            self.crowd.came(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_expecting()
        if self.crowd is not None:
            self.crowd.went(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.crowd is None:
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop_expecting()
        elif self._patience is None and not self.transport.is_closing():
            self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.crowd is None or self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            # uvicorn reads the rest and throws it away, for as long as it takes.
            self.loop.call_later(self.crowd.limits.rest_seconds, self._stop_reading, self.cycle)

    def _expect_head(self) -> None:
        if self.crowd is not None:
            self._patience = self.loop.call_later(self.crowd.limits.head_seconds, self.transport.abort)

    def _stop_expecting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _stop_reading(self, answered: object) -> None:
        if self.cycle is answered and self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()


class _Server(uvicorn.Server):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.accepting = anyio.Event()
        self.stopped = anyio.Event()
        # Shielded: a cancelled uvicorn leaves its sockets open. It ends by should_exit, which `listen` always sets.
        self.scope = anyio.CancelScope(shield=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process's owner."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    async def run_until_stopped(self, listener: socket.socket) -> None:
        try:
            with self.scope:
                await self.serve([listener])
        finally:
            self.stopped.set()


@asynccontextmanager
async def listen(
    app: ASGIApp, *, host: str, port: int, closing: anyio.Event, crowd: Crowd | None = None
) -> AsyncIterator[str]:
    """Serve ``app`` until the block is left; yields the URL once connections are taken.

    With a ``crowd`` connections are bounded by its limits; without, not at all. At the end ``closing`` is set, on
    which requests that wait for something have to end; what is still open half a second later is dropped. Raises
    `ConfigurationError` when ``host`` is no loopback address or the port is taken.
    """
    listener = _bind(host, port)
    with contextlib.closing(listener):
        address, bound = listener.getsockname()[:2]
        server = _Server(
            uvicorn.Config(
                app,
                http=_protocol(crowd),
                backlog=_BACKLOG,
                ws="none",
                lifespan="off",
                proxy_headers=False,  # nobody stands between us and who asks
                log_config=None,
                timeout_keep_alive=_IDLE_SECONDS,
                timeout_graceful_shutdown=_CANCEL_SECONDS,
            )
        )
        async with open_tasks() as tasks:
            tasks.start_soon(server.run_until_stopped, listener)
            try:
                await server.accepting.wait()
                yield f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
            finally:
                closing.set()
                await _stop(server)


async def drop(scope: Scope, receive: Receive, *, unsent: bool) -> None:
    """Close a request's connection in mid-answer; with ``unsent``, what waits in its buffer still goes out. Bounded."""
    transport: asyncio.Transport = scope["state"][_TRANSPORT]
    if unsent:
        transport.close()
    else:
        transport.abort()
    # uvicorn logs an answer without an end as our error, unless it knows by then that the connection is gone.
    with anyio.move_on_after(_CLOSE_SECONDS) as patience:
        await disconnected(receive)
    if patience.cancelled_caught:
        transport.abort()


async def disconnected(receive: Receive) -> None:
    """Return when a request's client has gone; its body must have been read. The waiter's task group bounds it."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _protocol(of: Crowd | None) -> type[_Protocol]:
    class Protocol(_Protocol):
        crowd = of  # uvicorn makes connections by their class alone

    return Protocol


async def _stop(server: _Server) -> None:
    server.should_exit = True
    with anyio.move_on_after(_GRACE_SECONDS, shield=True):
        await server.stopped.wait()
    # What is left has not even sent its request: it sees its client gone, which needs no cancelling.
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    with anyio.move_on_after(_STOP_SECONDS, shield=True):
        await server.stopped.wait()
    server.scope.cancel()


def _bind(host: str, port: int) -> socket.socket:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ConfigurationError(f"host {host!r}: give a loopback address such as 127.0.0.1") from None
    if not address.is_loopback:
        raise ConfigurationError(f"host {host!r}: only loopback addresses are served, such as 127.0.0.1")
    family = socket.AF_INET6 if isinstance(address, ipaddress.IPv6Address) else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigurationError(f"port {port} on {host} cannot be used ({error}); 0 takes any free one") from error
    return listener
