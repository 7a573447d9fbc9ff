"""An identity provider on loopback: a real HTTP server that signs, checks its client, and misbehaves as it is told to.

Its page asks nobody for a password: whoever follows the link on it is `person`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from html import escape
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import anyio
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from claudeops.engine.meter.connections import connection_pool
from claudeops.formats.oidc import OidcClient
from claudeops.http_server import listen
from claudeops.web.oidc.login import OidcLogin
from claudeops.web.oidc.provider import Provider
from support.listening import NOON
from support.paged import SiteDoor
from support.waiting import PATIENCE_SECONDS

CLIENT_ID: Final = "claudeops at home"  # with a space: it is written in two ways
CLIENT_SECRET: Final = "the-client's-secret:100%"
ACCESS_TOKEN: Final = "access-token-that-nothing-may-keep"

Claims = dict[str, Any]


@cache
def rsa_key(kid: str = "rsa") -> RSAKey:
    """Return a key; making one takes a moment."""
    return RSAKey.generate_key(2048, parameters={"kid": kid, "use": "sig"})


@cache
def ec_key(kid: str = "ec") -> ECKey:
    return ECKey.generate_key("P-256", parameters={"kid": kid, "use": "sig"})


def signed(claims: Mapping[str, object], key: RSAKey | ECKey, **header: object) -> str:
    """Return a token that a key has signed; ``None`` in the header: without that."""
    usual = {"alg": "ES256" if isinstance(key, ECKey) else "RS256", "kid": key.kid}
    full = {name: value for name, value in {**usual, **header}.items() if value is not None}
    return jwt.encode(full, dict(claims), key, algorithms=[str(full["alg"])])


def unsigned(claims: Mapping[str, object], **header: object) -> str:
    """Return a token that says that it needs no signature."""
    return f"{_part({'alg': 'none', **header})}.{_part(claims)}."


def by_secret(claims: Mapping[str, object], secret: bytes, **header: object) -> str:
    """Return a token that whoever knows a secret can make."""
    text = f"{_part({'alg': 'HS256', **header})}.{_part(claims)}"
    return f"{text}.{_packed(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def jwks(*keys: RSAKey | ECKey) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def _part(value: object) -> str:
    return _packed(json.dumps(value).encode())


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]


@dataclass(frozen=True)
class _Code:
    redirect_uri: str
    nonce: str
    challenge: str


Answering = Callable[[Request], Response | None]
"""Answers instead of the provider; None: with nothing, ever."""


@dataclass
class IdentityProvider:
    """The provider; ``issuer`` is set once it listens."""

    person: Claims = field(default_factory=lambda: {"preferred_username": "bea", "sub": "4711"})
    now: Callable[[], datetime] = lambda: NOON
    issuer: str = ""
    signing: RSAKey | ECKey = field(default_factory=rsa_key)
    published: list[RSAKey | ECKey] = field(default_factory=lambda: [rsa_key()])
    configuration: Claims = field(default_factory=dict)  # instead of, or beside, what is usual
    claims: Claims = field(default_factory=dict)  # of the next tokens; None: without
    token_of: Callable[[Claims], str] | None = None  # makes the token in another way
    answers: dict[str, Answering] = field(default_factory=dict)  # by path
    notice: Callable[[str], object] = str  # called with the path of each request as it comes
    seen: list[Seen] = field(default_factory=list)
    verifiers: list[str] = field(default_factory=list)
    codes: dict[str, _Code] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    released: anyio.Event = field(default_factory=anyio.Event)  # set at the end: nothing hangs any more
    _made: int = 0

    def client(self, *public_urls: str, claim: str) -> OidcClient:
        """Return what claudeops is to it."""
        return OidcClient(
            issuer=self.issuer, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, claim=claim, public_urls=public_urls
        )

    def paths(self) -> list[str]:
        return [one.path for one in self.seen]

    def consent(self, address: str, **instead: str) -> str:
        """Return where the provider leads the browser back to that came to it by an address."""
        asked = {name: texts[0] for name, texts in parse_qs(urlsplit(address).query).items()} | instead
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        assert asked["client_id"] == CLIENT_ID
        assert "openid" in asked["scope"].split()
        self._made += 1
        code = f"code-{self._made}-that-nothing-may-keep"
        self.codes[code] = _Code(asked["redirect_uri"], asked["nonce"], asked["code_challenge"])
        query = urlencode({"state": asked["state"], "code": code, "iss": self.issuer, "session_state": "x.y"})
        return f"{asked['redirect_uri']}?{query}"

    def claims_for(self, nonce: str) -> Claims:
        """Return what a token says."""
        at = int(self.now().timestamp())
        usual = {"iss": self.issuer, "aud": CLIENT_ID, "iat": at, "exp": at + 300, "nonce": nonce, **self.person}
        return {name: value for name, value in {**usual, **self.claims}.items() if value is not None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        path = request.url.path
        form = {name: texts[0] for name, texts in parse_qs((await request.body()).decode()).items()}
        self.seen.append(Seen(request.method, path, dict(request.headers), form))
        self.notice(path)
        if path in self.answers:
            answer = self.answers[path](request)
            if answer is None:
                await self.released.wait()
                return
        else:
            answer = self._answer(request, path, form)
        await answer(scope, receive, send)

    def _answer(self, request: Request, path: str, form: Mapping[str, str]) -> Response:
        if path == "/.well-known/openid-configuration":
            return _json({**self._usual_configuration(), **self.configuration})
        if path == "/keys":
            return Response(jwks(*self.published), media_type="application/json")
        if path == "/authorize":
            query = escape(request.url.query)
            head = '<!doctype html><title>Provider</title><link rel="icon" href="data:,">'  # which is not asked for
            return Response(f'{head}<a href="/consent?{query}">Log in as bea</a>', media_type="text/html")
        if path == "/consent":
            return Response(status_code=302, headers={"location": self.consent(str(request.url))})
        if path == "/token":
            return self._token(request, form)
        return Response(status_code=404)

    def _usual_configuration(self) -> Claims:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
        }

    def _token(self, request: Request, form: Mapping[str, str]) -> Response:
        if not _is_client(request, form):
            return _json({"error": "invalid_client"}, status=401)
        code = self.codes.pop(form["code"], None)
        verifier = form["code_verifier"]
        if (
            code is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != code.redirect_uri
            or _packed(hashlib.sha256(verifier.encode()).digest()) != code.challenge
        ):
            return _json({"error": "invalid_grant", "error_description": "text of the provider's"}, status=400)
        self.verifiers.append(verifier)
        claims = self.claims_for(code.nonce)
        token = signed(claims, self.signing) if self.token_of is None else self.token_of(claims)
        self.tokens.append(token)
        return _json({"access_token": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 300, "id_token": token})


def _is_client(request: Request, form: Mapping[str, str]) -> bool:
    if "client_secret" in form:
        return (form["client_id"], form["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
    scheme, _, packed = request.headers.get("authorization", "").partition(" ")
    name, _, secret = base64.b64decode(packed).decode().partition(":")
    return scheme == "Basic" and (unquote_plus(name), unquote_plus(secret)) == (CLIENT_ID, CLIENT_SECRET)


def _json(value: object, *, status: int = 200) -> Response:
    return Response(json.dumps(value), status_code=status, media_type="application/json")


@asynccontextmanager
async def listening(provider: IdentityProvider) -> AsyncIterator[IdentityProvider]:
    """Let a provider listen for the length of the block."""
    async with listen(provider, host="127.0.0.1", port=0, closing=anyio.Event()) as url:
        provider.issuer = url
        try:
            yield provider
        finally:
            provider.released.set()


def login_at(
    site: SiteDoor,
    provider: IdentityProvider,
    *,
    public_url: str = "",
    claim: str = "preferred_username",
    seconds: float = PATIENCE_SECONDS,
) -> OidcLogin:
    """Return what logs people in to pages at a provider, which has its time unless a test is about that."""
    urls = (public_url,) if public_url else ("http://127.0.0.1:8080", "https://ops.example.com")
    return OidcLogin(
        provider=Provider(
            client=provider.client(*urls, claim=claim),
            connect=partial(connection_pool, network={}),
            clock=site.door.clock,
            seconds=seconds,
        ),
        users=site.store.users,
        logins=site.store.logins,
        clock=site.door.clock,
        log=site.door.authenticator.log,
    )
