"""The forwarder: what a session connects to on its own network, the daemon connects to outside.

In the session's network namespace stand only the addresses that it may reach, each with a socket for every port. The
launcher makes these sockets and hands them over (``launcher.py``); here connections to them are accepted, connected
outside, and copied both ways. Nothing else leads out of the namespace.

Each session has a thread with an event loop of its own, so neither another session nor the daemon waits for its bytes.

The kernel accepts a connection before the daemon has connected outside. Where nothing answers there, the session's
connection is reset, and then the address refuses exactly: its socket stays bound, but does not listen. That lasts until
the destination answers, which is tried ten times a second, or until the session's next call: what it mends it looks at
at once. To the daemon's loop goes the real reason.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

import anyio
import msgspec
from anyio.abc import TaskGroup

from claudeops.engine.cell.copying import copy_both_ways, reset
from claudeops.engine.cell.headers.relay import Relays, copied_ahead
from claudeops.engine.cell.own_network import AnyNetwork, Network, listing, places_of

CONNECTIONS: Final = 128
"""How many connections of a session are open at once; more wait in the kernel's queues."""

CONNECT_SECONDS: Final = 10.0
SHUT_SECONDS: Final = 10.0
"""How long a destination may take to answer, and how long one that does not answer refuses exactly at most."""

