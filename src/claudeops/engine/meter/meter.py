"""The meter: a reverse proxy on loopback, through which every model call of every session goes.

A session knows the meter's address and a token that works for it alone, while it runs, for its tier's model. The
meter knows the model API and its credential. A call is recorded before it starts and booked when it ends; nothing of
its content is kept but counts. The meter is part of the daemon's process: without the daemon no model call is served.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from starlette.types import Receive, Scope, Send

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.sessions import Session
from claudeops.engine.meter.account import CallWaker, Ledger, MeterAccount
from claudeops.engine.meter.availability import Availability
from claudeops.engine.meter.bodies import Bodies, MeterLimits
from claudeops.engine.meter.call import COUNT_TOKENS, MESSAGES, HttpRefusal, MeteredCall, answer
from claudeops.engine.meter.connections import ModelApi
from claudeops.engine.meter.upstream import ModelUpstream
from claudeops.engine.ports import UNCOUNTED, Counting
from claudeops.harness.protocol import ModelAccess
from claudeops.http_server import ConnectionPool, listen
from claudeops.logs import Logger, log_context
from claudeops.store.spend import ModelCalls
from claudeops.tasks import open_tasks
from claudeops.text.redact import Redactor

_HOST: Final = "127.0.0.1"
_TOKEN_PREFIX: Final = "sk-ant-meter-"  # noqa: S105 - has the shape of a key, so that every sink redacts it
_TOKEN_BYTES: Final = 32

_HERE: Final = [(b"content-length", b"0"), (b"connection", b"close")]

_TOO_MANY: Final = HttpRefusal(status=500, type="api_error", message="this session asks for too much at once")
_UNKNOWN_PATH: Final = HttpRefusal(status=404, type="not_found_error", message="no such endpoint")
_UNKNOWN_TOKEN: Final = HttpRefusal(
    status=401, type="authentication_error", message="this token belongs to no running session"
)


class MeterDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the meter needs from the daemon: where calls are recorded, and the rules for budgets."""

    spending: ModelCalls
    rules: EscalationRules
    clock: Clock
    log: Logger
    redactor_with: Callable[[str], Redactor]  # the daemon's redactor with one more secret
    counts: Counting = UNCOUNTED


class Meter:
    """A running meter; made by `serve_meter`."""

    def __init__(self, upstream: ModelUpstream, api: ModelApi, deps: MeterDeps, limits: MeterLimits) -> None:
        self.url = ""  # set once connections are accepted
        self.crowd = ConnectionPool(limits.connections)
        self.bodies = Bodies(limits)
        self.ledger = Ledger(deps.spending, deps.log)
        self._upstream = upstream
        self._api = api
        self._deps = deps
        self._accounts: dict[str, MeterAccount] = {}
        self._ended = CallWaker()
        self._ready: tuple[str, Redactor] | None = None  # the next account's token, which opens nothing yet

    def prepare(self) -> None:
        """Make the next account's token ahead; its expressions take milliseconds, and a session would wait for them."""
        if self._ready is None:
            token = _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
            self._ready = token, self._deps.redactor_with(token)

    def _take_token(self) -> tuple[str, Redactor]:
        self.prepare()
        ready, self._ready = self._ready, None
        if ready is None:
            raise AssertionError("a token was just made")
        return ready

    @asynccontextmanager
    async def account(
        self,
        session: Session,
        *,
        over_budget: Callable[[], None],
        availability: Availability | None = None,
        searches: bool = False,
    ) -> AsyncIterator[MeterAccount]:
        """Serve a session for the length of the block; its calls are ended and booked when it is left.

        ``over_budget`` is called for every call that a budget denies; ``availability`` gets reports of what the API's
        answers mean for all sessions; ``searches`` lets the session's requests have the API search the web.
        """
        deps = self._deps
        token, redactor = self._take_token()
        account = MeterAccount(
            session=session,
            token=token,
            redactor=redactor,
            availability=availability,
            spending=deps.spending,
            ledger=self.ledger,
            searches=searches,
            rules=deps.rules,
            clock=deps.clock,
            log=log_context(deps.log, session),
            over_budget=over_budget,
            counts=deps.counts,
            ended=self._ended,
        )
        self._accounts[account.token] = account
        try:
            yield account
        finally:
            del self._accounts[account.token]
            await account.close()
            self.crowd.dismiss(account.token)

    def access_of(self, account: MeterAccount) -> ModelAccess:
        """Return how a session reaches the model API: at the meter's address, with its token as the credential.

        The token is of the same kind as the real credential, so that the CLI behaves as it does with that one.
        """
        return ModelAccess(base_url=self.url, credential=self._upstream.credential, secret=account.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application."""
        method, path = scope["method"], scope["path"]
        if (method, path) == ("HEAD", "/"):  # the CLI checks whether the address answers
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
async def serve_meter(
    upstream: ModelUpstream,
    deps: MeterDeps,
    limits: MeterLimits | None = None,
    *,
    trusted: ssl.SSLContext | None = None,
) -> AsyncIterator[Meter]:
    """Run a meter for the length of the block; requests that are open at its end are dropped within a few seconds.

    ``trusted``: the certificates, where they are read by now. Raises `ConfigurationError` if the connections to the
    model API cannot be prepared as configured.
    """
    async with ModelApi(upstream, trusted=trusted) as api, open_tasks() as tasks:
        meter = Meter(upstream, api, deps, limits or MeterLimits())
        async with listen(meter, host=_HOST, port=0, closing=anyio.Event(), crowd=meter.crowd) as meter.url:
            tasks.start_soon(meter.ledger.run)
            yield meter
        tasks.cancel_scope.cancel()


def _token(scope: Scope) -> str:
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    key = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
    return key.decode("latin-1")
