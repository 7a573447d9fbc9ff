"""Connections of looks: names resolved off the event loop, every address checked, bytes counted, TLS.

A connection is a socket and nothing else: no transport, no task. Closing it is immediate, so whatever cancels a look
leaves nothing behind. Every connection has a number of bytes that it takes in at most; whatever sends more is told
about and left.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from claudeops.clock import Clock
from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.engine.probes.results import Attempt, LookFailedError, blind, quote
from claudeops.tasks import Threads

MOST_BYTES: Final = 512 * 1024
"""Bytes that one connection of a look takes in, heads and handshakes included."""

_READ_BYTES: Final = 16 * 1024
_MOST_ADDRESSES: Final = 4  # of a name that are tried
_LOOKUPS: Final = 32  # names that are looked up at once, including lookups that nobody waits for any more
_LOAD_SECONDS: Final = 30.0
_NO_TLS: Final = ssl.MemoryBIO()  # stands where nothing is encrypted, and stays empty
_KEPT_HOSTS: Final = 4096

refusal = lru_cache(maxsize=_KEPT_HOSTS)(refuse_host)
"""Why a host is never asked, or None; kept, since every look asks it again about the same few."""

_TLS_RECORD: Final = 0x16  # the first byte of whatever begins a handshake

T = TypeVar("T")
Address = tuple[socket.AddressFamily, tuple[Any, ...]]
Resolve = Callable[[str, int], Sequence[Address]]

_UNKNOWN_NAMES: Final = frozenset(
    code for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if (code := getattr(socket, name, None)) is not None
)


def system_resolve(host: str, port: int) -> Sequence[Address]:
    """Return the addresses of a name as this machine resolves it; blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, sockaddr) for family, _, _, _, sockaddr in found]


def unverified_context() -> ssl.SSLContext:
    """Return a context that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _no_hosts() -> Collection[str]:
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What looks share, made once; making a context for TLS alone takes ten times as long as a look.

    A context holds a MiB of certificates, so it is made for the first look that needs it.
    """

    clock: Clock
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # for ``${NAME}`` in headers
    hosts: Callable[[], Collection[str]] = _no_hosts  # of the estate, lower case
    verified: Callable[[], ssl.SSLContext] = field(default_factory=lambda: cache(ssl.create_default_context))
    unverified: Callable[[], ssl.SSLContext] = field(default_factory=lambda: cache(unverified_context))
    resolve: Resolve = system_resolve
    lookups: Threads = field(default_factory=lambda: Threads(most=_LOOKUPS))

    async def load(self, module: str) -> None:
        """Import a library that few kinds need; imports take long enough to hold up the event loop."""
        if module not in sys.modules:
            await self.lookups.run(
                lambda: importlib.import_module(module), seconds=_LOAD_SECONDS, what=f"loading {module}"
            )

    async def addresses(self, host: str, port: int, attempt: Attempt) -> Sequence[Address]:
        """Return the addresses of a host, each of which may be asked; raises `LookFailedError`.

        A name that stands for a forbidden address among others is refused as a whole: only somebody who wants that
        address to be asked would publish it.
        """
        if (why := refusal(host)) is not None:
            raise blind(why)
        plain = host.removeprefix("[").removesuffix("]").rstrip(".")
        try:
            literal = ipaddress.ip_address(plain)
        except ValueError:
            found = await self._looked_up(plain, port, attempt)
        else:
            family = socket.AF_INET if literal.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP version
            found = [(family, (plain, port))]
        for _, address in found:
            if (why := refusal(str(address[0]))) is not None:
                raise attempt.failed(f"{host} stands for a forbidden address: {why}")
        return found[:_MOST_ADDRESSES]

    async def _looked_up(self, host: str, port: int, attempt: Attempt) -> Sequence[Address]:
        attempt.begin(f"looking up {host}", ours=True)
        try:
            found = await self.lookups.run(
                lambda: self.resolve(host, port), seconds=attempt.timeout, what=f"looking up {host}"
            )
        except socket.gaierror as error:
            if error.errno in _UNKNOWN_NAMES:
                raise attempt.failed(f"the name {host} is not known") from None
            raise blind(f"the name {host} could not be looked up: this machine's resolver gave no answer") from None
        except (OSError, UnicodeError, RuntimeError):  # no thread to be had, or no answer within the time
            raise blind(f"the name {host} could not be looked up in time") from None
        if not found:
            raise attempt.failed(f"the name {host} has no address")
        return found

    @contextlib.asynccontextmanager
    async def connection(self, host: str, port: int, attempt: Attempt) -> AsyncIterator[ProbeStream]:
        """Connect to the first address of a host that answers; raises `LookFailedError`."""
        addresses = await self.addresses(host, port, attempt)
        attempt.begin(f"connecting to port {port}")
        stream = await _first_that_answers(addresses, attempt)
        with stream.closing():
            yield stream

    @contextlib.asynccontextmanager
    async def unix_connection(self, path: str, attempt: Attempt) -> AsyncIterator[ProbeStream]:
        """Connect to a socket on this machine; raises `LookFailedError`."""
        attempt.begin(f"connecting to {path}")
        stream = await _connected(socket.AF_UNIX, path, attempt)
        with stream.closing():
            yield stream


