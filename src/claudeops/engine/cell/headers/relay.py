"""Relays a session's requests to hosts for which the operator has the daemon add a header with a secret.

TLS of the session ends here, with a certificate of the session's own authority; to the host it begins anew, and the
host's certificate is verified as ever. Requests are read one after another, each to one connection outside for each of
the session's: where the one ends, the other does. Answers come back without the secrets, whatever form they are in.

All of it runs on the thread of the session's forwarder.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import h11
import msgspec
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from claudeops.domain.estate.strangers import address_in
from claudeops.domain.network.destination import LOCALHOST
from claudeops.engine.cell.headers.authority import ALPN, Authority
from claudeops.engine.cell.headers.heads import (
    Fields,
    HeaderHosts,
    HeaderRefusal,
    ends_connection,
    is_unreadable,
    refusal,
    returned,
    sent,
)
from claudeops.engine.cell.headers.wires import GoneError, SocketStream, Wire, begun
from claudeops.formats.network.headers import SecretHeader
from claudeops.tasks import open_tasks
from claudeops.text.redact.streaming import KnownSecrets, StreamRedactor

HANDSHAKE_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 300.0
"""How long a handshake of TLS may take, and how long a session may keep a connection without a request."""

_GONE_SECONDS: Final = 30.0  # for an answer to a session that sends no more: some only end their half
_UNREAD_SECONDS: Final = 2.0  # for the rest of a request that is refused, or the refusal would be lost with it
_CLOSE_SECONDS: Final = 1.0  # for the end of TLS, which a session need not answer
_SAY_AGAIN_SECONDS: Final = 60.0
_MOST_REASONS: Final = 256
_BAD_REQUEST, _BAD_GATEWAY = 400, 502
_LOOPBACK: Final = "127.0.0.1"

Place = tuple[str, int]


class RelayTally(msgspec.Struct, kw_only=True):
    """What a session's relay has done."""

    added: int = 0  # requests that went out with a header
    refused: int = 0  # requests that did not go out
    failed: int = 0  # connections on which TLS failed, on either side


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request, or a connection, for which a header would have been added went nowhere."""

    host: str
    port: int
    error: str


class Relays(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a session at which headers are added. Made before its forwarder runs, and used on its thread."""

    places: Mapping[Place, HeaderHosts]  # by address and port
    authority: Authority
    secrets: KnownSecrets
    trouble: Callable[[Trouble], None]
    tally: RelayTally = msgspec.field(default_factory=RelayTally)
    _say_again: dict[Trouble, float] = msgspec.field(default_factory=dict)  # when
    _outside: dict[tuple[str, int], ssl.SSLContext] = msgspec.field(default_factory=dict)

    async def serve(self, hosts: HeaderHosts, connection: socket.socket, outside: socket.socket) -> bytes | None:
        """Relay one connection to its end, or return what has been read of one that is to be copied as it is."""
        ahead, tls = b"", None
        if hosts.tls:
            ahead, named = await begun(connection)
            tls = self._meant(hosts, named)
            if tls is None:
                return ahead
        try:
            await _Exchange(relays=self, hosts=hosts, tls=tls, outside=outside).serve(SocketStream(connection, ahead))
        except (OSError, ssl.SSLError, h11.ProtocolError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # either side has gone, and nobody is left to be told
        except Exception as error:  # noqa: BLE001 - other connections of the session go on
            self.report(hosts.names[0], hosts.port, f"the relay failed: {type(error).__name__}")
        return None

    def report(self, host: str, port: int, error: str) -> None:
        """Tell the daemon why something went nowhere, once a minute for each reason."""
        found, now = Trouble(host=host, port=port, error=error), anyio.current_time()
        if self._say_again.get(found, now) <= now:
            if len(self._say_again) >= _MOST_REASONS:
                self._say_again.clear()
            self._say_again[found] = now + _SAY_AGAIN_SECONDS
            self.trouble(found)

    def outside(self, header: SecretHeader) -> ssl.SSLContext:
        """Return how TLS with a host is begun: with the machine's authorities, or the host's own."""
        place = (header.host, header.port)
        if place not in self._outside:
            context = ssl.create_default_context(cadata=header.authority or None)
            context.set_alpn_protocols([ALPN])
            self._outside[place] = context
        return self._outside[place]

    @staticmethod
    def _meant(hosts: HeaderHosts, named: str | None) -> str | None:
        """Return which host a session begins TLS with, if something is added there."""
        if named is None:
            return None
        if named:
            return named if named in hosts.names else None
        return next((host for host in hosts.names if address_in(host) is not None), None)


def relays_for(
    headers: Iterable[SecretHeader],
    names: Sequence[tuple[str, tuple[str, ...]]],
    listed: Iterable[tuple[str, int]],
    trouble: Callable[[Trouble], None],
) -> Relays | None:
    """Return the relays of a session; None where nothing is added.

    ``names``: addresses with the names that lead there. ``listed``: the hosts with their ports, with and without a
    header.
    """
    given = tuple(headers)
    if not given:
        return None
    addresses: dict[str, list[str]] = {LOCALHOST: [_LOOPBACK]}
    for address, called in names:
        for name in called:
            addresses.setdefault(name, []).append(address)
    found: dict[Place, list[SecretHeader]] = {}
    for header in given:
        for address in addresses.get(header.host, () if address_in(header.host) is None else (header.host,)):
            found.setdefault((address, header.port), []).append(header)
    hosts_at: dict[Place, set[str]] = {}
    for host, port in listed:
        for address in addresses.get(host, (host,)):
            hosts_at.setdefault((address, port), set()).add(host)
    places = {}
    for (address, port), here in found.items():
        # Of two kinds at one address and port, which two names can have, only one can be served: the one with TLS.
        tls = any(header.tls for header in here)
        kept = tuple(header for header in here if header.tls == tls)
        others = hosts_at.get((address, port), set()) - {header.host for header in kept}
        places[address, port] = HeaderHosts(headers=kept, others=frozenset(others), port=port, tls=tls)
    secrets = KnownSecrets(dict.fromkeys(secret for header in given for secret in (header.value, *header.secrets)))
    return Relays(places=places, authority=Authority(), secrets=secrets, trouble=trouble)


@dataclass(kw_only=True, slots=True)
class _Exchange:
    """One connection of a session, with the one outside."""

    relays: Relays
    hosts: HeaderHosts
    tls: str | None  # the host that the session begins TLS with
    outside: socket.socket
    _inner: Wire = field(init=False)
    _outer: Wire | None = None

    async def serve(self, stream: ByteStream) -> None:
        """Answer requests until one of both sides has ended."""
        try:
            self._inner = Wire(await self._accepted(stream), h11.SERVER)
        except (OSError, ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            # What connects and ends without a word only looked whether something is there.
            self._failed(str(self.tls), f"the session does not take its certificate: {_why(error)}")
            return
        while await self._next() and self._outer is not None and self._goes_on(self._outer):
            self._outer.http.start_next_cycle()
            self._inner.http.start_next_cycle()
        if self._inner.http.our_state in {h11.DONE, h11.MUST_CLOSE}:
            await self._unread()
            with anyio.move_on_after(_CLOSE_SECONDS), suppress(OSError, ssl.SSLError, anyio.BrokenResourceError):
                await self._inner.stream.aclose()  # what is cut off has no such end

    async def _accepted(self, stream: ByteStream) -> ByteStream:
        if self.tls is None:
            return stream
        with anyio.fail_after(HANDSHAKE_SECONDS):
            return await TLSStream.wrap(
                stream,
                server_side=True,
                ssl_context=self.relays.authority.context_for(self.tls),
            )

    def _goes_on(self, outer: Wire) -> bool:
        return all(
            state is h11.DONE for wire in (self._inner, outer) for state in (wire.http.our_state, wire.http.their_state)
        )

    async def _next(self) -> bool:
        """Answer one request; return whether there was one that went out."""
        try:
            request = await self._request()
        except h11.RemoteProtocolError as error:
            await self._refuse_request(HeaderRefusal(_BAD_REQUEST, f"this is no request of HTTP/1.1: {error}"))
            return False
        if request is None:
            return False
        host = refusal(request, self.hosts, self.tls)
        if isinstance(host, HeaderRefusal):
            await self._refuse_request(host)
            return False
        added = self.hosts.of(host)
        try:
            outer = self._outer or Wire(await self._connected(added), h11.CLIENT)
        except (OSError, ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            why = f"no TLS with {host}: {_why(error)}"
            self._failed(host, why)
            await self._refuse(HeaderRefusal(_BAD_GATEWAY, f"{why}; its operator finds more in the daemon's log"))
            return False
        self._outer = outer
        await outer.send(sent(request, added))
        self.relays.tally.added += bool(added)
        await self._both_ways(outer, request.method)
        return True

    async def _request(self) -> h11.Request | None:
        """Return the next request; None at the end of either side, or when none comes."""
        found: h11.Event | type[h11.PAUSED] | None = None

        async def until_it_ends(outer: Wire) -> None:
            with suppress(OSError):
                await outer.read()  # between two answers a host has nothing to say
            tasks.cancel_scope.cancel()

        with anyio.move_on_after(IDLE_SECONDS):
            async with open_tasks() as tasks:
                if self._outer is not None:
                    tasks.start_soon(until_it_ends, self._outer)
                try:
                    found = await self._inner.next_event()
                except GoneError:
                    found = None
                tasks.cancel_scope.cancel()
        return found if isinstance(found, h11.Request) else None

    async def _connected(self, added: Sequence[SecretHeader]) -> ByteStream:
        stream = SocketStream(self.outside)
        if not self.hosts.tls:
            return stream
        with anyio.fail_after(HANDSHAKE_SECONDS):
            return await TLSStream.wrap(
                stream,
                hostname=added[0].host,
                ssl_context=self.relays.outside(added[0]),
                standard_compatible=False,
            )

    async def _both_ways(self, outer: Wire, method: bytes) -> None:
        """Send the rest of a request on, and the answer back; the answer may come before the request has ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._upload, outer, tasks.cancel_scope)
            with suppress(GoneError, TimeoutError, h11.ProtocolError):  # what is not whole is cut off
                await self._answer(outer, method)
            tasks.cancel_scope.cancel()

    async def _upload(self, outer: Wire, exchange: anyio.CancelScope) -> None:
        try:
            while True:
                if self._inner.http.they_are_waiting_for_100_continue:
                    await self._inner.send(h11.InformationalResponse(status_code=100, headers=[]))
                event = await self._inner.next_event()
                if isinstance(event, h11.Data):
                    if not await _goes(outer, h11.Data(data=event.data)):
                        return
                elif isinstance(event, h11.EndOfMessage):
                    if await _goes(outer, h11.EndOfMessage()):
                        await self._until_it_goes()
                    return
                else:
                    break
        except (OSError, h11.ProtocolError):
            pass
        exchange.cancel()

    async def _until_it_goes(self) -> None:
        """Wait for the session to end its side, and raise `GoneError`; what it sends before is its next request."""
        more = await self._inner.read()
        self._inner.http.receive_data(more)
        if not more:
            await anyio.sleep(_GONE_SECONDS)
            raise GoneError

    async def _answer(self, outer: Wire, method: bytes) -> None:
        answer = await outer.next_event()
        while isinstance(answer, h11.InformationalResponse):
            answer = await outer.next_event()
        if not isinstance(answer, h11.Response):
            raise GoneError
        if is_unreadable(answer, method):
            self._failed(self.tls or self.hosts.names[0], "it answers in a coding that was not asked for")
            await self._refuse(
                HeaderRefusal(_BAD_GATEWAY, "the host answers compressed, in which no secret could be found")
            )
            return
        secrets = self.relays.secrets
        fields: Fields = [(name, secrets.masked(value)) for name, value in answer.headers]
        last = ends_connection(answer, method)
        await self._inner.send(returned(answer, method, fields, last=last))
        body = StreamRedactor(secrets)
        while isinstance(event := await outer.next_event(), h11.Data):
            await self._pass_on(body.feed(bytes(event.data)))
        if not isinstance(event, h11.EndOfMessage):
            raise GoneError
        await self._pass_on(body.end())
        await self._inner.send(h11.EndOfMessage())

    async def _pass_on(self, content: bytes) -> None:
        if content:
            await self._inner.send(h11.Data(data=content))

    def _failed(self, host: str, why: str) -> None:
        self.relays.tally.failed += 1
        self.relays.report(host, self.hosts.port, why)

    async def _refuse_request(self, why: HeaderRefusal) -> None:
        self.relays.tally.refused += 1
        self.relays.report(self.tls or self.hosts.names[0], self.hosts.port, why.sentence)
        await self._refuse(why)

    async def _refuse(self, why: HeaderRefusal) -> None:
        """Answer with a sentence, and end the connection."""
        content = f"claudeops: {why.sentence}.\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(content))),
            ("connection", "close"),
        ]
        with suppress(OSError, h11.LocalProtocolError):  # half an answer may be out
            await self._inner.send(h11.Response(status_code=why.status, headers=headers))
            await self._inner.send(h11.Data(data=content))
            await self._inner.send(h11.EndOfMessage())

    async def _unread(self) -> None:
        """Read the rest of a request that was answered before its end: a reset would take the answer with it."""
        if self._inner.http.their_state not in {h11.SEND_BODY, h11.ERROR}:
            return
        with anyio.move_on_after(_UNREAD_SECONDS), suppress(OSError):
            while await self._inner.read():
                pass


async def _goes(outer: Wire, event: h11.Event) -> bool:
    """Send a part of a request; a host that takes no more may still answer."""
    try:
        await outer.send(event)
    except OSError:
        return False
    return True


def _why(error: BaseException) -> str:
    """Return what went wrong, without what the other side may have written."""
    cause = error.__cause__ if isinstance(error, anyio.BrokenResourceError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return str(cause.verify_message)
    if isinstance(cause, ssl.SSLError):
        return str(cause.reason or "TLS failed").replace("_", " ").lower()
    if isinstance(cause, TimeoutError):
        return f"no answer within {HANDSHAKE_SECONDS:g} s"
    return "it ends the connection" if cause is None or not isinstance(cause, OSError) else str(cause.strerror or cause)


async def copied_ahead(outside: socket.socket, ahead: bytes) -> None:
    """Send what was read of a connection that is then copied as it is."""
    await asyncio.get_running_loop().sock_sendall(outside, ahead)
