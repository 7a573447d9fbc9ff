"""A small HTTP client for tests: one request a connection, nothing that retries, an answer cut short is seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
import h11
import msgspec
from anyio.abc import SocketStream


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]  # lower-case names
    body: bytes
    is_whole: bool  # False: the connection closed in the middle

    @property
    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        decoded = msgspec.json.decode(self.body)
        assert isinstance(decoded, dict)
        return decoded


async def ask(
    url: str,
    *,
    method: str = "POST",
    body: object = None,
    raw: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request and return its answer; ``body`` goes out as JSON, ``raw`` as it is."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with await anyio.connect_tcp(parts.hostname, parts.port) as stream:
        connection = h11.Connection(h11.CLIENT)
        await stream.send(_request(connection, method, url, _content(body, raw), headers or {}))
        return await _answer(connection, stream)


def _content(body: object, raw: bytes | None) -> bytes:
    if raw is not None:
        return raw
    return b"" if body is None else msgspec.json.encode(body)


def _request(connection: h11.Connection, method: str, url: str, content: bytes, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    named = {"host": parts.netloc, "content-length": str(len(content)), "connection": "close", **headers}
    sent = (h11.Request(method=method, target=target, headers=list(named.items())), h11.Data(data=content))
    return b"".join(connection.send(event) or b"" for event in (*sent, h11.EndOfMessage()))


async def _answer(connection: h11.Connection, stream: SocketStream) -> Answer:
    status, headers, body, is_whole = 0, {}, b"", False
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if event is h11.NEED_DATA:
                connection.receive_data(await _receive(stream))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
        is_whole = isinstance(event, h11.EndOfMessage)
    except h11.RemoteProtocolError:
        pass  # the connection closed before the end
    return Answer(status=status, headers=headers, body=body, is_whole=is_whole)


async def _receive(stream: SocketStream) -> bytes:
    try:
        return await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return b""
