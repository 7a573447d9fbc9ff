"""The Bot API of Telegram: one method call is one HTTPS request, bounded as a whole.

The token is part of every address, so no error of a library is ever repeated: what went wrong is in words of ours, or
in those of the server's answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio
import httpcore2
import msgspec

from claudeops.engine.meter.connections import BROKEN, NEVER_SENT, connection_pool

MESSAGE_SECONDS: Final = 8.0
"""How long one call may take, but for the long poll."""

_CONNECT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 1.0
_MOST_BYTES: Final = 4 * 1024 * 1024  # of an answer
_MOST_CHARACTERS: Final = 300  # of a description
_LONGEST_WAIT_SECONDS: Final = 3600.0
_NULL: Final = msgspec.Raw(b"null")


class CallOutcome(StrEnum):
    """What came of a call."""

    OK = "ok"
    REFUSED = "refused"  # by the server: nothing was done
    AWAY = "away"  # it was not reached: nothing was done
    UNCLEAR = "unclear"  # no answer outcome: it may have been done


class BotReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call."""

    outcome: CallOutcome
    result: bytes = b"null"  # JSON
    status: int | None = None
    error: str = ""
    description: str = ""  # of a refusal, by the server
    wait_seconds: float | None = None  # that the server wants before the next call
    moved_to: int | None = None  # the id that the chat has now: it became a supergroup

    @property
    def is_final(self) -> bool:
        """Whether the same call would be refused again."""
        return self.outcome is CallOutcome.REFUSED and self.status in {400, 401, 403, 404}


class _Parameters(msgspec.Struct):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class _Envelope(msgspec.Struct):
    ok: bool = False
    result: msgspec.Raw = _NULL
    description: str = ""
    parameters: _Parameters | None = None


class BotApi:
    """The methods of one bot."""

    def __init__(self, api: str, token: str, *, network: Mapping[str, str], seconds: float = MESSAGE_SECONDS) -> None:
        """Take the server's address, the bot's token, and proxies and CA files by variable."""
        self._base = urlsplit(api)
        self._token = token
        self._pool = connection_pool(api, network)
        self.seconds = seconds

    async def close(self) -> None:
        """Close the connections; bounded."""
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True), contextlib.suppress(*BROKEN):
            await self._pool.aclose()

    async def call(self, method: str, arguments: Mapping[str, object], *, seconds: float | None = None) -> BotReply:
        """Call a method; never raises for what a network or a server may do."""
        bound = self.seconds if seconds is None else seconds
        try:
            with anyio.fail_after(bound):
                return await self._called(self._request(method, arguments, bound))
        except NEVER_SENT as error:
            return BotReply(outcome=CallOutcome.AWAY, error=f"the Bot API cannot be reached ({type(error).__name__})")
        except BROKEN as error:
            return BotReply(outcome=CallOutcome.UNCLEAR, error=f"the Bot API broke off ({type(error).__name__})")
        except TimeoutError:
            return BotReply(outcome=CallOutcome.UNCLEAR, error=f"the Bot API gave no answer within {bound:g} s")

    def _request(self, method: str, arguments: Mapping[str, object], bound: float) -> httpcore2.Request:
        body = msgspec.json.encode(arguments)
        target = f"{self._base.path.rstrip('/')}/bot{self._token}/{method}".encode()
        host = (self._base.hostname or "").encode("idna")
        named = b"[%s]" % host if b":" in host else host
        headers = [
            (b"host", named if self._base.port is None else b"%s:%d" % (named, self._base.port)),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"claudeops"),
        ]
        # Less than the whole, so that what was never sent is known from what may have arrived.
        connect = min(_CONNECT_SECONDS, bound * 0.6)
        timeouts = {"connect": connect, "pool": connect, "read": bound, "write": bound}
        return httpcore2.Request(
            b"POST", _url(self._base, target), headers=headers, content=body, extensions={"timeout": timeouts}
        )

    async def _called(self, request: httpcore2.Request) -> BotReply:
        response = await self._pool.handle_async_request(request)
        try:
            body = bytearray()
            async for piece in response.aiter_stream():
                body += piece
                if len(body) > _MOST_BYTES:
                    return BotReply(outcome=CallOutcome.UNCLEAR, error="the Bot API answered too much")
        finally:
            with anyio.CancelScope(shield=True):  # closes a socket, waits for nothing
                await response.aclose()
        return _read(response.status, bytes(body))


def _read(status: int, body: bytes) -> BotReply:
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except msgspec.DecodeError:
        envelope = _Envelope()
    if envelope.ok and status < 300:  # noqa: PLR2004 - HTTP's classes
        return BotReply(outcome=CallOutcome.OK, result=bytes(envelope.result), status=status)
    description = envelope.description[:_MOST_CHARACTERS]
    error = f"HTTP status {status}" + (f": {description}" if description else "")
    given = envelope.parameters or _Parameters()
    wait = given.retry_after
    if wait is not None:
        wait = min(max(wait, 0.0), _LONGEST_WAIT_SECONDS)
        error = f"{error} (it asks to wait {wait:g} s)"
    return BotReply(
        outcome=CallOutcome.REFUSED,
        status=status,
        error=error,
        description=description,
        wait_seconds=wait,
        moved_to=given.migrate_to_chat_id,
    )


def _url(base: SplitResult, target: bytes) -> httpcore2.URL:
    host = (base.hostname or "").encode("idna")
    return httpcore2.URL(scheme=base.scheme.encode(), host=host, port=base.port, target=target)
