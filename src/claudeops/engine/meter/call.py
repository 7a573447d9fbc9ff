"""One request through the meter: understood, recorded, passed on, its answer passed back as it comes, booked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import httpcore2
import msgspec
from anyio.abc import TaskGroup
from starlette.types import Receive, Scope, Send

from claudeops.domain.holds import ApiAnswer
from claudeops.domain.spending.budget import BudgetDenied
from claudeops.domain.spending.tokens import CallState
from claudeops.engine.meter.account import CallRequest, MeterAccount
from claudeops.engine.meter.bodies import Bodies, BodyRefusedError, BodyRoom, OutgoingBody
from claudeops.engine.meter.connections import BROKEN, NEVER_SENT, ModelApi
from claudeops.engine.meter.upstream import answer_headers
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.formats.model_request import RequestObjection, display, read_request, unknown_betas
from claudeops.formats.usage import UsageReader
from claudeops.http_server import disconnected, drop
from claudeops.structs import replace

MESSAGES: Final = "/v1/messages"
COUNT_TOKENS: Final = "/v1/messages/count_tokens"  # free of charge, so it is passed on but not booked

_QUERIES: Final = (b"", b"beta=true")

PAYMENT_REQUIRED: Final = 402
"""The status for a call over the budget. Seen with CLI 2.1.329: after a 402 it ends at once; it tries three times after
a 400, takes a 403 for bad credentials, and repeats a 429."""

_ERROR_STATUS: Final = 400
_TOO_SLOW: Final = 408
_STREAM: Final = "text/event-stream"


class HttpRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer by the meter itself, in the API's shape."""

    status: int
    type: str
    message: str


@dataclass(kw_only=True)
class MeteredCall:
    """Serves one request of a session."""

    account: MeterAccount
    api: ModelApi
    bodies: Bodies
    scope: Scope
    receive: Receive
    send: Send
    _begun: bool = False  # something went out to the child
    _whole: bool = False  # the whole answer went out
    _broken: bool = False  # the API's answer broke off
    _tasks: TaskGroup = field(init=False)

    async def serve(self) -> None:
        """Answer the request, until the answer is out, the child leaves or the account is closed."""
        try:
            with self.account.call():
                async with self.bodies.place(self.account.token, self.scope) as place:
                    await self._serve(place)
        except BodyRefusedError as refused:
            await self._refuse(HttpRefusal(status=refused.status, type=refused.kind, message=str(refused)))
        finally:
            if not self._whole:
                with anyio.CancelScope(shield=True):  # bounded by `drop`
                    await drop(self.scope, self.receive, unsent=self._broken)

    async def _serve(self, place: BodyRoom) -> None:
        body = await self.bodies.read(self.receive)
        if body is None:
            return
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._watch_child)
            understood = await self._understood(body)
            del body  # so that it is freed as soon as it is sent
            if isinstance(understood, HttpRefusal):
                self.account.log_refusal(understood.message)
                await self._refuse(understood)
            else:
                asked, ours = understood
                outgoing = OutgoingBody(ours, place)
                del understood, ours
                await self._pass_on(asked, outgoing)
            self._tasks.cancel_scope.cancel()

    async def _understood(self, body: bytes) -> tuple[CallRequest, bytes] | HttpRefusal:
        """Return what is asked for and the body to pass on, or why the request is refused."""
        if self.scope["query_string"] not in _QUERIES:
            return _bad("only the query beta=true is passed on")
        betas = [value.decode("latin-1") for name, value in self.scope["headers"] if name == b"anthropic-beta"]
        if unknown := unknown_betas(",".join(betas)):
            # In the API's own words, so that the CLI asks again without them.
            names = ", ".join(f"`{display(name)}`" for name in unknown)
            return _bad(f"Unexpected value(s) {names} for the `anthropic-beta` header.")
        read = partial(
            read_request,
            serves=self.account.unserved,
            searching=self.account.searches,
            counting=self.scope["path"] == COUNT_TOKENS,
        )
        request = await self.bodies.understood(body, read)
        if isinstance(request, RequestObjection):
            missing = HttpRefusal(status=404, type="not_found_error", message=request.message)
            return missing if request.model else _bad(request.message)
        asked = CallRequest(
            model=request.model,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            searches=request.searches,
        )
        return asked, request.body

    async def _watch_child(self) -> None:
        await disconnected(self.receive)
        self._tasks.cancel_scope.cancel()

    async def _pass_on(self, asked: CallRequest, body: OutgoingBody) -> None:
        if self.scope["path"] == COUNT_TOKENS:
            return await self._exchange(_Unbooked(), body)
        try:
            begun = await self.account.begin(asked)
        except StaleAttemptError:
            over = "the session of this token is over"
            # Not 401, which the CLI would take for refused credentials.
            return await self._refuse(HttpRefusal(status=410, type="api_error", message=over))
        except StoreError:
            away = "the daemon's database is away, and a call that cannot be booked is not made"
            # Not 503, which the CLI would take for an overloaded API.
            return await self._refuse(HttpRefusal(status=500, type="api_error", message=away))
        if isinstance(begun, BudgetDenied):
            return await self._refuse(
                HttpRefusal(status=PAYMENT_REQUIRED, type="billing_error", message=f"claudeops: {begun.message}")
            )
        booking = _Booking(account=self.account, asked=asked, call_id=begun)
        try:
            await self._exchange(booking, body)
        finally:
            await booking.end()
        return None

    # --- the exchange with the API ----------------------------------------------------------------------

    async def _exchange(self, booking: _Booking | _Unbooked, body: OutgoingBody) -> None:
        query = self.scope["query_string"].decode()
        path = f"{self.scope['path']}?{query}" if query else self.scope["path"]
        request = self.api.request(path, self.scope["headers"], body)
        await anyio.lowlevel.checkpoint_if_cancelled()
        booking.sending()
        try:
            response = await self.api.send(request)
            try:
                await self._pass_back(response, booking)
            finally:
                with anyio.CancelScope(shield=True):  # closes a socket, waits for nothing
                    await response.aclose()
        except BROKEN as error:
            booking.broke_off(error)
            await booking.end()
            self._broken = True
            if not self._begun:
                away = f"the model API could not be reached ({type(error).__name__})"
                await self._refuse(HttpRefusal(status=502, type="api_error", message=away))

    async def _pass_back(self, response: httpcore2.Response, booking: _Booking | _Unbooked) -> None:
        booking.answered(response)
        headers = answer_headers(response.headers)
        await self._start(response.status, headers)
        async for chunk in response.aiter_stream():
            if booking.push(chunk):
                # Concurrently with the answer: its first word must not wait for our disk.
                self._tasks.start_soon(booking.note)
            if booking.whole:
                # Book the call before the child gets the last piece, in case this process dies then.
                await booking.end()
            await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        booking.close()
        await booking.end()
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})
        self._whole = True

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._begun = True
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def _refuse(self, refusal: HttpRefusal) -> None:
        await answer(self.send, refusal)
        self._whole = True


