"""Who calls: tokens, the operator's key, and signatures of sources. The peer's address proves nothing.

Tokens are read from the database at most once a second, and ten times where a token is not known yet: so a new one
works at once, a revoked one opens nothing a second later, and a flood of guesses is no flood of queries.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio
from starlette.datastructures import Headers

from claudeops.domain.alerts.senders import is_signed, may_be_signed
from claudeops.domain.notice.slack import claimed, signers
from claudeops.domain.web.token import ApiToken, Presented, ScopeKind, TokenState, presented, scope_of
from claudeops.errors import ErrorKind, StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import DatabaseTrouble
from claudeops.web.endpoints import Caller
from claudeops.web.ports import Clock, Sources, Tokens
from claudeops.web.problems import RefusedError

FRESH_SECONDS: Final = 1.0
"""For how long what was read of the tokens is believed."""

AGAIN_SECONDS: Final = 0.1
"""Between two readings for tokens that were not there."""

NOTE_SECONDS: Final = 30.0
"""Between two writings of when tokens were last used."""

WEBHOOK: Final = "webhook"
"""The source for which the operator's key stands."""

SLACK: Final = "@slack"
"""The signer of what is pressed in Slack; no source in an address is called so."""

_LAST_WRITE_SECONDS: Final = 2.0
_UNKNOWN: Final = "This token opens nothing: it is unknown, or it has expired or was revoked."


@dataclass(kw_only=True)
class Doorkeeper:
    """Knows who may come in."""

    tokens: Tokens
    sources: Sources
    clock: Clock
    log: Logger
    key: str | None = field(default=None, repr=False)  # of the operator, for the source `WEBHOOK`
    slack: Mapping[str, str] = field(default_factory=dict, repr=False)  # signing secrets, by targets
    _active: Mapping[int, ApiToken] = field(default_factory=dict)
    _read_at: float | None = None  # monotonic seconds
    _failed: tuple[float, StoreError] | None = None  # the last reading, and when that was
    _reading: anyio.Lock = field(default_factory=anyio.Lock)
    _used: dict[int, datetime] = field(default_factory=dict)  # since the last writing

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
        return Caller(name=f"token {token.id}", scopes=frozenset(token.scopes))

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
        """Write when tokens were last used, until cancelled, and once more then."""
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
        if not used:
            return
        try:
            await self.tokens.used(used)
        except StoreError as error:
            self._used = {**used, **self._used}
            trouble.failed(error)
        else:
            trouble.over()

    async def _proven(self, shown: Presented) -> ApiToken | None:
        async with self._reading:
            await self._look(shown.id)
        token = self._active.get(shown.id)
        if token is None or not token.is_proven_by(shown.secret):
            return None
        return token if token.state(self.clock.now()) is TokenState.ACTIVE else None

    async def _look(self, token_id: int) -> None:
        """Read the tokens again where what is known does not do."""
        now = self.clock.monotonic()
        if self._failed is not None and now - self._failed[0] < AGAIN_SECONDS:
            raise self._failed[1]
        age = None if self._read_at is None else now - self._read_at
        if age is not None and age < (FRESH_SECONDS if token_id in self._active else AGAIN_SECONDS):
            return
        try:
            self._active = await self.tokens.active(self.clock.now())
        except StoreError as error:
            self._failed = (self.clock.monotonic(), error)
            raise
        self._read_at, self._failed = self.clock.monotonic(), None


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
class Complaints:
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
