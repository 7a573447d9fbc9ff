"""What an endpoint is: one row of the one table from which routing, authentication and the labels of figures follow.

A row without a scope is open to everybody. There is no default: whoever adds a row says who may call it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.routing import Match, Route
from starlette.types import Scope

from claudeops.domain.access.logins import Login
from claudeops.text import regex
from claudeops.web.problems import RefusedError

T = TypeVar("T", bound=msgspec.Struct)

PART: Final = "[A-Za-z0-9_-][A-Za-z0-9._:@-]{0,99}"
"""A parameter of a path, as an expression; secrets may begin with any letter."""

LARGEST: Final = 2**31 - 1
"""The largest number that a path may have."""

JSON: Final = "application/json"

IF_NONE_MATCH: Final = "If-None-Match"
"""The header by which a caller names the answer that it has: see `Endpoint.headers`."""

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
"""The header by which a call is made once, however often it is sent."""

LAST_EVENT_ID: Final = "Last-Event-ID"
"""The header by which a reader says up to where it has a stream."""

PREFER: Final = "Prefer"

_PART: Final = regex.Pattern(PART)
_MOST_FIELDS: Final = 100  # of a form

ANY: Final = "any"
"""A query of the sender's own, whatever its names."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Query = type[msgspec.Struct] | Literal["any"] | None
Body = type[msgspec.Struct] | type[bytes] | None


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How a request has come."""

    peer: str = ""  # an address; of a client of the operator's proxy the one that the proxy names
    is_tls: bool = False  # the operator's proxy has sent it, which speaks TLS
    is_private: bool = (
        False  # none on the way reads along: by TLS, from this machine, or over a network that is trusted
    )
    user: str = ""  # who the person is, as the operator's proxy says; empty: it says nothing


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, as proven."""

    name: str  # for the log, and to count by
    scopes: frozenset[str]  # of a person those that count on this connection: ask these, not the role
    login: Login | None = None  # of a person; None: a program calls
    cap: str = ""  # why these are fewer than those of the person's role, as a sentence; empty: they are not
    token_name: str = ""  # of a program that has a token

    @property
    def known_as(self) -> str:
        """The name for the record. Names of tokens may be given again, so their numbers stand beside them."""
        if self.login is not None:
            return self.login.name
        return f"{self.name} ({self.token_name})" if self.token_name else self.name


async def _always() -> bool:
    return True


class WebCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request that may be answered."""

    path: str
    params: Mapping[str, str]  # of the path
    query: Mapping[str, str]
    headers: Mapping[str, str]  # by lower-case names
    body: bytes
    caller: Caller | None  # None: an open endpoint, and nothing was proven
    at: datetime
    connection: Connection = msgspec.field(default_factory=Connection)
    is_current: Callable[[], Awaitable[bool]] = msgspec.field(
        default=_always
    )  # the caller may do this still: answers go on

    def number(self, name: str) -> int:
        """Return a number in the path. Raises `RefusedError` for what is none."""
        text = self.params[name]
        if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) <= LARGEST):
            raise RefusedError(404, f"{text} is no number of anything here.")
        return int(text)

    def asked(self, wanted: type[T]) -> T:
        """Return the query as a value. Raises `RefusedError` for names and values that it has not.

        A name without a value says nothing: forms send one for each field that was left empty.
        """
        given = {name: value for name, value in self.query.items() if value}
        try:
            found = msgspec.convert(given, wanted, strict=False)
        except msgspec.ValidationError as error:
            raise RefusedError(422, f"The query is not as it should be: {error}.") from None
        # Read loosely, as texts of an address are, the word null is None.
        for one in msgspec.structs.fields(wanted):
            name = one.encode_name
            if name in given and getattr(found, one.name) is None:
                raise RefusedError(422, f"The query is not as it should be: `{name}` is {given[name]}; leave it out.")
        return found

    def sent(self, wanted: type[T]) -> T:
        """Return the body, which is JSON, as a value; an empty one says nothing. Raises `RefusedError`."""
        try:
            return msgspec.convert(_with_integers(msgspec.json.decode(self.body or b"{}")), wanted)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RefusedError(422, f"The body is not as it should be: {str(error)[:200]}.") from None

    def form(self) -> Mapping[str, str | list[str]]:
        """Return the fields of a form, those that were not left empty; one that comes several times is a list.

        Raises `RefusedError` for what is no form.
        """
        try:
            pairs = parse_qs(self.body.decode(), max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise RefusedError(422, "The form cannot be read.") from None
        return {name: texts[0] if len(texts) == 1 else texts for name, texts in pairs.items()}

    @staticmethod
    def filled(fields: Mapping[str, str | list[str]], wanted: type[T]) -> T:
        """Return fields of a form as a value. Raises `RefusedError`."""
        try:
            return msgspec.convert(dict(fields), wanted, strict=False)
        except msgspec.ValidationError as error:
            raise RefusedError(422, f"The form is not as it should be: {str(error)[:200]}.") from None


Handler = Callable[[WebCall], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One row."""

    method: str
    path: str  # with parameters in braces
    scope: str | None  # that the caller's token needs, with the path's parameters; None: open to everybody
    signer: str = ""  # the source whose signature is a proof too, with the path's parameters; empty: none is
    networks: tuple[Network, ...] = ()  # whose peers need no token
    takes_tokens: bool = True  # False: the signature alone is a proof
    asks_name: bool = True  # False: nobody is asked who he is, so that no database is either
    page: bool = False  # for people: without a login they are led to one, and what is refused is a page too
    query: Query = None
    body: Body = None
    answer: Any  # a type
    media: str = JSON  # of a good answer
    status: int = 200
    headers: tuple[str, ...] = ()  # that it takes, besides those that prove who calls
    refusals: tuple[int, ...] = ()  # statuses by which it refuses and others do not
    handler: Handler = field(repr=False)
    summary: str  # one sentence

    def __post_init__(self) -> None:
        """Refuse a row that would be open by mistake: a signature proves nothing but the body that it is of."""
        if self.signer and (self.scope is None or self.body is not bytes):
            raise ValueError(f"{self.label}: what may be signed has a scope, and takes a body as it is")
        if not self.takes_tokens and not self.signer:
            raise ValueError(f"{self.label}: nobody could ever call it")

    @property
    def label(self) -> str:
        """What figures and log lines call it: never an address as it was sent."""
        return f"{self.method} {self.path}"

    def lets_in(self, peer: str) -> bool:
        """Tell whether whoever calls from an address needs no token."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:  # a socket of this machine has none
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.networks)

    def needs(self, params: Mapping[str, str]) -> str | None:
        """Return the scope for these parameters of the path."""
        return None if self.scope is None else self.scope.format_map(params)

    def may_sign(self, params: Mapping[str, str]) -> str:
        """Return the source whose signature is a proof too, for these parameters."""
        return self.signer.format_map(params)


class FoundEndpoint(msgspec.Struct, frozen=True):
    """The row that a request is for."""

    endpoint: Endpoint
    params: Mapping[str, str]


class EndpointTable:
    """All rows, found by path and method."""

    def __init__(self, rows: Sequence[Endpoint]) -> None:
        self.rows = tuple(rows)
        self._routes = [(Route(row.path, _unused, methods=[row.method]), row) for row in rows]
        # By whole paths: what has an address of its own is no parameter of another one.
        self._at: dict[str, list[tuple[Route, Endpoint]]] = {}
        for route, row in self._routes:
            if "{" not in row.path:
                self._at.setdefault(row.path, []).append((route, row))

    def find(self, scope: Scope) -> FoundEndpoint:
        """Return the row for a request. Raises `RefusedError`: 404, or 405 with the methods that there are."""
        allowed: list[str] = []
        for route, row in self._at.get(scope["path"], self._routes):
            matched, child = route.matches(scope)
            if matched is Match.NONE:
                continue
            params = {name: str(value) for name, value in child["path_params"].items()}
            if not all(_PART.fullmatch(value) for value in params.values()):
                break
            if scope["method"] == row.method or (scope["method"] == "HEAD" and row.method == "GET" and not row.scope):
                return FoundEndpoint(row, params)
            allowed.append(row.method)
        if allowed:
            raise RefusedError(405, "This address takes another method.", allow=", ".join(sorted(set(allowed))))
        raise RefusedError(404, "There is nothing at this address.")


def query_of(path: str, wanted: Query, pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return a request's query, each name once. Raises `RefusedError` for one where none is taken, and for secrets.

    An address ends up in the logs of every proxy on the way.
    """
    query = dict(pairs)
    if secret := _SECRETS & {name.lower() for name in query}:
        raise RefusedError(401, f"{min(secret)} does not belong into an address, which others log: send a header.")
    if wanted is None and query:
        raise RefusedError(422, f"{path} takes no query.")
    if wanted is not ANY and len(query) != len(pairs):
        raise RefusedError(422, "The query has a name twice.")
    return query


_SECRETS: Final = frozenset({"token", "access_token", "api_key", "apikey", "authorization"})


def _with_integers(value: object) -> object:
    """Return a JSON value with its whole numbers as integers, however they are written: 3.0 is one."""
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case list():
            return [_with_integers(item) for item in value]
        case dict():
            return {name: _with_integers(item) for name, item in value.items()}
    return value


async def _unused(_: object) -> None:
    raise NotImplementedError  # Starlette's routes find paths; what is called is the row's handler
