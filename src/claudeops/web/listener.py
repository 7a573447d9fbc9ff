"""The ASGI application: finds a request's row in the table, lets in who may come in, and answers.

Checked in this order: the host by which the request calls us, who has sent it there, the address, who calls, how often,
the length of the body. Only then is anything done. Every wait is bounded.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from claudeops.errors import ErrorKind, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.loopback import Crowd
from claudeops.web.doorkeeper import Complaints, Doorkeeper, Rate
from claudeops.web.endpoints import Call, Caller, Found, Table, query_of
from claudeops.web.ports import Clock
from claudeops.web.problems import RefusedError, answer, problem

MOST_BYTES: Final = 1024 * 1024
"""Of a body."""

MOST_AT_ONCE: Final = 64
"""Requests with a body that is read, or being worked on."""

MOST_UNPROVEN: Final = 16
"""Of these, bodies whose sender is known only by a signature of the whole."""

CALLS_PER_SECOND: Final = 200.0
CALLS_AT_ONCE: Final = 400.0
"""Of one caller."""

GUESSES_PER_SECOND: Final = 50.0
"""Signatures that are computed; the callers of whom none is right share this."""

VISITOR_SECONDS: Final = 0.5
"""For which an open endpoint waits to learn who asks."""

BODY_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
LATER_SECONDS: Final = 5
"""After which a sender may try again."""

_LOCAL: Final = frozenset({"localhost", "localhost.localdomain"})
_OWN: Final = frozenset({"same-origin", "none"})
_UNMATCHED: Final = "none"


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names by which we may be called; a page of another name in somebody's browser is kept out.

    An address is no name: nobody can make a name of his lead to us by way of one.
    """

    names: frozenset[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> Hosts:
        """Return the allow-list with these names besides this machine's own."""
        return cls(_LOCAL | {name.lower().rstrip(".") for name in names})

    def has(self, header: str) -> bool:
        """Tell whether a Host header names us."""
        host = _name_of(header)
        return host in self.names or _is_address(host)


@dataclass(kw_only=True)
class Listener:
    """The application."""

    table: Table
    doorkeeper: Doorkeeper
    hosts: Hosts
    clock: Clock
    log: Logger
    crowd: Crowd | None = None  # of the server; None: nothing bounds the connections
    _busy: int = 0
    _unproven: int = 0
    _rate: Rate = field(init=False)
    _guesses: Rate = field(init=False)
    _complaints: Complaints = field(init=False)
    _troubles: Complaints = field(init=False)

    def __post_init__(self) -> None:
        self._rate = Rate(per_second=CALLS_PER_SECOND, most=CALLS_AT_ONCE, clock=self.clock)
        self._guesses = Rate(per_second=GUESSES_PER_SECOND, most=GUESSES_PER_SECOND, clock=self.clock)
        self._complaints = Complaints(event=LogEvent.CALLER_REFUSED, log=self.log, clock=self.clock)
        self._troubles = Complaints(event=LogEvent.DATABASE_UNAVAILABLE, log=self.log, clock=self.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answered(request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        route = _UNMATCHED
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                self._check_surroundings(request)
                found = self.table.find(request.scope)
                route = found.endpoint.label
                return await self._serve(request, found)
        except RefusedError as error:
            refused = error
        except StoreError as error:
            # Its sentence may name hosts and files, which are nothing for whoever asks.
            self._troubles.tell(error=str(error), while_doing=route)
            refused = _later("Nothing can be stored or read now.")
        except TimeoutError:
            refused = _later("It took too long.")
        except ClientDisconnect:
            raise
        except Exception:
            self.log.critical(LogEvent.REQUEST_CRASHED, route=route, exc_info=True)
            refused = RefusedError(500, "Our own code failed; the log says more.", kind=ErrorKind.UNKNOWN)
        if refused.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST}:
            peer = request.client.host if request.client is not None else ""
            self._complaints.tell(status=refused.status, route=route, peer=peer)  # which proves nothing
        return problem(refused, instance=request.scope["path"], operation=route)

    def _check_surroundings(self, request: Request) -> None:
        """Refuse what another name led here, and what another site's page has sent."""
        headers = request.headers
        if not self.hosts.has(headers.get("host", "")):
            raise RefusedError(421, "This host is called by another name.", kind=ErrorKind.AUTH)
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if (site is not None and site not in _OWN) or (site is None and origin and not self._is_ours(origin, request)):
            raise RefusedError(403, "A page of another site has sent this.", kind=ErrorKind.AUTH)

    def _is_ours(self, origin: str, request: Request) -> bool:
        return origin.partition("://")[2].lower() == request.headers.get("host", "").lower()

    async def _serve(self, request: Request, found: Found) -> Response:
        row = found.endpoint
        query = query_of(request.scope["path"], row.query, request.query_params.multi_items())
        caller = await self._caller(request, found)
        signer = row.may_sign(found.params)
        if row.scope is not None and caller is None and not (signer and self.doorkeeper.may_sign(signer)):
            raise RefusedError(401, "This needs a token.", kind=ErrorKind.AUTH)
        if caller is not None:
            self._let_in(request, caller)
        self._busy += 1
        try:
            if row.body is None:
                body = b""
            elif row.scope is None or caller is not None:
                body = await self._body(request)
            else:
                caller, body = await self._signed(request, signer)
            value = await row.handler(
                Call(
                    params=found.params,
                    query=query,
                    headers={name.lower(): text for name, text in request.headers.items()},
                    body=body,
                    caller=caller,
                    at=self.clock.now(),
                )
            )
        finally:
            self._busy -= 1
        return value if isinstance(value, Response) else answer(value, status=row.status)

    async def _caller(self, request: Request, found: Found) -> Caller | None:
        """Return who calls by a token that reaches as far; ``None``: no token was sent, or the row is open."""
        needed = found.endpoint.needs(found.params)
        if needed is None:
            return await self._visitor(request) if found.endpoint.asks_name else None
        if not found.endpoint.takes_tokens:
            return None
        caller = await self.doorkeeper.caller(request.headers)
        if caller is not None and needed not in caller.scopes:
            raise RefusedError(403, f"This needs a token with the scope {needed}.", kind=ErrorKind.POLICY)
        return caller

    async def _visitor(self, request: Request) -> Caller | None:
        """Return who asks an open endpoint; he is answered soon, whatever he sends along."""
        with anyio.move_on_after(VISITOR_SECONDS), contextlib.suppress(RefusedError, StoreError):
            return await self.doorkeeper.caller(request.headers)
        return None

    def _let_in(self, request: Request, caller: Caller) -> None:
        if self.crowd is not None and not self.crowd.name(request.scope, caller.name):
            raise _later(f"{caller.name} has too many connections.")
        if not self._rate.admits(caller.name):
            raise _later(f"{caller.name} calls more often than {CALLS_PER_SECOND:g} times a second.")
        if self._busy >= MOST_AT_ONCE:
            raise _later("Too much is being done at once.")

    async def _signed(self, request: Request, signer: str) -> tuple[Caller, bytes]:
        """Return who has signed the body, and the body."""
        if self._unproven >= MOST_UNPROVEN or not self._guesses.admits(signer):
            raise _later("Too many signatures wait to be looked at.")
        self._unproven += 1
        try:
            body = await self._body(request)
        finally:
            self._unproven -= 1
        caller = self.doorkeeper.signer(signer, body, request.headers)
        if caller is None:
            raise RefusedError(401, "The body is not signed by its source, or too long ago.", kind=ErrorKind.AUTH)
        self._let_in(request, caller)
        return caller, body

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared[:19]) > MOST_BYTES:
            raise _too_long()
        body = bytearray()
        with anyio.move_on_after(BODY_SECONDS) as waiting:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise _too_long()
        if waiting.cancelled_caught:
            raise RefusedError(408, f"The body did not come within {BODY_SECONDS:g} s.", retry_after=LATER_SECONDS)
        return bytes(body)


def _later(detail: str) -> RefusedError:
    """Return the answer after which senders try again: Alertmanager does so after 5xx alone, and not after 429."""
    return RefusedError(503, detail, kind=ErrorKind.RUNTIME, retry_after=LATER_SECONDS)


def _too_long() -> RefusedError:
    return RefusedError(413, f"A body has at most {MOST_BYTES} bytes.")


def _name_of(header: str) -> str:
    """Return the host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower().rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
