"""The identity provider over HTTP: its configuration, its keys, and the token that it gives for a code.

Every exchange is bounded in time and in bytes, and follows no redirect. What the provider writes reaches no log and no
page: what went wrong is said in words of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

import anyio
import httpcore2

from claudeops.clock import Clock
from claudeops.errors import ConfigurationError
from claudeops.formats.oidc import (
    Endpoints,
    ExpectedToken,
    OidcClient,
    TokenFault,
    endpoints_of,
    error_in,
    id_token_in,
    token_request,
)
from claudeops.tasks import Threads
from claudeops.web.oidc.id_token import Keys, claims_of, keys_of

SECONDS: Final = 5.0
"""For one exchange; a login takes up to four of them."""

MOST_BYTES: Final = 256 * 1024
"""Of an answer."""

FRESH_SECONDS: Final = 3600.0
"""For which configuration and keys are believed."""

AGAIN_SECONDS: Final = 5.0
"""After a failure, in which the provider is not asked again."""

KEYS_AGAIN_SECONDS: Final = 60.0
"""Between two readings of the keys for one that is not among them."""

_CHECK_SECONDS: Final = 5.0
_CHECKS_AT_ONCE: Final = 2
_CLOSE_SECONDS: Final = 1.0
_BROKEN: Final = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
    ConfigurationError,
)

T = TypeVar("T")


class ProviderError(Exception):
    """The provider is away or does not do its part; ``str()`` says what is wrong, as a sentence without its texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    status: int
    body: bytes = field(repr=False)


@dataclass(kw_only=True)
class _Kept(Generic[T]):
    """Something of the provider's, read again once it is too old; whoever comes meanwhile waits for that reading."""

    read: Callable[[], Awaitable[T]]  # raises `ProviderError`
    clock: Clock
    _found: tuple[float, T] | None = None  # read at that monotonic second
    _failed: tuple[float, ProviderError] | None = None
    _reading: anyio.Lock = field(default_factory=anyio.Lock)

    async def get(self, *, fresh_seconds: float = FRESH_SECONDS) -> T:
        """Return it, no older than that. Raises `ProviderError`."""
        async with self._reading:
            now = self.clock.monotonic()
            if self._found is not None and now - self._found[0] < fresh_seconds:
                return self._found[1]
            if self._failed is not None and now - self._failed[0] < AGAIN_SECONDS:
                raise ProviderError(str(self._failed[1]))
            try:
                found = await self.read()
            except ProviderError as error:
                self._failed = (self.clock.monotonic(), error)
                raise
            self._found, self._failed = (self.clock.monotonic(), found), None
            return found


