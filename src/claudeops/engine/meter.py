"""The meter: a reverse proxy on loopback, through which every model call of every session goes.

A session knows the meter's address and a token that works for it alone, while it runs, for its tier's model. The
meter knows the model API and what opens it. A call is on record before it starts and booked when it ends; nothing of
it is kept but counts. The meter is part of the daemon's process: where that has gone, no model call is served.
"""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.outcome import StopCause
from claudeops.engine.kit import ModelAccess
from claudeops.engine.meter_account import Account, Announcements
from claudeops.engine.meter_bodies import Bodies, MeterLimits
from claudeops.engine.meter_call import COUNT_TOKENS, MESSAGES, MeteredCall, Refusal, answer
from claudeops.engine.meter_ledger import Ledger
from claudeops.loopback import Crowd, listen
from claudeops.tasks import open_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from claudeops.domain.budget import CallState
    from claudeops.domain.model import EscalationRules, Session
    from claudeops.domain.redact import Redactor
    from claudeops.engine.control import Control
    from claudeops.engine.kit import Kit
    from claudeops.engine.limits import Limits
    from claudeops.engine.meter_upstream import ModelApi, Upstream
    from claudeops.engine.ports import Clock, Store
    from claudeops.harness.protocol import Harness
    from claudeops.logs import Logger

_HOST: Final = "127.0.0.1"
_TOKEN_PREFIX: Final = "sk-ant-meter-"  # noqa: S105 - in the shape of a key, which every sink blots out
_TOKEN_BYTES: Final = 32

_HERE: Final = [(b"content-length", b"0"), (b"connection", b"close")]
_SEARCH_TOOL: Final = "WebSearch"  # the CLI's, which has the API search

_TOO_MANY: Final = Refusal(status=500, type="api_error", message="this session asks for too much at once")
_UNKNOWN_PATH: Final = Refusal(status=404, type="not_found_error", message="no such endpoint")
_UNKNOWN_TOKEN: Final = Refusal(
    status=401, type="authentication_error", message="this token belongs to no running session"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Books:
    """Where calls are recorded, and by which rules they are paid."""

    store: Store
    rules: EscalationRules
    clock: Clock
    log: Logger
    redactor_with: Callable[[str], Redactor]  # the daemon's, with one more secret


class Meter:
    """A running meter; made by `serve_meter`."""

    def __init__(self, upstream: Upstream, api: ModelApi, books: Books, limits: MeterLimits) -> None:
        self.url = ""  # set once connections are taken
        self.crowd = Crowd(limits.connections)
        self.bodies = Bodies(limits)
        self.ledger = Ledger(books.store, books.log)
        self._upstream = upstream
        self._api = api
        self._books = books
        self._accounts: dict[str, Account] = {}
        self._ended = Announcements()

    @asynccontextmanager
    async def account(
        self,
        session: Session,
        *,
        over_budget: Callable[[], None],
        limits: Limits | None = None,
        searches: bool = False,
    ) -> AsyncIterator[Account]:
        """Serve a session for the length of the block; its calls are ended and booked when it is left.

        ``over_budget`` is called for every call that is refused for want of money; ``limits`` is told what the API's
        answers mean for all sessions; ``searches`` lets its requests have the API search the web.
        """
        books = self._books
        token = _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        account = Account(
            session=session,
            token=token,
            redactor=books.redactor_with(token),
            limits=limits,
            store=books.store,
            ledger=self.ledger,
            searches=searches,
            rules=books.rules,
            clock=books.clock,
            log=books.log.bind(session_id=session.id, chain=session.root_session_id, tier=session.tier),
            over_budget=over_budget,
            ended=self._ended,
        )
        self._accounts[account.token] = account
        try:
            yield account
        finally:
            del self._accounts[account.token]
            await account.close()
            self.crowd.dismiss(account.token)

    def kit_for(self, account: Account, kit: Kit) -> Kit:
        """Return what a session is run with: the meter for its model API, its token for a credential and a secret.

        The token is of the real credential's kind, so that the CLI behaves as it does with that.
        """
        access = ModelAccess(base_url=self.url, credential=self._upstream.credential, secret=account.token)
        return replace(kit, access=access, redactor=account.redactor)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application."""
        method, path = scope["method"], scope["path"]
        if (method, path) == ("HEAD", "/"):  # the CLI looks whether anybody is there
            await send({"type": "http.response.start", "status": 200, "headers": _HERE})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif method != "POST" or path not in {MESSAGES, COUNT_TOKENS}:
            await answer(send, _UNKNOWN_PATH, last=True)
        elif (account := self._accounts.get(_token(scope))) is None:
            await answer(send, _UNKNOWN_TOKEN, last=True)
        elif not self.crowd.name(scope, account.token):
            await answer(send, _TOO_MANY, last=True)
        else:
            call = MeteredCall(
                account=account,
                api=self._api,
                bodies=self.bodies,
                scope=scope,
                receive=receive,
                send=send,
            )
            await call.serve()


@asynccontextmanager
async def serve_meter(upstream: Upstream, books: Books, limits: MeterLimits | None = None) -> AsyncIterator[Meter]:
    """Run a meter for the length of the block; what is open at its end is dropped within a few seconds.

    Raises `ConfigurationError` when the way to the model API cannot be prepared as the operator wants it.
    """
    async with upstream.connections() as api, open_tasks() as tasks:
        meter = Meter(upstream, api, books, limits or MeterLimits())
        async with listen(meter, host=_HOST, port=0, closing=anyio.Event(), crowd=meter.crowd) as meter.url:
            tasks.start_soon(meter.ledger.run)
            yield meter
        tasks.cancel_scope.cancel()


@dataclass(frozen=True, kw_only=True, slots=True)
class Metered:
    """What a session is run with, and what is left of it for the books when its process has gone."""

    kit: Kit
    account: Account | None = None  # None: its model calls do not go through the meter

    @property
    def unbooked(self) -> tuple[CallState, ...]:
        """Return the calls whose end the database did not take; complete once the account is closed."""
        return self.account.unbooked if self.account else ()

    @property
    def refusal(self) -> str | None:
        """Return the sentence that refused a call for want of money."""
        return self.account.refusal if self.account else None


@asynccontextmanager
async def metered(kit: Kit, session: Session, harness: Harness, control: Control) -> AsyncIterator[Metered]:
    """Open a session's account for the length of the block, if there is a meter and its CLI can be sent there."""
    if kit.meter is None or not harness.capabilities.metered:
        yield Metered(kit=kit)
        return

    def stop() -> None:
        control.stop(StopCause.BUDGET_EXCEEDED)

    searches = _SEARCH_TOOL in kit.tiers[session.tier].tools
    async with kit.meter.account(session, over_budget=stop, limits=kit.limits, searches=searches) as account:
        yield Metered(kit=kit.meter.kit_for(account, kit), account=account)


def _token(scope: Scope) -> str:
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    key = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
    return key.decode("latin-1")
