"""The ASGI application: finds a request's row in the table, lets in who may come in, and answers.

Checked in this order: the host by which the request calls us, who has sent it there, the address, who calls, how often,
the length of the body. Only then is anything done. Every wait is bounded.

Where the proof is a signature of the body, what can be seen of it beforehand is looked at first, and only wrong ones
are counted, once they have proven wrong: however many there are, a right one is taken.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from claudeops.clock import Clock
from claudeops.domain.access.logins import Role
from claudeops.errors import ErrorKind, StoreError
from claudeops.http_server import ConnectionPool
from claudeops.logs import LogEvent, Logger
from claudeops.web import bodies
from claudeops.web.authentication import Authenticator, Rate, RateLimitedWarning
from claudeops.web.bodies import AGAIN_SECONDS, UnprovenBodies, read_body
from claudeops.web.connection import SECRET_HEADER, ConnectionRules, peer_key
from claudeops.web.endpoints import Caller, Connection, EndpointTable, FoundEndpoint, WebCall, query_of
from claudeops.web.problems import RefusedError, answer, later, problem

MOST_BYTES: Final = bodies.MOST_BYTES
"""Of a body."""

MOST_AT_ONCE: Final = 64
"""Requests of proven callers, whose body is read or being worked on."""

CALLS_PER_SECOND: Final = 200.0
CALLS_AT_ONCE: Final = 400.0
"""Of one caller."""

GUESSES_PER_SECOND: Final = 50.0
"""Wrong signatures of one peer; beyond that its connection ends with each, which makes the next one dearer."""

VISITOR_SECONDS: Final = 0.5
"""For which an open endpoint waits to learn who asks."""

ANSWER_SECONDS: Final = 30.0

_LOCAL: Final = frozenset({"localhost", "localhost.localdomain"})
_OWN: Final = frozenset({"same-origin", "none"})
_SAFE: Final = frozenset({"GET", "HEAD"})
_UNMATCHED: Final = "none"
_ROUTE: Final = "claudeops.route"  # in the scope: the path of the row that was found


def _uncounted(_path: str, _method: str, _status: int, _seconds: float) -> None:
    return


class AllowedHosts(msgspec.Struct, frozen=True):
    """The names by which we may be called; a page of another name in somebody's browser is kept out.

    An address is no name: nobody can make a name of his lead to us by way of one.
    """

    names: frozenset[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> AllowedHosts:
        """Return the allow-list with these names besides this machine's own."""
        return cls(_LOCAL | {name.lower().rstrip(".") for name in names})

    def has(self, header: str) -> bool:
        """Tell whether a Host header names us."""
        host = _name_of(header)
        return host in self.names or _is_address(host)


