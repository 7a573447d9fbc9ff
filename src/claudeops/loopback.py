"""An ASGI application on loopback in the caller's event loop, by uvicorn, and its bounded end.

uvicorn is written to own its process: it takes the signals, and waits for open connections to finish. Here
it does neither. Its log lines go to whatever logging the process has; nothing is written to stdout.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from claudeops.errors import ConfigurationError
from claudeops.tasks import open_tasks

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import ASGIApp, Receive, Scope
    from uvicorn.config import Config
    from uvicorn.server import ServerState

_TRANSPORT: Final = "transport"
"""In the scope's ``state``: the `asyncio.Transport` of the request's connection, to close it in mid-answer."""

_CLOSE_SECONDS: Final = 1  # for a client that does not read what it was sent

_IDLE_SECONDS: Final = 3600  # longer than any tool runs: a connection closed just when it is used again is an error
_GRACE_SECONDS: Final = 0.5  # for requests to end by themselves
_CANCEL_SECONDS: Final = 2  # then uvicorn cancels what is left; whole seconds, for uvicorn
_STOP_SECONDS: Final = 5  # then uvicorn itself is cancelled


class _Protocol(H11Protocol):
    """Shows a request its own connection, and keeps uvicorn's access log out of the process's logging."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn itself
        super().connection_made(transport)
        self.app_state = {**self.app_state, _TRANSPORT: transport}


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
async def listen(app: ASGIApp, *, host: str, port: int, closing: anyio.Event) -> AsyncIterator[str]:
    """Serve ``app`` until the block is left; yields the URL once connections are taken.

    At the end ``closing`` is set, on which requests that wait for something have to end; what is still open
    half a second later is dropped. Raises `ConfigurationError` when ``host`` is no loopback address or the port
    is taken.
    """
    listener = _bind(host, port)
    with contextlib.closing(listener):
        address, bound = listener.getsockname()[:2]
        server = _Server(
            uvicorn.Config(
                app,
                http=_Protocol,
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