_HERE: Final = "127.0.0.1"
_HERE_BY_IPV6: Final = "::1"
_LOOK_SECONDS: Final = 0.1  # between two tries of a destination that did not answer
_START_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.1  # while the daemon is out of descriptors
_QUEUE: Final = 64
_PEERS: Final = 64  # of datagrams; the one that came first is dropped
_DATAGRAM_BYTES: Final = 65535
_BUFFER_BYTES: Final = 1024 * 1024
_LEAST_BYTES: Final = 32 * 1024
_ALL_BYTES: Final = 8 * 1024 * 1024  # read at once from all connections of a session together
_MESSAGE_BYTES: Final = 4096
_MOST_HANDED: Final = 253  # descriptors in one message: SCM_MAX_FD
_SAY_AGAIN_SECONDS: Final = 60.0  # between two reports of one place that fails for one reason
_DONE: Final = b".\n"  # the launcher's last message
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class NotConnected(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that did not answer a session."""

    address: str
    port: int
    error: str  # why


class ForwarderTally(msgspec.Struct, kw_only=True):
    """What a session's forwarder has done."""

    connected: int = 0
    failed: int = 0
    open: int = 0  # connections now
    missing: tuple[str, ...] = ()  # addresses with ports that this machine cannot make a socket for


class OpenNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A session's network, before and while the session runs."""

    door: int  # descriptor of the socket over which the launcher hands over what it makes
    tally: ForwarderTally
    listen_again: Callable[[], None]  # has all destinations that refuse exactly tried anew


@asynccontextmanager
async def open_network(
    network: Network,
    failed: Callable[[NotConnected], None],
    *,
    excluded: Callable[[str], bool] | None = None,
    relays: Relays | None = None,
) -> AsyncIterator[OpenNetwork]:
    """Forward a session's connections for the length of the block; raises `OSError`.

    ``excluded`` says which addresses of a listed network are not reached; it is called on the forwarder's thread.

    ``failed`` is called on the caller's event loop for connections that cannot be made, once a minute for each reason.

    ``relays`` adds headers to what goes to some of the places.
    """
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    started, ended = anyio.Event(), anyio.Event()

    def back(call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the daemon's loop has ended
            loop.call_soon_threadsafe(call, *arguments)

    forwarder = _Forwarder(
        network=network,
        door=ours,
        failed=partial(back, failed),
        started=partial(back, started.set),
        excluded=excluded or (lambda _: False),
        relays=relays,
    )

    def serve() -> None:
        try:
            anyio.run(forwarder.serve)
        finally:
            back(ended.set)

    with ours, theirs:
        ours.sendall(listing(network))  # before anything reads: what a socket's queue holds is longer
        ours.settimeout(0)
        threading.Thread(target=serve, name="forwarder", daemon=True).start()
        try:
            with anyio.move_on_after(_START_SECONDS):
                await started.wait()
            if not started.is_set():
                raise TimeoutError(errno.ETIMEDOUT, f"its network was not there within {_START_SECONDS:g} s")
            yield OpenNetwork(door=theirs.fileno(), tally=forwarder.tally, listen_again=forwarder.listen_again)
        finally:
            forwarder.stop()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
                await ended.wait()


@dataclass(kw_only=True, slots=True)
class _Place:
    """Where connections of the session arrive."""

    kind: str  # ``tcp`` or ``udp``
    address: str
    port: int
    networks: tuple[AnyNetwork, ...] = ()  # that it stands for, instead of one address
    socket: socket.socket = field(init=False)
    shut: anyio.Event | None = None  # set when it listens again; None: it listens


@dataclass(kw_only=True, slots=True)
class _Forwarder:
    """Runs on the session's own thread, but for `stop`."""

    network: Network
    door: socket.socket
    failed: Callable[[NotConnected], None]
    started: Callable[[], None]
    excluded: Callable[[str], bool]
    relays: Relays | None
    tally: ForwarderTally = field(default_factory=ForwarderTally)
    _tasks: TaskGroup = field(init=False)
    _loop: asyncio.AbstractEventLoop | None = None
    _slots: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(CONNECTIONS))
    _peers: OrderedDict[tuple[int, object], _Peer] = field(default_factory=OrderedDict)
    _refusals: set[anyio.CancelScope] = field(default_factory=set)  # one for each place that refuses exactly
    _say_again: dict[NotConnected, float] = field(default_factory=dict)  # when
    _buffer: bytearray = field(default_factory=lambda: bytearray(_BUFFER_BYTES))

    def stop(self) -> None:
        """End it, from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._tasks.cancel_scope.cancel)

    def listen_again(self) -> None:
        """End all exact refusals, from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end_refusals)

    def _end_refusals(self) -> None:
        for refusal in self._refusals:
            refusal.cancel()

    async def serve(self) -> None:
        """Forward until stopped."""
        places = [
            _Place(kind=each.kind, address=each.address, port=each.port, networks=each.networks)
            for each in places_of(self.network)
        ]
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks, self._loop = tasks, asyncio.get_running_loop()
                self.started()
                await self._receive(places)
                await anyio.sleep_forever()
        finally:
            for place in places:
                with suppress(AttributeError):  # never handed over
                    place.socket.close()

    async def _receive(self, places: list[_Place]) -> None:
        """Take the sockets that the launcher hands over, and begin to serve them."""
        missing = dict(enumerate(places))
        while True:
            await anyio.wait_readable(self.door)
            try:
                content, descriptors, _, _ = socket.recv_fds(self.door, _MESSAGE_BYTES, _MOST_HANDED)
            except OSError:  # it ended with lines unread
                break
            if content in {b"", _DONE}:
                break
            handed = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            for number, given in zip(content.decode("ascii").strip().split(","), handed, strict=True):
                place = missing.pop(int(number))
                given.settimeout(0)
                given.set_inheritable(False)
                place.socket = given
                self._tasks.start_soon(self._accept if place.kind == "tcp" else self._relay, place)
        self.tally.missing = tuple(f"{place.address}:{place.port}" for place in missing.values())

    # --- connections ------------------------------------------------------------------------------------

    async def _accept(self, place: _Place) -> None:
        while True:
            if place.shut is not None:
                await place.shut.wait()
            await anyio.wait_readable(place.socket)
            await self._slots.acquire()
            try:
                connection, _ = place.socket.accept()
            except OSError as error:  # another one was shut, or took it
                self._slots.release()
                if error.errno in _OUT_OF_DESCRIPTORS:
                    await anyio.sleep(_AGAIN_SECONDS)
                continue
            self._tasks.start_soon(self._forward, place, connection)

    async def _forward(self, place: _Place, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(0)
                address = connection.getsockname()[0] if place.networks else place.address
                if not self._is_listed(address, place):
                    reset(connection)
                    return
                try:
                    outside = await _connected(address, place.port, socket.SOCK_STREAM)
                except OSError as error:
                    self._shut(place)  # before the session learns of it, and tries again
                    reset(connection)
                    self._not_connected(address, place.port, error)
                    return
                self.tally.connected += 1
                self.tally.open += 1
                with outside:
                    try:
                        if await self._is_relayed(address, place.port, connection, outside):
                            return
                        await copy_both_ways(connection, outside, self._room())
                    finally:
                        self.tally.open -= 1
        finally:
            self._slots.release()

    async def _is_relayed(self, address: str, port: int, connection: socket.socket, outside: socket.socket) -> bool:
        """Relay a connection to a host for which a header is added; return whether it was one."""
        hosts = self.relays.places.get((address, port)) if self.relays is not None else None
        if self.relays is None or hosts is None:
            return False
        try:
            ahead = await self.relays.serve(hosts, connection, outside)
            if ahead is not None:
                await copied_ahead(outside, ahead)
        except OSError:  # it was reset
            return True
        return ahead is None

    def _shut(self, place: _Place) -> None:
        """Refuse exactly, until the destination answers; a network's socket also serves others, and stays open."""
        if not place.networks and place.shut is None:
            place.shut = anyio.Event()
            with suppress(OSError):
                place.socket.shutdown(socket.SHUT_RDWR)
            self._tasks.start_soon(self._open_again, place, place.shut)

    async def _open_again(self, place: _Place, opened: anyio.Event) -> None:
        with anyio.move_on_after(SHUT_SECONDS) as refusal:
            self._refusals.add(refusal)
            answers = False
            while not answers:
                await anyio.sleep(_LOOK_SECONDS)
                with suppress(OSError):
                    (await _connected(place.address, place.port, socket.SOCK_STREAM)).close()
                    answers = True
        self._refusals.discard(refusal)
        place.socket.listen(_QUEUE)
        place.shut = None
        opened.set()

    def _is_listed(self, address: str, place: _Place) -> bool:
        if not place.networks:
            return True
        numeric = ipaddress.ip_address(address)
        one, many = ipaddress.ip_network(numeric), [each for each in place.networks if numeric in each]
        return one in many or (bool(many) and not self.excluded(address))

    def _room(self) -> memoryview:
        """Return where a connection's bytes are read to: what is read at once may wait to be written, for each way."""
        return memoryview(self._buffer)[: max(_LEAST_BYTES, min(_BUFFER_BYTES, _ALL_BYTES // self.tally.open))]

    def _not_connected(self, address: str, port: int, error: OSError) -> None:
        self.tally.failed += 1
        why = os.strerror(error.errno) if error.errno else f"no answer within {CONNECT_SECONDS:g} s"
        failure = NotConnected(address=address, port=port, error=why)
        now = anyio.current_time()
        if self._say_again.get(failure, now) <= now:
            self._say_again[failure] = now + _SAY_AGAIN_SECONDS
            self.failed(failure)

    # --- datagrams --------------------------------------------------------------------------------------

    async def _relay(self, place: _Place) -> None:
        """Send on what the session sends to a place, from a socket outside for each of its own sockets."""
        while True:
            await anyio.wait_readable(place.socket)
            try:
                content, client = place.socket.recvfrom(_DATAGRAM_BYTES)
                peer = self._peers.get((place.socket.fileno(), client)) or await self._peer(place, client)
                peer.outside.send(content)
            except BlockingIOError:
                continue  # nothing there after all, or no room outside: datagrams may be lost
            except OSError as error:
                self._not_connected(place.address, place.port, error)

    async def _peer(self, place: _Place, client: object) -> _Peer:
        outside = await _connected(place.address, place.port, socket.SOCK_DGRAM)
        self.tally.connected += 1
        peer = _Peer(outside=outside)
        if len(self._peers) >= _PEERS:
            _, oldest = self._peers.popitem(last=False)
            oldest.scope.cancel()
        self._peers[place.socket.fileno(), client] = peer
        self._tasks.start_soon(self._answer, place, client, peer)
        return peer

    async def _answer(self, place: _Place, client: object, peer: _Peer) -> None:
        with peer.outside, peer.scope:
            while True:
                await anyio.wait_readable(peer.outside)
                try:
                    content = peer.outside.recv(_DATAGRAM_BYTES)
                    place.socket.sendto(content, cast("tuple[str, int]", client))
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._not_connected(place.address, place.port, error)


class _Peer(msgspec.Struct, kw_only=True):
    """The daemon's socket outside for one socket of the session's that sends datagrams."""

    outside: socket.socket
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)


async def _connected(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
    """Return a connected socket; raises `OSError`. Bounded by `CONNECT_SECONDS`, for each address of loopback."""
    try:
        return await _connected_to(address, port, kind)
    except ConnectionRefusedError:
        if address != _HERE or kind != socket.SOCK_STREAM:
            raise
        # ``localhost`` is one address in the cell, since a program takes the first that answers, as all do there.
        with suppress(OSError):
            return await _connected_to(_HERE_BY_IPV6, port, kind)
        raise


async def _connected_to(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        made.settimeout(0)
        with anyio.fail_after(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made
