"""Who calls: tokens, logins, the operator's key and proxy, signatures of sources. The peer's address proves nothing.

Tokens, logins and users are read from the database at most once a second, and ten times where one is not known yet: so
a new one works at once, a revoked one opens nothing a second later, and a flood of guesses is no flood of queries.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, TypeVar

import anyio
from starlette.datastructures import Headers

from claudeops.clock import Clock
from claudeops.domain.access.logins import COOKIE, LONGEST, SECURE_COOKIE, Login, Role, secret_of
from claudeops.domain.access.tokens import ApiToken, ParsedToken, ScopeKind, TokenState, digest_of, presented, scope_of
from claudeops.domain.access.users import User, name_key
from claudeops.domain.alerts.receipt import WEBHOOK
from claudeops.errors import ErrorKind, StoreError
from claudeops.formats.senders import is_signed, may_be_signed
from claudeops.logs import LogEvent, Logger
from claudeops.store.access.tokens import Tokens
from claudeops.store.access.users import Users
from claudeops.tasks import DatabaseTrouble
from claudeops.web.connection import NOT_ENCRYPTED, WAS_NOT_ENCRYPTED
from claudeops.web.endpoints import Caller, Connection
from claudeops.web.ports import Logins, Sources
from claudeops.web.problems import RefusedError
from claudeops.wording.notices.slack import claimed, signers

FRESH_SECONDS: Final = 1.0
"""For how long what was read is believed."""

AGAIN_SECONDS: Final = 0.1
"""Between two readings for what was not there."""

NOTE_SECONDS: Final = 30.0
"""Between two writings of when tokens and logins were last used."""

SLACK: Final = "@slack"
"""The signer of what is pressed in Slack; no source in an address is called so."""

NO_ROW: Final = 0
"""The id of a login that the operator's proxy vouches for: there is nothing on record to look up, or to end."""

_LAST_WRITE_SECONDS: Final = 2.0
_UNKNOWN: Final = "This token opens nothing: it is unknown, or it has expired or was revoked."


K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


@dataclass(kw_only=True)
class Cached(Generic[K, R]):
    """What opens something now, by what proves it; read again where what is known is too old."""

    read: Callable[[datetime], Awaitable[Mapping[K, R]]]
    clock: Clock
    changes: Callable[[], int] = lambda: 0  # what was read before it grew is out of date
    _found: Mapping[K, R] = field(default_factory=dict)
    _read_at: float | None = None  # monotonic seconds
    _read_changes: int = 0
    _failed: tuple[float, StoreError] | None = None  # the last reading, and when that was
    _reading: anyio.Lock = field(default_factory=anyio.Lock)

    async def get(self, key: K) -> R | None:
        """Return what a key opens. Raises `StoreError`."""
        if self._failed is not None or not self._is_fresh(
            key
        ):  # a stream asks with each of its frames, and waits for no lock then
            async with self._reading:
                await self._look(key)
        return self._found.get(key)

    def _is_fresh(self, key: K) -> bool:
        if self._read_at is None or self._read_changes != self.changes():
            return False
        age = self.clock.monotonic() - self._read_at
        return age < (FRESH_SECONDS if key in self._found else AGAIN_SECONDS)

    async def _look(self, key: K) -> None:
        if self._failed is not None and self.clock.monotonic() - self._failed[0] < AGAIN_SECONDS:
            raise self._failed[1]
        if self._is_fresh(key):
            return
        changes = self.changes()
        try:
            self._found = await self.read(self.clock.now())
        except StoreError as error:
            self._failed = (self.clock.monotonic(), error)
            raise
        self._read_at, self._read_changes, self._failed = self.clock.monotonic(), changes, None


