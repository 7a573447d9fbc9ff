"""Serves an ASGI application in the caller's event loop, with uvicorn and a bounded shutdown; on loopback by default.

uvicorn is written to own its process: it handles signals, and on shutdown waits for open connections to finish. Here it
does neither. Its log lines go to the process's own logging; nothing is written to stdout.

uvicorn also accepts any number of connections, and waits for ever for the rest of a request. Every process of the
machine may connect to loopback, so a server that must withstand that passes a `ConnectionPool`, which bounds both.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache
from typing import Final, cast

import anyio
import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp, Receive, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from claudeops.errors import ConfigurationError
from claudeops.tasks import open_tasks

_TRANSPORT: Final = "transport"
"""In the scope's ``state``: the `asyncio.Transport` of the request's connection, to close it in mid-response."""

_CONNECTION: Final = "connection"
"""In the scope's ``state``: the connection object that its `ConnectionPool` tracks."""

_BACKLOG: Final = 64  # connections accepted in one turn of the event loop
_QUIET: Final = "uvicorn.error.clients"  # a logger that drops warnings: mistakes of clients are not worth a line

_MOST_HEAD: Final = 64 * 1024  # bytes of a request before its body

_CLOSE_SECONDS: Final = 1  # for a client that does not read its response

_IDLE_SECONDS: Final = 3600  # longer than any tool runs: a client that reuses a connection just as we close it fails
_GRACE_SECONDS: Final = 0.5  # for open requests to finish
_CANCEL_SECONDS: Final = 2  # then uvicorn cancels what is left; whole seconds, for uvicorn
_STOP_SECONDS: Final = 5  # then uvicorn itself is cancelled


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections are kept, and how long each may take to send what it owes."""

    nameless: int = 256  # several times the backlog, or a client might be dropped before its request is read
    of_one: int = 32  # of one name
    in_all: int = 2048
    head_seconds: float = 10.0  # from connecting, or from the first byte of a later request, to the start of its body
    rest_seconds: float = 5.0  # for the rest of a request that was answered before it was read


class ConnectionPool:
    """The connections of one server, bounded: nameless at first, then each under the name that its request proves.

    Over a bound, the connection that has been idle longest is dropped. An honest client sends its request at once and
    so gets a name; those that are pushed out are the ones that send none.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._nameless: dict[_Protocol, None] = {}  # in order of arrival
        self._named: dict[Hashable, dict[_Protocol, None]] = {}  # each in order of the last request

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._nameless) + sum(map(len, self._named.values()))

    def name(self, scope: Scope, name: Hashable) -> bool:
        """File a request's connection under a name.

        Returns ``False`` when this name, or the server as a whole, has too many connections and all of them are busy.
        """
        connection: _Protocol = scope["state"][_CONNECTION]
        self.remove(connection)
        own = self._named.setdefault(name, {})
        own[connection] = None
        if len(own) > self.limits.of_one and not self._drop_idle(own):
            return False
        return len(self) <= self.limits.in_all or self._drop_idle(self._all())

    def dismiss(self, name: Hashable) -> None:
        """Drop all connections of a name."""
        for connection in self._named.pop(name, {}):
            connection.transport.abort()

    def add(self, connection: _Protocol) -> None:
        """Add a new connection, nameless for now."""
        self._nameless[connection] = None
        if len(self._nameless) > self.limits.nameless or len(self) > self.limits.in_all:
            self._drop(next(iter(self._nameless)))

    def remove(self, connection: _Protocol) -> None:
        """Forget a connection."""
        self._nameless.pop(connection, None)
        for name, own in list(self._named.items()):
            own.pop(connection, None)
            if not own:
                del self._named[name]

    def _all(self) -> list[_Protocol]:
        return [connection for own in (self._nameless, *self._named.values()) for connection in own]

    def _drop_idle(self, connections: Iterable[_Protocol]) -> bool:
        idle = next((connection for connection in connections if connection.is_idle), None)
        if idle is not None:
            self._drop(idle)
        return idle is not None

    def _drop(self, connection: _Protocol) -> None:
        self.remove(connection)
        connection.transport.abort()


class _Connection(h11.Connection):
    """Refuses a request whose length can be read in two ways: where a proxy reads it the other way, it is split."""

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the length of the body is given twice, or in a way of a later version")
        return event