async def _first_that_answers(addresses: Sequence[Address], attempt: Attempt) -> ProbeStream:
    last = attempt.failed("no address of it answers in time")
    for tried, (family, address) in enumerate(addresses, 1):
        # An address that swallows everything leaves time for those behind it.
        share = attempt.left / (len(addresses) - tried + 1) if tried < len(addresses) else None
        with anyio.move_on_after(share) if share is not None else contextlib.nullcontext():
            try:
                return await _connected(family, address, attempt)
            except LookFailedError as error:
                last = error
    raise last


async def _connected(family: socket.AddressFamily, address: tuple[Any, ...] | str, attempt: Attempt) -> ProbeStream:
    where = address if isinstance(address, str) else f"port {address[1]}"
    try:
        plain = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise attempt.broken(error, f"connecting to {where}") from None
    try:
        plain.setblocking(False)  # noqa: FBT003 - positional only
        await asyncio.get_running_loop().sock_connect(plain, address)
    except OSError as error:
        plain.close()
        raise attempt.broken(error, f"connecting to {where}") from None
    except BaseException:
        plain.close()
        raise
    return ProbeStream(plain, attempt)


class ProbeStream:
    """One connection of a look."""

    def __init__(self, plain: socket.socket, attempt: Attempt) -> None:
        self.attempt = attempt
        self.first = b""  # the first bytes that came, for a detail
        self.tls: ssl.SSLObject | None = None
        self._socket = plain
        self._loop = asyncio.get_running_loop()
        self._left = MOST_BYTES
        self._unread = b""  # that came with what `exactly` was asked for
        self._incoming, self._outgoing = _NO_TLS, _NO_TLS

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Close the connection at the end of the block."""
        try:
            yield
        finally:
            self._socket.close()

    async def send(self, content: bytes) -> None:
        """Send everything; raises `LookFailedError`."""
        if self.tls is None:
            await self._send(content)
            return
        tls = self.tls
        await self._drive(lambda: tls.write(content))

    async def receive(self) -> bytes:
        """Return some bytes, none at the end; raises `LookFailedError`."""
        if self.tls is None:
            return await self._receive()
        tls = self.tls
        try:
            return await self._drive(lambda: tls.read(_READ_BYTES))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""
        except ssl.SSLError as error:
            raise self.attempt.failed(f"the TLS connection broke: {_reason(error)}") from None

    async def exactly(self, count: int) -> bytes:
        """Return this many bytes, or fewer at the end of the connection; raises `LookFailedError`."""
        while len(self._unread) < count and (more := await self.receive()):
            self._unread += more
        found, self._unread = self._unread[:count], self._unread[count:]
        return found

    async def start_tls(self, context: ssl.SSLContext, server_name: str) -> ssl.SSLObject:
        """Make the handshake; raises `LookFailedError`, which tells a certificate that is not taken precisely."""
        self.attempt.begin("in the TLS handshake")
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name.rstrip("."))
        except (ValueError, TypeError):
            raise blind(f"{quote(server_name)} cannot be the name of a TLS server") from None
        try:
            await self._drive(tls.do_handshake)
        except ssl.SSLCertVerificationError as error:
            raise self.attempt.failed(_verification(error, server_name)) from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise self.attempt.failed("the connection was closed in the TLS handshake") from None
        except ssl.SSLError as error:
            raise self.attempt.failed(self._no_tls(error)) from None
        self.tls = tls
        return tls

    def _no_tls(self, error: ssl.SSLError) -> str:
        if self.first and self.first[0] not in {_TLS_RECORD, 0x15}:  # an alert is TLS too
            return f"it does not speak TLS: it answered {quote(self.first)}"
        return f"the TLS handshake failed: {_reason(error)}"

    async def _drive(self, step: Callable[[], T]) -> T:
        """Call a function of TLS until it needs no more bytes from the other side."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
                if more := await self._receive():
                    self._incoming.write(more)
                else:
                    self._incoming.write_eof()
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        if pending := self._outgoing.read():
            await self._send(pending)

    async def _send(self, content: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._socket, content)
        except OSError as error:
            raise self.attempt.broken(error, self.attempt.doing) from None

    async def _receive(self) -> bytes:
        if self._left <= 0:
            raise self.attempt.failed(f"it sent more than {MOST_BYTES // 1024} KiB: {self.attempt.doing}")
        if self.first:
            # Bytes that are there already are read without a pause: a flood would keep the event loop to itself.
            await anyio.lowlevel.checkpoint()
        try:
            content = await self._loop.sock_recv(self._socket, _READ_BYTES)
        except OSError as error:
            raise self.attempt.broken(error, self.attempt.doing) from None
        self._left -= len(content)
        if not self.first:
            self.first = content[:512]
        return content


