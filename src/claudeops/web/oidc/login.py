"""Logging in at an identity provider: begun in a browser, ended once, in the same browser, within ten minutes.

What was begun is kept here, in memory: a daemon that starts anew has begun nothing. The browser keeps a secret in a
cookie, so that nobody can end his own login in the browser of another person.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from claudeops.clock import Clock
from claudeops.domain.access.logins import NewLogin, next_path, secret_of
from claudeops.domain.access.tokens import SECRET_BYTES, digest_of
from claudeops.formats.oidc import (
    CALLBACK,
    PENDING_TIME,
    ExpectedToken,
    LoginCallback,
    LoginFailure,
    LoginStart,
    LoginSuccess,
    TokenFault,
    authorization_address,
    claim_fault,
    is_code,
    known_error,
)
from claudeops.logs import LogEvent, Logger
from claudeops.store.access.users import Users
from claudeops.web.authentication import Rate, RateLimitedWarning
from claudeops.web.connection import peer_key
from claudeops.web.oidc.id_token import challenge_of
from claudeops.web.oidc.provider import Provider, ProviderError
from claudeops.web.password_login import TRIES
from claudeops.web.ports import Logins
from claudeops.web.problems import later

MOST_PENDING: Final = 1000
"""Logins that were begun and not ended; beyond that the oldest is forgotten."""

MOST_AT_ONCE: Final = 8
"""Logins for which the provider is asked at once."""

_AGAIN_SECONDS: Final = 60 // TRIES
_BUSY_SECONDS: Final = 5


def _secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pending:
    """A login that was begun."""

    browser: str = field(repr=False)  # the digest of the cookie
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    callback: str
    wanted: str
    expires_at: datetime


@dataclass(kw_only=True)
class OidcLogin:
    """`claudeops.web.ports.ProviderLogin`, by OpenID Connect."""

    provider: Provider
    users: Users
    logins: Logins
    clock: Clock
    log: Logger
    draw: Callable[[], str] = _secret
    host: str = field(init=False)  # the provider's
    _pending: dict[str, _Pending] = field(default_factory=dict, repr=False)  # by the digest of the state
    _busy: int = 0
    _rate: Rate = field(init=False)
    _complaints: RateLimitedWarning = field(init=False)

    def __post_init__(self) -> None:
        self.host = self.provider.client.host
        self._rate = Rate(per_second=TRIES / 60, most=TRIES, clock=self.clock)
        self._complaints = RateLimitedWarning(event=LogEvent.PROVIDER_LOGIN_FAILED, log=self.log, clock=self.clock)

    def begins_at(self, host: str) -> str:
        """Return the public address at which a login begins and ends, by the Host header of a request."""
        return self.provider.client.public_url(host)

    async def begin(self, *, host: str, wanted: str, peer: str, at: datetime) -> LoginStart | LoginFailure:
        """Begin a login in a browser. Raises `RefusedError` for one try too many."""
        if not self._rate.admits(peer_key(peer)):
            raise later("Too many tries to log in came from there; wait a minute.", seconds=_AGAIN_SECONDS)
        try:
            endpoints = await self.provider.endpoints()
        except ProviderError as error:
            return self._away(str(error))
        state, browser = self.draw(), self.draw()
        pending = _Pending(
            browser=digest_of(browser),
            nonce=self.draw(),
            verifier=self.draw(),
            callback=self.begins_at(host) + CALLBACK,
            wanted=next_path(wanted),
            expires_at=at + PENDING_TIME,
        )
        self._keep(state, pending, at)
        address = authorization_address(
            self.provider.client,
            endpoints,
            callback=pending.callback,
            state=state,
            nonce=pending.nonce,
            challenge=challenge_of(pending.verifier),
        )
        return LoginStart(address=address, secret=browser)

    async def end(self, returned: LoginCallback, *, secret: str, new: NewLogin) -> LoginSuccess | LoginFailure:
        """End the login that was begun in the browser with this secret. Raises `RefusedError`, and `StoreError`."""
        pending = self._used(returned.state, secret, new.at)
        if pending is None:
            return LoginFailure(
                sentence="This login was not begun in this browser, was used, or took longer than ten minutes: begin "
                f"it again, at {self.provider.client.public_urls[0]}/login."
            )
        if returned.issuer not in {None, self.provider.client.issuer}:
            return self._refused("the answer is from another issuer")
        if returned.error or not is_code(returned.code):
            named = known_error(returned.error)
            return self._refused(f"the provider answers {named}" if named else "the provider gives no code")
        if self._busy >= MOST_AT_ONCE:
            raise later("Too many people log in at once.", seconds=_BUSY_SECONDS)
        self._busy += 1
        try:
            return await self._vouched(returned.code, pending, new)
        except (ProviderError, TimeoutError) as error:
            return self._away(str(error))
        finally:
            self._busy -= 1

    async def _vouched(self, code: str, pending: _Pending, new: NewLogin) -> LoginSuccess | LoginFailure:
        client = self.provider.client
        expected = ExpectedToken(issuer=client.issuer, client_id=client.client_id, nonce=pending.nonce, at=new.at)
        claims = await self.provider.claims(
            code, verifier=pending.verifier, callback=pending.callback, expected=expected
        )
        if isinstance(claims, TokenFault):
            return self._refused(f"the token does not hold: {claims.value}")
        if fault := claim_fault(claims, client.claim):
            self._complaints.tell(error=f"the token {fault}")
            return LoginFailure(sentence=f"What {self.host} says of you {fault}.")
        name = str(claims[client.claim])
        user = await self.users.named(name)
        login = None if user is None else await self.logins.log_in_by(self.host, user, new)
        if login is None:
            self._complaints.tell(error=f"the claim {client.claim} names no user")
            sentence = f"{self.host} calls you {name}, and there is no such user here: `claudeops user add` adds one."
            return LoginFailure(sentence=sentence)
        return LoginSuccess(login=login, wanted=pending.wanted)

    def _keep(self, state: str, new: _Pending, at: datetime) -> None:
        self._pending = {key: one for key, one in self._pending.items() if at < one.expires_at}
        while len(self._pending) >= MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        self._pending[digest_of(state)] = new

    def _used(self, state: str, secret: str, at: datetime) -> _Pending | None:
        """Return what was begun with this state in this browser, which nothing else can end from now on."""
        if secret_of(state) is None or secret_of(secret) is None:
            return None
        key = digest_of(state)
        pending = self._pending.get(key)
        # A link with a state that somebody else has drawn uses nothing up.
        if pending is None or not hmac.compare_digest(pending.browser, digest_of(secret)):
            return None
        del self._pending[key]
        return pending if at < pending.expires_at else None

    def _away(self, error: str) -> LoginFailure:
        self._complaints.tell(error=error)
        sentence = f"{self.host} does not do its part now: try again in a minute, or log in in another way."
        return LoginFailure(sentence=sentence, is_refused=False)

    def _refused(self, error: str) -> LoginFailure:
        self._complaints.tell(error=error)
        return LoginFailure(sentence=f"{self.host} has not logged you in: {error}.")