@dataclass(kw_only=True)
class Listener:
    """The application."""

    table: EndpointTable
    authenticator: Authenticator
    hosts: AllowedHosts
    clock: Clock
    log: Logger
    count: Callable[[str, str, int, float], None] = _uncounted  # the path of the row, the method, the status, seconds
    connections: ConnectionRules = field(default_factory=ConnectionRules)
    crowd: ConnectionPool | None = None  # of the server; None: nothing bounds the connections
    refused_page: Callable[[RefusedError, str], Response] | None = None  # with the path; None: there are no pages
    unproven: UnprovenBodies = field(default_factory=UnprovenBodies)
    _busy: int = 0
    _rate: Rate = field(init=False)
    _guesses: Rate = field(init=False)  # by peer
    _complaints: RateLimitedWarning = field(init=False)
    _troubles: RateLimitedWarning = field(init=False)

    def __post_init__(self) -> None:
        self._rate = Rate(per_second=CALLS_PER_SECOND, most=CALLS_AT_ONCE, clock=self.clock)
        self._guesses = Rate(per_second=GUESSES_PER_SECOND, most=GUESSES_PER_SECOND, clock=self.clock)
        self._complaints = RateLimitedWarning(event=LogEvent.CALLER_REFUSED, log=self.log, clock=self.clock)
        self._troubles = RateLimitedWarning(event=LogEvent.DATABASE_UNAVAILABLE, log=self.log, clock=self.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request, began = Request(scope, receive), self.clock.monotonic()
        try:
            response = await self._answered(request)
        except ClientDisconnect:
            return
        seconds = self.clock.monotonic() - began
        self.count(scope.get(_ROUTE, ""), scope["method"], response.status_code, seconds)
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        route = _UNMATCHED
        found = None
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                self._check_host(request)
                found = self.table.find(request.scope)
                route, request.scope[_ROUTE] = found.endpoint.label, found.endpoint.path
                connection = self.connections.connection(request)
                self._check_site(request, found)
                response = await self._serve(request, found, connection)
            if response.status_code == HTTPStatus.FORBIDDEN:  # a page that was answered all the same: a wrong password
                self._complain(request, route, response.status_code)
            return response  # noqa: TRY300 - the last statement of the good case
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
            self._complain(request, route, refused.status)
        if self.refused_page is not None and _is_for_people(request, found):
            return self.refused_page(refused, _with_query(request))
        return problem(refused, instance=request.scope["path"], operation=route)

    def _complain(self, request: Request, route: str, status: int) -> None:
        peer = request.client.host if request.client is not None else ""
        self._complaints.tell(status=status, route=route, peer=peer)  # which proves nothing

    def _check_host(self, request: Request) -> None:
        """Refuse what another name led here."""
        if not self.hosts.has(request.headers.get("host", "")):
            raise RefusedError(421, "This host is called by another name.", kind=ErrorKind.AUTH)

    def _check_site(self, request: Request, found: FoundEndpoint) -> None:
        """Refuse what another site's page has sent; a link there may lead a person to a page, which changes nothing."""
        headers = request.headers
        follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if found.endpoint.page and request.method in _SAFE and follows_link:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if (site is not None and site not in _OWN) or (site is None and origin and not self._is_ours(origin, request)):
            raise RefusedError(403, "A page of another site has sent this.", kind=ErrorKind.AUTH)

    def _is_ours(self, origin: str, request: Request) -> bool:
        return origin.partition("://")[2].lower() == request.headers.get("host", "").lower()

    async def _serve(self, request: Request, found: FoundEndpoint, connection: Connection) -> Response:
        row = found.endpoint
        query = query_of(request.scope["path"], row.query, request.query_params.multi_items())
        caller = await self._caller(request, found, connection)
        signer = row.may_sign(found.params)
        if row.scope is not None and caller is None and not (signer and self.authenticator.may_sign(signer)):
            raise RefusedError(401, "This needs a token.", kind=ErrorKind.AUTH)
        body: bytes | None = None
        if caller is not None:
            self._let_in(request, caller)
        elif row.scope is not None:
            caller, body = await self._signed(request, signer)
            self._let_in(request, caller)
        elif row.body is not None:
            body = await self.unproven.read(request)
        self._busy += 1
        try:
            if body is None:
                body = b"" if row.body is None else await read_body(request)
            value = await row.handler(
                WebCall(
                    path=request.scope["path"],
                    params=found.params,
                    query=query,
                    headers=_without_proofs(request),
                    body=body,
                    caller=caller,
                    at=self.clock.now(),
                    connection=connection,
                    is_current=partial(self._is_current, request, found, connection),
                )
            )
        finally:
            self._busy -= 1
        return value if isinstance(value, Response) else answer(value, status=row.status)

    async def _caller(self, request: Request, found: FoundEndpoint, connection: Connection) -> Caller | None:
        """Return who calls by a token that reaches as far; ``None``: no token was sent, or the row is open."""
        needed = found.endpoint.needs(found.params)
        if needed is None:
            return await self._visitor(request, found, connection) if found.endpoint.asks_name else None
        if not found.endpoint.takes_tokens:
            return None
        caller = await self.authenticator.caller(request.headers) or await self._person(request, found, connection)
        peer = connection.peer
        if caller is None and found.endpoint.lets_in(peer):
            return Caller(name=f"peer {peer}", scopes=frozenset({needed}))
        if caller is not None and needed not in caller.scopes:
            raise RefusedError(403, _out_of_reach(needed, caller), kind=ErrorKind.POLICY)
        return caller

    async def _is_current(self, request: Request, found: FoundEndpoint, connection: Connection) -> bool:
        """Return whether whoever has sent a request may do so still; a database that is away ends nothing."""
        try:
            return found.endpoint.scope is None or await self._caller(request, found, connection) is not None
        except RefusedError:
            return False
        except StoreError:
            return True

    async def _person(self, request: Request, found: FoundEndpoint, connection: Connection) -> Caller | None:
        """Return whose login the cookie proves, or whom the operator's proxy names.

        A cookie comes along with what other sites make a browser send, and so does what a proxy adds: what changes
        something needs the browser's word that a page of ours has sent it.
        """
        if found.endpoint.signer:
            return None
        person = await self.authenticator.person(request.cookies, connection)
        headers = request.headers
        is_ours = headers.get("sec-fetch-site") in _OWN or self._is_ours(headers.get("origin", ""), request)
        if person is not None and request.method not in _SAFE and not is_ours:
            raise RefusedError(403, "It cannot be seen that a page of ours has sent this.", kind=ErrorKind.AUTH)
        return person

    async def _visitor(self, request: Request, found: FoundEndpoint, connection: Connection) -> Caller | None:
        """Return who asks an open endpoint; he is answered soon, whatever he sends along."""
        with anyio.move_on_after(VISITOR_SECONDS), contextlib.suppress(RefusedError, StoreError):
            return await self.authenticator.caller(request.headers) or await self._person(request, found, connection)
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
        if not self.authenticator.seems_signed(signer, request.headers):
            raise RefusedError(401, "It has no signature of its source, or one of long ago.", kind=ErrorKind.AUTH)
        body = await self.unproven.read(request)
        caller = self.authenticator.signer(signer, body, request.headers)
        if caller is not None:
            return caller, body
        if not self._guesses.admits(peer_key(request.client.host if request.client is not None else "")):
            raise later("Too many signatures from there were wrong.", seconds=AGAIN_SECONDS, closes=True)
        raise RefusedError(401, "The body is not signed by its source, or too long ago.", kind=ErrorKind.AUTH)


def _without_proofs(request: Request) -> dict[str, str]:
    """Return the headers by lower-case names, without the secret of the operator's proxy: no handler may keep it."""
    named = {name.lower(): text for name, text in request.headers.items()}
    named.pop(SECRET_HEADER, None)
    return named


def _out_of_reach(needed: str, caller: Caller) -> str:
    """Return why a caller may not do what needs a scope, and who may."""
    if caller.login is None:
        return f"This needs a token with the scope {needed}."
    if caller.cap and needed in caller.login.role.scopes:
        return caller.cap
    role = next((role for role in Role if needed in role.scopes), None)
    who = "a program with a token alone" if role is None else f"the role {role.value}"
    return f"{caller.login.name} is logged in as {caller.login.role.value}; this is for {who}."


def _is_for_people(request: Request, found: FoundEndpoint | None) -> bool:
    """Return whether what is refused is to be a page: at a page's address, and at none for whoever reads HTML."""
    return "text/html" in request.headers.get("accept", "") if found is None else found.endpoint.page


def _with_query(request: Request) -> str:
    query = request.url.query
    return f"{request.scope['path']}?{query}" if query else str(request.scope["path"])


def _later(detail: str) -> RefusedError:
    return later(detail, seconds=AGAIN_SECONDS)


def _name_of(header: str) -> str:
    """Return the host of a Host header, without its port; empty for what is no host and port."""
    if header.startswith("["):
        name, bracket, rest = header[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        is_whole = bool(bracket) and ":" in name and colon in {"", ":"}
    else:
        name, _, port = header.partition(":")
        name, is_whole = name.lower().rstrip("."), True
    return name if is_whole and (not port or (port.isascii() and port.isdigit())) else ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