@dataclass(kw_only=True)
class Provider:
    """The identity provider."""

    client: OidcClient
    connect: Callable[[str], httpcore2.AsyncConnectionPool]  # to the server of an address; raises `ConfigurationError`
    clock: Clock
    seconds: float = SECONDS
    _endpoints: _Kept[Endpoints] = field(init=False)
    _keys: _Kept[Keys] = field(init=False)
    _threads: Threads = field(default_factory=lambda: Threads(most=_CHECKS_AT_ONCE))

    def __post_init__(self) -> None:
        self._endpoints = _Kept(read=self._read_endpoints, clock=self.clock)
        self._keys = _Kept(read=self._read_keys, clock=self.clock)

    async def endpoints(self) -> Endpoints:
        """Return where the provider takes what. Raises `ProviderError`."""
        return await self._endpoints.get()

    async def keys(self) -> Keys:
        """Return the keys by which the provider signs. Raises `ProviderError`."""
        return await self._keys.get()

    async def claims(
        self, code: str, *, verifier: str, callback: str, expected: ExpectedToken
    ) -> Mapping[str, object] | TokenFault:
        """Return what the token says that the provider gives for a code, else why that does not hold.

        Raises `ProviderError`, and `TimeoutError`. The access token is not kept.
        """
        token = await self._token(code, verifier=verifier, callback=callback)
        found = await self._checked(token, await self.keys(), expected)
        if found is not TokenFault.UNKNOWN_KEY:
            return found
        # It may have begun to sign by a new key since.
        return await self._checked(token, await self._keys.get(fresh_seconds=KEYS_AGAIN_SECONDS), expected)

    async def _checked(self, token: str, keys: Keys, expected: ExpectedToken) -> Mapping[str, object] | TokenFault:
        work = partial(claims_of, token, keys, expected)
        return await self._threads.run(work, seconds=_CHECK_SECONDS, what="looking at a token")

    async def _token(self, code: str, *, verifier: str, callback: str) -> str:
        endpoints = await self.endpoints()
        form, headers = token_request(self.client, endpoints, code=code, verifier=verifier, callback=callback)
        answer = await self._exchange(endpoints.token, form=form, headers=headers)
        if answer.status != HTTPStatus.OK:
            named = error_in(answer.body)
            raise ProviderError(
                f"it refuses the code with status {answer.status}" + (f" and the error {named}" if named else "")
            )
        token = id_token_in(answer.body)
        if token is None:
            raise ProviderError("it gives no ID token for the code")
        return token

    async def _read_endpoints(self) -> Endpoints:
        found = endpoints_of(await self._document(self.client.configuration, "configuration"), self.client.issuer)
        if isinstance(found, str):
            raise ProviderError(found)
        return found

    async def _read_keys(self) -> Keys:
        body = await self._document((await self.endpoints()).keys, "keys")
        keys = await self._threads.run(partial(keys_of, body), seconds=_CHECK_SECONDS, what="reading keys")
        if keys is None:
            raise ProviderError("it has no key that could sign a token")
        return keys

    async def _document(self, address: str, what: str) -> bytes:
        answer = await self._exchange(address)
        if answer.status != HTTPStatus.OK:
            raise ProviderError(f"it answers with status {answer.status} where its {what} should be")
        return answer.body

    async def _exchange(
        self, address: str, *, form: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> _Answer:
        """Send one request on a connection of its own, and return the answer. Raises `ProviderError`."""
        try:
            with anyio.fail_after(self.seconds):
                return await self._answered(address, form, headers or {})
        except _BROKEN as error:
            raise ProviderError(f"it cannot be reached, or breaks off ({type(error).__name__})") from None
        except (TimeoutError, httpcore2.TimeoutException):  # whichever comes first
            raise ProviderError(f"it gives no answer within {self.seconds:g} s") from None

    async def _answered(self, address: str, form: bytes | None, headers: Mapping[str, str]) -> _Answer:
        pool = self.connect(address)
        try:
            response = await pool.handle_async_request(_request(address, form, headers, self.seconds))
            body = bytearray()
            async for piece in response.aiter_stream():
                body += piece
                if len(body) > MOST_BYTES:
                    raise ProviderError(f"it answers with more than {MOST_BYTES} bytes")
            return _Answer(status=response.status, body=bytes(body))
        finally:
            with (
                anyio.move_on_after(_CLOSE_SECONDS, shield=True),
                contextlib.suppress(*_BROKEN, httpcore2.TimeoutException),
            ):
                await pool.aclose()


def _request(address: str, form: bytes | None, headers: Mapping[str, str], seconds: float) -> httpcore2.Request:
    parts = urlsplit(address)
    host = (parts.hostname or "").encode("idna")
    named = b"[%s]" % host if b":" in host else host
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}".encode()
    sent = [
        (b"host", named if parts.port is None else b"%s:%d" % (named, parts.port)),
        (b"accept", b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"user-agent", b"claudeops"),
        *((name.encode(), value.encode()) for name, value in headers.items()),
    ]
    if form is not None:
        sent.append((b"content-length", str(len(form)).encode()))
    return httpcore2.Request(
        b"GET" if form is None else b"POST",
        httpcore2.URL(scheme=parts.scheme.encode(), host=host, port=parts.port, target=target),
        headers=sent,
        content=form,
        extensions={"timeout": dict.fromkeys(("connect", "pool", "read", "write"), seconds)},
    )