# --- certificates ------------------------------------------------------------------------------------------


class Certificate(msgspec.Struct, frozen=True):
    """A server's certificate."""

    not_after: datetime

    def days_left(self, now: datetime) -> float:
        """Return for how many days it is valid; negative once it has expired."""
        return (self.not_after - now).total_seconds() / 86_400

    def told(self, now: datetime) -> str:
        """Return the sentence about its end."""
        days, day = self.days_left(now), f"{self.not_after:%Y-%m-%d}"
        if days < 0:
            ago = f"{-days:.0f} day{'' if round(-days) == 1 else 's'}"
            return f"its certificate expired {ago} ago, on {day}"
        return f"its certificate expires in {days:.{0 if days >= 2 else 1}f} days, on {day}"  # noqa: PLR2004 - days


async def certificate_of(tls: ssl.SSLObject, means: Means) -> Certificate | None:
    """Return the certificate of a connection, verified or not; ``None`` if it shows none that can be read."""
    told = tls.getpeercert()
    if told and isinstance(ends := told.get("notAfter"), str):
        return Certificate(datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC))
    encoded = tls.getpeercert(binary_form=True)  # what was not verified is not decoded by the standard library
    if encoded is None:
        return None
    await means.load("cryptography.x509")
    from cryptography import x509  # noqa: PLC0415 - takes as long to import as all the rest

    try:
        return Certificate(x509.load_der_x509_certificate(encoded).not_valid_after_utc)
    except ValueError:
        return None


_SELF_SIGNED: Final = 18
_SELF_SIGNED_IN_CHAIN: Final = 19
_UNKNOWN_ISSUER: Final = 20
_UNVERIFIED_LEAF: Final = 21
_WRONG_HOST: Final = 62
_WRONG_ADDRESS: Final = 64
_VERIFICATION: Final[Mapping[int, str]] = {
    # Of OpenSSL's x509_vfy.h: X509_V_ERR_…
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    _SELF_SIGNED: "its certificate is self-signed",
    _SELF_SIGNED_IN_CHAIN: "its certificate was issued by an authority that this machine does not trust",
    _UNKNOWN_ISSUER: "its certificate was issued by an authority that this machine does not know",
    _UNVERIFIED_LEAF: "it does not send the certificates between its own and a trusted authority",
    23: "its certificate was revoked",
}


def _verification(error: ssl.SSLCertVerificationError, server_name: str) -> str:
    if error.verify_code in {_WRONG_HOST, _WRONG_ADDRESS}:
        return f"its certificate is for another host than {server_name}"
    known = _VERIFICATION.get(error.verify_code)
    return known or f"its certificate is not accepted: {error.verify_message}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or type(error).__name__).replace("_", " ").lower()
