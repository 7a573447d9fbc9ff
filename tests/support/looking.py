"""A looker for tests, and servers on loopback that do to it whatever a test wants."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute
from anyio.streams.tls import TLSListener

from claudeops.clock import Clock
from claudeops.domain.probes.probe import AnyLook, Observation, Probe
from claudeops.engine.probes.looker import Looker
from claudeops.engine.probes.stream import Address, Means, unverified_context
from claudeops.logs import Logger

Handler = Callable[[ByteStream], Awaitable[None]]
_NOBODY_TRUSTED: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the machine's own take long to read
_ANYBODY: Final = unverified_context()
_DRIP_SECONDS: Final = 0.02
QUIET: Final = Logger({})


def means(**given: Any) -> Means:
    """Return what looks share; the given parts replace the usual ones."""
    trusted = given.pop("verified", _NOBODY_TRUSTED)
    return Means(**{"clock": Clock(), "verified": lambda: trusted, "unverified": lambda: _ANYBODY, **given})


async def look(asked: AnyLook, *, timeout: float = 60.0, looker: Looker | None = None, **given: Any) -> Observation:  # noqa: ASYNC109 - the probe's
    """Look once, with a looker that is made of the given means unless there is one."""
    eye = looker or Looker(means=means(**given), log=QUIET)
    return await eye.look(Probe(name="shop", service="shop", look=asked, timeout=timeout, origin="probes.toml:1"))


def resolving(names: Mapping[str, Sequence[str]]) -> Callable[[str, int], Sequence[Address]]:
    """Return a resolver that knows these names and no others."""

    def resolve(host: str, port: int) -> Sequence[Address]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, (address, port)) for address in names[host]]

    return resolve


@asynccontextmanager
async def serving(
    handler: Handler, *, tls: ssl.SSLContext | None = None, path: str | None = None
) -> AsyncIterator[int]:
    """Serve connections with ``handler`` on loopback, or on a unix socket, while the block runs; yield the port."""
    listener: Listener[Any]
    if path is None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no database
    else:
        listener, port = await anyio.create_unix_listener(path), 0
    if tls is not None:
        listener = TLSListener(listener, tls, standard_compatible=False)

    async def politely(stream: ByteStream) -> None:
        async with stream:
            try:
                await handler(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                return  # the looker has seen enough

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, politely)
        yield port
        tasks.cancel_scope.cancel()


def says(*chunks: bytes) -> Handler:
    """Return a server that sends these bytes at once, and closes when the other side does."""

    async def handler(stream: ByteStream) -> None:
        for chunk in chunks:
            await stream.send(chunk)
        async for _ in stream:
            pass

    return handler


def answers(
    body: bytes = b"hello",
    *,
    status: int = 200,
    headers: Sequence[tuple[str, str]] = (),
    heard: list[bytes] | None = None,
) -> Handler:
    """Return an HTTP server with one answer for everything; it notes what it ``heard``."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return replies(("\r\n".join(lines) + "\r\n\r\n").encode() + body, heard=heard)


def replies(*chunks: bytes, heard: list[bytes] | None = None) -> Handler:
    """Return a server that reads the head of a request, and then sends these bytes."""

    async def handler(stream: ByteStream) -> None:
        request = await head(stream)
        if heard is not None:
            heard.append(request)
        for chunk in chunks:
            await stream.send(chunk)

    return handler


async def head(stream: ByteStream) -> bytes:
    """Return the head of a request."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += await stream.receive()
    return found


async def drips(stream: ByteStream) -> None:
    """Send a byte now and then, without end."""
    while True:
        await stream.send(b"H")
        await anyio.sleep(_DRIP_SECONDS)


async def never(_stream: ByteStream) -> None:
    """Say nothing for ever."""
    await anyio.sleep_forever()