class _Protocol(H11Protocol):
    """Gives each request its own connection, keeps uvicorn's access log out of our logging, and bounds waits."""

    crowd: ConnectionPool | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False
        self.conn = _Connection(h11.SERVER, _MOST_HEAD)
        self._head_timer: asyncio.TimerHandle | None = None  # runs while the client owes us a request head
        if self.crowd is not None:
            self.logger = logging.getLogger(_QUIET)
            self.logger.setLevel(logging.ERROR)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn's annotation leaves out None
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn itself
        super().connection_made(transport)
        self.app_state = {**self.app_state, _TRANSPORT: transport, _CONNECTION: self}
        if self.crowd is not None:
            self._start_head_timer()
            self.crowd.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_head_timer()
        if self.crowd is not None:
            self.crowd.remove(self)

    def data_received(self, data: bytes) -> None:
        self.server_state.default_headers = [(b"date", _date(int(time.time()))), *self.config.encoded_headers]
        super().data_received(data)
        if self.crowd is None:
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None and not self.transport.is_closing():
            self._start_head_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.crowd is None or self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            # uvicorn reads and discards the rest, however long that takes.
            self.loop.call_later(self.crowd.limits.rest_seconds, self._stop_reading, self.cycle)

    def _start_head_timer(self) -> None:
        if self.crowd is not None:
            self._head_timer = self.loop.call_later(self.crowd.limits.head_seconds, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_reading(self, answered: object) -> None:
        if self.cycle is answered and self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()


class _Server(uvicorn.Server):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.accepting = anyio.Event()
        self.leaving = anyio.Event()
        self.stopped = anyio.Event()
        # Shielded: a cancelled uvicorn leaves its sockets open. It ends by should_exit, which `listen` always sets.
        self.scope = anyio.CancelScope(shield=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process itself."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn itself looks for it ten times a second, and for the date once."""
        await self.leaving.wait()

    def leave(self) -> None:
        """Have it take no more connections, and end."""
        self.should_exit = True
        self.leaving.set()

    async def run_until_stopped(self, listener: socket.socket) -> None:
        try:
            with self.scope:
                await self.serve([listener])
        finally:
            self.stopped.set()


@asynccontextmanager
async def listen(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    closing: anyio.Event,
    crowd: ConnectionPool | None = None,
    outside: bool = False,
) -> AsyncIterator[str]:
    """Serve ``app`` until the block is left; yields the URL once connections are taken.

    With a ``crowd``, its limits bound the connections; without one, nothing does. ``outside`` lets ``host`` be an
    address that others than this machine reach. On leaving the block ``closing`` is
    set: requests that wait for something must end then, and what is still open half a second later is dropped. Raises
    `ConfigurationError` when ``host`` is no loopback address or the port is taken.
    """
    listener = _bind(host, port, outside=outside)
    with contextlib.closing(listener):
        address, bound = listener.getsockname()[:2]
        server = _Server(
            uvicorn.Config(
                app,
                http=_protocol(crowd),
                backlog=_BACKLOG,
                ws="none",
                lifespan="off",
                proxy_headers=False,  # no proxy stands between us and a client
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
    """Close a request's connection in mid-response; with ``unsent``, its write buffer is still sent. Bounded."""
    transport: asyncio.Transport = scope["state"][_TRANSPORT]
    if unsent:
        transport.close()
    else:
        transport.abort()
    # uvicorn logs an unfinished response as our error unless it knows by then that the connection is gone.
    with anyio.move_on_after(_CLOSE_SECONDS) as waiting:
        await disconnected(receive)
    if waiting.cancelled_caught:
        transport.abort()


def may_wait(scope: Scope) -> bool:
    """Tell whether sending something now may have to wait for a request's client."""
    connection: _Protocol | None = scope.get("state", {}).get(_CONNECTION)
    return connection is None or connection.flow.write_paused


async def disconnected(receive: Receive) -> None:
    """Return when a request's client has gone; its body must have been read. The caller bounds the wait."""
    while (await receive())["type"] != "http.disconnect":
        pass


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    """Return what answers carry as their date."""
    return formatdate(second, usegmt=True).encode()


def _protocol(of: ConnectionPool | None) -> type[_Protocol]:
    class Protocol(_Protocol):
        crowd = of  # uvicorn creates protocols from the class alone

    return Protocol


async def _stop(server: _Server) -> None:
    server.leave()
    with anyio.move_on_after(_GRACE_SECONDS, shield=True):
        await server.stopped.wait()
    # What is left has not even sent a whole request: closed connections end it, and nothing needs cancelling.
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    with anyio.move_on_after(_STOP_SECONDS, shield=True):
        await server.stopped.wait()
    server.scope.cancel()


def _bind(host: str, port: int, *, outside: bool) -> socket.socket:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ConfigurationError(f"host {host!r}: give a loopback address such as 127.0.0.1") from None
    if not (address.is_loopback or outside):
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
