"""One HTTP request and its answer, over any connection: bounded in bytes, compressed by nobody, answered once.

The protocol itself is h11's, which also bounds heads. A client library around it would add what looks must not have:
proxies of the environment, redirects, cookies, decompression, connections that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.parse import quote as percent

import anyio.lowlevel
import h11
import msgspec
import orjson

from claudeops.engine.probes.results import Attempt, blind, quote
from claudeops.engine.probes.stream import Certificate, Means, ProbeStream, certificate_of

MOST_BODY: Final = 256 * 1024
"""Bytes of a body that are read."""

_CHUNKS: Final = 128  # of a body that are taken in one turn of the event loop
_BEGINNING: Final = b"HTTP/1."
_SHOWN: Final = 512  # bytes of what is not HTTP that are quoted from
_SAFE: Final = "/%:@!$&'()*+,;=~-._?"
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class Url(msgspec.Struct, frozen=True, kw_only=True):
    """A URL in the parts that a request needs."""

    scheme: str
    host: str  # without the brackets of an IPv6 address
    port: int
    target: str  # path and query, percent-encoded

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return scheme, host and port."""
        return (self.scheme, self.host, self.port)

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def url_of(text: str, *, base: str = "") -> Url | None:
    """Return a URL in its parts, a relative one as seen from ``base``; ``None`` for one that cannot be asked."""
    try:
        parts: SplitResult = urlsplit(urljoin(base, text))
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        return None
    path = percent(parts.path or "/", safe=_SAFE)
    query = f"?{percent(parts.query, safe=_SAFE)}" if parts.query else ""
    return Url(
        scheme=parts.scheme,
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        target=f"{path}{query}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeQuestion:
    """What is asked of a connection."""

    target: str
    authority: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def head(self) -> h11.Request:
        """Return the head of the request."""
        own = {
            "host": self.authority,
            "user-agent": "claudeops-probe",
            "accept": "*/*",
            "accept-encoding": "identity",
            "connection": "close",
        }
        given = {name.lower(): value for name, value in self.headers.items()}
        return h11.Request(method=self.method, target=self.target, headers=list({**own, **given}.items()))


class ExchangeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]  # names in lower case; of several with one name the last
    body: bytes = b""
    is_cut: bool = False  # the body is longer than what was read of it
    certificate: Certificate | None = None

    @property
    def encoding(self) -> str:
        """Return how the body is compressed although that was not asked for; empty if it is not."""
        coding = self.headers.get("content-encoding", "").strip().lower()
        return "" if coding == "identity" else coding

    def json(self, attempt: Attempt, *, quotes: bool = True) -> object:
        """Return the body as JSON; raises `LookFailedError`, which says what came instead if it ``quotes``."""
        if self.encoding:
            raise attempt.failed(f"it answered {self.status} with a compressed body ({quote(self.encoding)}) unasked")
        if self.is_cut:
            raise attempt.failed(f"it answered {self.status} with more than {MOST_BODY // 1024} KiB")
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            instead = f": {quote(self.body)}" if quotes else ""
            raise attempt.failed(f"it answered {self.status}, but not with JSON{instead}") from None


async def ask(
    url: Url, means: Means, attempt: Attempt, *, verify: bool = True, question: ProbeQuestion
) -> ExchangeAnswer:
    """Connect to the host of a URL, ask, and return the answer; raises `LookFailedError`."""
    async with means.connection(url.host, url.port, attempt) as stream:
        certificate = None
        if url.scheme == "https":
            tls = await stream.start_tls(means.verified() if verify else means.unverified(), url.host)
            certificate = await certificate_of(tls, means)
        return await exchange(stream, question, attempt, certificate=certificate)


async def exchange(
    stream: ProbeStream, question: ProbeQuestion, attempt: Attempt, *, certificate: Certificate | None = None
) -> ExchangeAnswer:
    """Ask over a connection and return the answer; raises `LookFailedError`."""
    connection = h11.Connection(h11.CLIENT)
    attempt.begin("sending the request")
    try:
        request = (connection.send(question.head()) or b"") + (connection.send(h11.EndOfMessage()) or b"")
    except h11.LocalProtocolError:
        raise blind("one of its headers is none that a request without a body can carry") from None
    await stream.send(request)
    attempt.begin("waiting for the answer")
    try:
        return await _answer(connection, stream, certificate)
    except h11.RemoteProtocolError as error:
        raise attempt.failed(_misspoken(error, stream)) from None


def _misspoken(error: h11.RemoteProtocolError, stream: ProbeStream) -> str:
    if not stream.first:
        return "it closed the connection without an answer"
    if error.error_status_hint == 431:  # noqa: PLR2004 - as h11 says it
        return "the head of its answer is too long"
    return f"its answer breaks the rules of HTTP or ended early: {stream.attempt.doing}"


async def _answer(connection: h11.Connection, stream: ProbeStream, certificate: Certificate | None) -> ExchangeAnswer:
    status, headers, body, chunks, begun = 0, {}, bytearray(), 0, b""
    while len(body) <= MOST_BODY:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            more = await stream.receive()
            if not status and more and not begun:
                begun = more
                # Whoever greets first in another protocol waits for an answer, as h11 does for the rest of a head.
                if not more.startswith(_BEGINNING[: len(more)]):
                    raise stream.attempt.failed(f"it does not speak HTTP: it answered {quote(more[:_SHOWN])}")
            connection.receive_data(more)
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            stream.attempt.begin(f"it answered {status}; waiting for the rest of the body")
        elif isinstance(event, h11.Data):
            body += event.data
            chunks += 1
            if chunks % _CHUNKS == 0:  # a body in chunks of one byte would hold up the event loop
                await anyio.lowlevel.checkpoint()
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)) or event is h11.PAUSED:
            break
    return ExchangeAnswer(
        status=status,
        headers=headers,
        body=bytes(body[:MOST_BODY]),
        is_cut=len(body) > MOST_BODY,
        certificate=certificate,
    )