async def answer(send: Send, refusal: HttpRefusal, *, last: bool = False) -> None:
    """Send the meter's own answer; it asks the CLI not to retry where that would not help.

    ``last``: the connection is closed after it.
    """
    body = msgspec.json.encode({"type": "error", "error": {"type": refusal.type, "message": refusal.message}})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status < 500 and refusal.status != _TOO_SLOW:  # noqa: PLR2004 - wrong now is wrong a second later
        headers.append((b"x-should-retry", b"false"))
    if last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _bad(message: str) -> HttpRefusal:
    return HttpRefusal(status=400, type="invalid_request_error", message=message)


class _Unbooked:
    """Takes the place of `_Booking` for requests that cost nothing."""

    whole = False

    def sending(self) -> None:
        pass

    def answered(self, response: httpcore2.Response) -> None:
        pass

    def push(self, chunk: bytes) -> bool:  # noqa: ARG002 - as `_Booking`
        return False

    async def note(self) -> None:
        pass

    def broke_off(self, error: Exception) -> None:
        pass

    def close(self) -> None:
        pass

    async def end(self) -> None:
        pass


@dataclass(kw_only=True)
class _Booking:
    """What is known of one call while it goes on, and its booking."""

    account: MeterAccount
    asked: CallRequest
    call_id: int
    _status: int | None = None
    _headers: Mapping[str, str] = field(default_factory=dict)
    _reader: UsageReader | None = None
    _error: str | None = None
    _sent: bool = False  # the API may have received something of it
    _ended: bool = False

    @property
    def whole(self) -> bool:
        """Whether the message came to its end."""
        return self._reader is not None and self._reader.whole

    def sending(self) -> None:
        """Note that the request goes out now."""
        self._sent = True

    def answered(self, response: httpcore2.Response) -> None:
        """Take the head of the answer."""
        self._status = response.status
        self._headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        self._reader = UsageReader(streamed=_STREAM in self._headers.get("content-type", ""))

    def push(self, chunk: bytes) -> bool:
        """Take a piece of the answer; return whether there is something new to book."""
        return self._reader is not None and self._reader.push(chunk)

    def close(self) -> None:
        """Take the end of the answer, which may come before the end of its message."""
        if self._reader is None:
            return
        self._reader.close()
        if not self._reader.whole and self._reader.error is None:
            self._error = "broken off"

    def broke_off(self, error: Exception) -> None:
        """Take the failure of the connection."""
        self._error = type(error).__name__
        self._sent = not isinstance(error, NEVER_SENT)

    async def note(self) -> None:
        """Book what is known of an open call."""
        if not self._ended:
            await self.account.note(self._state(charged=self._charge()))

    async def end(self) -> None:
        """Book how the call ended; only the first call of this method counts."""
        if self._ended:
            return
        self._ended = True
        if self._status is not None:
            error = self._reader.error if self._reader else None
            self.account.handle(ApiAnswer(status=self._status, headers=self._headers, error=error))
        await self.account.end(self._state(charged=self._charge()), model=self.asked.model)

    def _charge(self) -> float:
        reader = self._reader
        usage = reader.usage if reader else None
        if usage is None:
            # Errors are not billed. Without an answer the call may have been served all the same.
            unbilled = not self._sent or (self._status or 0) >= _ERROR_STATUS
            return 0.0 if unbilled else self.asked.worst_usd
        if self.whole or (reader is not None and reader.error is not None):
            return self.asked.charge(usage)
        # What was still on its way, or never reached us, stays unknown, so the most that is possible counts.
        output = max(usage.output_tokens, self.asked.output_tokens)
        charge = self.asked.charge(replace(usage, output_tokens=output))
        return max(charge, self.asked.worst_usd) if self.asked.searches else charge

    def _state(self, *, charged: float) -> CallState:
        reader = self._reader
        usage = reader.usage if reader else None
        error = self._error
        if reader is not None and reader.error is not None:
            error = reader.error.type
        elif error is None and self._ended and not self.whole:
            error = "cancelled"
        return CallState(
            id=self.call_id,
            http_status=self._status,
            usage=usage,
            cost_usd=None if usage is None else self.asked.cost(usage),
            charged_usd=charged,
            error=error,
        )
