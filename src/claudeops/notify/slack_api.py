"""Slack's Web API: one call, and what came of it. Slack may hang, refuse or be away: that is a value, no exception."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import anyio
import msgspec

from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.engine.meter.connections import BROKEN, NEVER_SENT, connection_pool

CALL_SECONDS: Final = 8.0
"""How long Slack may take for one call."""

LONGEST_SECONDS: Final = 3600.0
"""For how long Slack is left alone at most when it says so."""

_PATIENCE_SECONDS: Final = 30.0  # after a 429 that does not say how long
_CONNECT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 1.0
_MOST_BYTES: Final = 512 * 1024  # of an answer


class SlackReply(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call."""

    result: DeliveryOutcome  # UNKNOWN: it may have been carried out
    error: str = ""  # what went wrong, in words
    word: str = ""  # Slack's own word for it, where there is one
    retry_after: float | None = None  # seconds for which Slack wants to be left alone
    ts: str = ""  # of the message, where the call was about one

    @property
    def ok(self) -> bool:
        """Whether it was carried out."""
        return self.result is DeliveryOutcome.DELIVERED


class _Answer(msgspec.Struct, frozen=True):
    ok: bool = False
    error: str = ""
    ts: str = ""
    message_ts: str = ""  # of a message that one person sees


class SlackApi:
    """The Web API of one app."""

    def __init__(self, api: str, token: str, *, network: Mapping[str, str], seconds: float = CALL_SECONDS) -> None:
        """Take the API's address, a token of the app, and proxies and CA files by variable."""
        self._api = api
        self._token = token
        self._pool = connection_pool(api, network)
        self.seconds = seconds

    async def close(self) -> None:
        """Close the connections; bounded."""
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True), contextlib.suppress(*BROKEN):
            await self._pool.aclose()

    async def call(self, method: str, fields: Mapping[str, Any]) -> SlackReply:
        """Call a method; never raises for what a network or a server may do."""
        try:
            with anyio.move_on_after(self.seconds):
                return await self._call(method, msgspec.json.encode(fields))
        except NEVER_SENT as error:
            return SlackReply(result=DeliveryOutcome.FAILED, error=f"Slack cannot be reached ({type(error).__name__})")
        except BROKEN as error:
            return SlackReply(
                result=DeliveryOutcome.UNKNOWN, error=f"the connection to Slack broke ({type(error).__name__})"
            )
        return SlackReply(result=DeliveryOutcome.UNKNOWN, error=f"Slack has not answered within {self.seconds:g} s")

    async def _call(self, method: str, body: bytes) -> SlackReply:
        headers = [
            ("Authorization", f"Bearer {self._token}"),
            ("Content-Type", "application/json; charset=utf-8"),
            ("User-Agent", "claudeops"),
        ]
        # Less than the whole, so that what was never sent is known from what may have arrived.
        connect = min(_CONNECT_SECONDS, self.seconds * 0.6)
        extensions = {"timeout": {"connect": connect, "pool": connect}}
        url = f"{self._api}/{method}"
        async with self._pool.stream("POST", url, headers=headers, content=body, extensions=extensions) as answer:
            content = b""
            async for chunk in answer.aiter_stream():
                content += chunk
                if len(content) > _MOST_BYTES:
                    break
            named = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
            return _read(answer.status, named, content)


def _read(status: int, headers: Mapping[bytes, str], content: bytes) -> SlackReply:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        wanted = headers.get(b"retry-after", "")
        wait = min(float(wanted), LONGEST_SECONDS) if wanted.isdecimal() else _PATIENCE_SECONDS
        return SlackReply(result=DeliveryOutcome.FAILED, error="Slack says ratelimited", retry_after=wait)
    try:
        answer = msgspec.json.decode(content, type=_Answer)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # A gateway of theirs answers so, which does not know what has happened behind it.
        return SlackReply(result=DeliveryOutcome.UNKNOWN, error=f"Slack answered {status}")
    if answer.ok:
        return SlackReply(result=DeliveryOutcome.DELIVERED, ts=answer.ts or answer.message_ts)
    word = answer.error[:100] or f"status {status}"
    return SlackReply(result=DeliveryOutcome.FAILED, error=f"Slack says {word}", word=word)