@dataclass(kw_only=True)
class Authenticator:
    """Knows who may come in."""

    tokens: Tokens
    sources: Sources
    clock: Clock
    log: Logger
    logins: Logins | None = None  # None: there are no pages
    users: Users | None = None  # whom the operator's proxy may name; None: no user
    key: str | None = field(default=None, repr=False)  # of the operator, for the source `WEBHOOK`
    slack: Mapping[str, str] = field(default_factory=dict, repr=False)  # signing secrets, by targets
    _known_tokens: Cached[int, ApiToken] = field(init=False)
    _known_logins: Cached[str, Login] | None = field(init=False)
    _known_users: Cached[str, User] | None = field(init=False)
    _used: dict[int, datetime] = field(default_factory=dict)  # tokens, since the last writing
    _logins_used: dict[int, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known_tokens = Cached(read=self.tokens.active, clock=self.clock)
        logins = self.logins
        self._known_logins = (
            None if logins is None else Cached(read=logins.active, clock=self.clock, changes=lambda: logins.changes)
        )
        users = self.users
        self._known_users = None if users is None else Cached(read=lambda _: users.active(), clock=self.clock)

    async def person(self, cookies: Mapping[str, str], connection: Connection) -> Caller | None:
        """Return whom the operator's proxy names, else whose login a cookie proves; ``None``: no login is active.

        Where others on the way may read along the person may look, and do nothing else: so could they. Raises
        `RefusedError` for a user who is not there, and `StoreError`.
        """
        if connection.user:
            return await self._named(connection.user)
        secret = secret_of(cookies.get(SECURE_COOKIE) or cookies.get(COOKIE, ""))
        if secret is None or self._known_logins is None:
            return None
        login = await self._known_logins.get(digest_of(secret))
        if login is None or not login.is_active(self.clock.now()):
            return None
        self._logins_used[login.id] = self.clock.now()
        cap = "" if connection.is_private else NOT_ENCRYPTED
        cap = cap or (WAS_NOT_ENCRYPTED if login.look_only else "")
        role = Role.VIEWER if cap else login.role
        cap = cap if role.scopes < login.role.scopes else ""
        return Caller(name=f"login {login.id}", scopes=role.scopes, login=login, cap=cap)

    async def _named(self, name: str) -> Caller:
        """Return the person whom the operator's proxy names; the login is of this request alone and has no row."""
        user = None if self._known_users is None else await self._known_users.get(name_key(name))
        if user is None:
            why = "The proxy names a user who is not there; `claudeops user add` adds one."
            raise RefusedError(403, why, kind=ErrorKind.AUTH)
        now = self.clock.now()
        login = Login(
            id=NO_ROW,
            name=user.name,
            role=user.role,
            digest="",
            created_at=now,
            expires_at=now + LONGEST,
            last_used_at=now,
            user_id=user.id,
        )
        return Caller(name=f"user {user.id}", scopes=user.role.scopes, login=login)

    async def caller(self, headers: Headers) -> Caller | None:
        """Return who a request's token proves to be; ``None``: it has none.

        Raises `RefusedError` for a token that opens nothing, and `StoreError`.
        """
        given = headers.getlist("authorization")
        if not given:
            return None
        scheme, _, secret = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer":
            raise RefusedError(401, "The Authorization header is no bearer token.", kind=ErrorKind.AUTH)
        secret = secret.strip()
        if self.key is not None and hmac.compare_digest(self.key.encode(), secret.encode(errors="replace")):
            return Caller(name="the operator's key", scopes=frozenset({scope_of(ScopeKind.ALERTS, WEBHOOK)}))
        shown = presented(secret)
        token = None if shown is None else await self._proven(shown)
        if token is None:
            raise RefusedError(401, _UNKNOWN, kind=ErrorKind.AUTH)
        self._used[token.id] = self.clock.now()
        return Caller(name=f"token {token.id}", scopes=frozenset(token.scopes), token_name=token.name)

    def may_sign(self, name: str) -> bool:
        """Tell whether there is a secret by which a signer could prove himself."""
        return any(self.slack.values()) if name == SLACK else bool(self.sources.secrets(self.sources.source(name)))

    def seems_signed(self, name: str, headers: Headers) -> bool:
        """Tell whether there may be a signature of now, which is seen before the body has come, and proves nothing."""
        named = {header.lower(): value for header, value in headers.items()}
        if name == SLACK:
            return claimed(named, now=self.clock.now()) is not None
        return may_be_signed(self.sources.source(name), named, now=self.clock.now())

    def signer(self, name: str, body: bytes, headers: Headers) -> Caller | None:
        """Return who a body's signature proves to be; ``None``: nobody."""
        named = {header.lower(): value for header, value in headers.items()}
        if name == SLACK:
            targets = signers(body, named, self.slack, now=self.clock.now())
            return Caller(name="slack", scopes=targets) if targets else None
        source = self.sources.source(name)
        secrets = self.sources.secrets(source)
        if not secrets or not is_signed(source, body, named, secrets, now=self.clock.now()):
            return None
        return Caller(name=f"source {name}", scopes=frozenset({scope_of(ScopeKind.ALERTS, name)}))

    async def keep_uses(self) -> None:
        """Write when tokens and logins were last used, until cancelled, and once more then."""
        trouble = DatabaseTrouble(self.log, "tokens")
        try:
            while True:
                await anyio.sleep(NOTE_SECONDS)
                await self._write_uses(trouble)
        finally:
            with anyio.move_on_after(_LAST_WRITE_SECONDS, shield=True):
                await self._write_uses(trouble)

    async def _write_uses(self, trouble: DatabaseTrouble) -> None:
        used, self._used = self._used, {}
        logins, self._logins_used = self._logins_used, {}
        if not used and not logins:
            return
        try:
            await self.tokens.used(used)
            if self.logins is not None:
                await self.logins.used(logins)
        except StoreError as error:
            self._used = {**used, **self._used}
            self._logins_used = {**logins, **self._logins_used}
            trouble.failed(error)
        else:
            trouble.over()

    async def _proven(self, shown: ParsedToken) -> ApiToken | None:
        token = await self._known_tokens.get(shown.id)
        if token is None or not token.is_proven_by(shown.secret):
            return None
        return token if token.state(self.clock.now()) is TokenState.ACTIVE else None


@dataclass(kw_only=True)
class Rate:
    """How often each caller may call: a bucket that fills at a steady rate."""

    per_second: float
    most: float  # at once
    clock: Clock
    most_callers: int = 4096  # beyond that the one that has not called for longest is forgotten
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)  # by caller: how many, and when that was

    def admits(self, caller: str) -> bool:
        """Count a call; ``False``: it is one too many."""
        now = self.clock.monotonic()
        left, since = self._left.pop(caller, (self.most, now))
        left = min(self.most, left + (now - since) * self.per_second)
        is_admitted = left >= 1
        self._left[caller] = (left - 1 if is_admitted else left, now)
        if len(self._left) > self.most_callers:
            del self._left[next(iter(self._left))]
        return is_admitted


@dataclass(kw_only=True)
class RateLimitedWarning:
    """Tells the log of what callers may repeat as often as they like: at once, then once a minute, with its number."""

    event: LogEvent
    log: Logger
    clock: Clock
    every_seconds: float = 60.0
    _told_at: float | None = None
    _since: int = 0  # times since then

    def tell(self, **fields: object) -> None:
        """Take notice of one."""
        self._since += 1
        now = self.clock.monotonic()
        if self._told_at is None or now - self._told_at >= self.every_seconds:
            self.log.warning(self.event, count=self._since, **fields)
            self._told_at, self._since = now, 0
