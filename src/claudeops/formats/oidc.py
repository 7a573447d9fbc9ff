"""Logins by OpenID Connect: what a provider says of itself, what it is sent, and which user its token names.

It is the authorization code flow with PKCE (RFC 6749, RFC 7636, RFC 9700). The provider says who a person is; which
role that person has is ours.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, quote_plus, urlencode, urlsplit

import msgspec

from claudeops.domain.access.logins import Login
from claudeops.domain.access.users import user_name_fault
from claudeops.text import regex

PENDING_TIME: Final = timedelta(minutes=10)
"""For which a person may take to log in at the provider."""

CALLBACK: Final = "/login/oidc/callback"
"""Where the provider leads a browser back to, below the public address."""

EMAIL: Final = "email"
CLAIM: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,99}")
"""The name of a claim."""

_LONGEST_ADDRESS: Final = 2000
_LONGEST_CODE: Final = 4096
_SCOPES: Final = {EMAIL: "openid email", "sub": "openid"}  # by the claim
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_BASIC, _POST = "client_secret_basic", "client_secret_post"
_ADDRESS: Final = regex.Pattern(r"[!-~]+")
_ERRORS: Final = frozenset(
    (  # of RFC 6749 (4.1.2.1, 5.2) and OpenID Connect Core (3.1.2.6): another text is the provider's own, or anybody's
        *("access_denied", "invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "server_error"),
        *("temporarily_unavailable", "unauthorized_client", "unsupported_grant_type", "unsupported_response_type"),
        *("account_selection_required", "consent_required", "interaction_required", "login_required"),
    )
)


class TokenFault(StrEnum):
    """Why an ID token does not hold."""

    MALFORMED = "it is no signed token"
    ALGORITHM = "it is signed in a way that is not taken"  # by a shared secret, or not at all
    UNKNOWN_KEY = "it is signed by none of the provider's keys"
    SIGNATURE = "its signature is wrong"
    ISSUER = "it is from another issuer"
    AUDIENCE = "it is for another client"
    NONCE = "it is for another login"
    EXPIRED = "it has expired"
    FUTURE = "it is from the future: compare the clocks"
    CLAIM = "a claim is missing, or has a value of another kind"


@dataclass(frozen=True, kw_only=True, slots=True)
class OidcClient:
    """What we are to the provider, as the operator has configured it."""

    issuer: str  # exactly as the provider writes it, with or without a slash at its end
    client_id: str
    client_secret: str = field(repr=False)
    claim: str  # which names the user
    public_urls: Sequence[str]  # of the listener, the first of which links have; without a slash at the end

    @property
    def host(self) -> str:
        """The provider's, as people are shown it."""
        return urlsplit(self.issuer).netloc

    @property
    def configuration(self) -> str:
        """Where the provider describes itself."""
        return self.issuer.rstrip("/") + _WELL_KNOWN

    @property
    def scope(self) -> str:
        """What a login requests: no more than the claim needs."""
        return _SCOPES.get(self.claim, "openid profile email")

    def public_url(self, host: str) -> str:
        """Return the public address that has a Host header's name, else the first one."""
        named = (url for url in self.public_urls if urlsplit(url).netloc.lower() == host.lower())
        return next(named, self.public_urls[0])


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Where the provider takes what."""

    authorization: str  # of the person's browser
    token: str  # of us
    keys: str
    is_basic: bool = True  # the client's secret goes along as RFC 7617 has it; False: in the form


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedToken:
    """What an ID token must be about."""

    issuer: str
    client_id: str
    nonce: str = field(repr=False)
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginStart:
    """The start of a login: the browser gets the secret as a cookie, and goes to the address."""

    address: str = field(repr=False)
    secret: str = field(repr=False)


class LoginSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """A login that the provider has vouched for, and where to go now."""

    login: Login
    wanted: str


class LoginFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a person is not logged in."""

    sentence: str  # for the person
    is_refused: bool = True  # False: the provider is away or does not do its part


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginCallback:
    """What a browser brings back from the provider; whoever wrote the link has written it."""

    state: str = field(default="", repr=False)
    code: str = field(default="", repr=False)
    error: str = ""
    issuer: str | None = None  # RFC 9207; None: this provider does not say it


class _Configuration(msgspec.Struct):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: Sequence[str] = (_BASIC,)


class _Tokens(msgspec.Struct):
    id_token: str


class _Refusal(msgspec.Struct):
    error: str = ""


# --- addresses ---------------------------------------------------------------------------------------


def issuer_fault(issuer: str) -> str:
    """Return what is wrong with the address of a provider, as the end of a sentence; empty: nothing."""
    parts = _split(issuer)
    if parts is None or parts.query or "?" in issuer:
        return "is no address such as https://id.example.com/realms/ops, without user, query and fragment"
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        return "is plain http, by which anybody on the way could log in as anybody: name its https address"
    return ""


def endpoints_of(body: bytes, issuer: str) -> Endpoints | str:
    """Return what a provider says of itself, else what is wrong with it, as a sentence without its texts."""
    try:
        configuration = msgspec.json.decode(body, type=_Configuration)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "its configuration is no JSON with issuer, authorization_endpoint, token_endpoint and jwks_uri"
    if configuration.issuer != issuer:
        return "it calls itself by another issuer than CLAUDEOPS_OIDC_ISSUER (a slash at the end counts)"
    for address in (configuration.authorization_endpoint, configuration.token_endpoint, configuration.jwks_uri):
        if not _is_endpoint(address, issuer):
            return "an endpoint in its configuration is no https address"
    methods = configuration.token_endpoint_auth_methods_supported
    if _BASIC not in methods and _POST not in methods:
        return "it takes the client's secret neither as client_secret_basic nor as client_secret_post"
    return Endpoints(
        authorization=configuration.authorization_endpoint,
        token=configuration.token_endpoint,
        keys=configuration.jwks_uri,
        is_basic=_BASIC in methods,
    )


def authorization_address(
    client: OidcClient, endpoints: Endpoints, *, callback: str, state: str, nonce: str, challenge: str
) -> str:
    """Return where a browser goes to log in; ``challenge`` is of RFC 7636, by SHA-256."""
    query = urlencode(
        {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": callback,
            "scope": client.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
    )
    return f"{endpoints.authorization}{'&' if '?' in endpoints.authorization else '?'}{query}"


def _is_endpoint(address: str, issuer: str) -> bool:
    """Return whether what goes there is encrypted on its way, or stays on this machine."""
    parts = _split(address)
    if parts is None:
        return False
    return parts.scheme == "https" or (_is_loopback(parts.hostname or "") and issuer.startswith("http:"))


def _split(address: str) -> SplitResult | None:
    """Return the parts of an http or https address without user and fragment; None for what is none."""
    if len(address) > _LONGEST_ADDRESS or not _ADDRESS.fullmatch(address):
        return None
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - a port that is no number is only noticed here
        (parts.hostname or "").encode("idna")  # as it is written when we call there: a part may be too long
    except ValueError:
        return None
    plain = not (parts.username or parts.password or "@" in parts.netloc or "#" in address)
    return parts if plain and parts.hostname and parts.scheme in {"http", "https"} else None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- the token ---------------------------------------------------------------------------------------


def token_request(
    client: OidcClient, endpoints: Endpoints, *, code: str, verifier: str, callback: str
) -> tuple[bytes, Mapping[str, str]]:
    """Return the form that buys the tokens for a code, and the headers that go along."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": callback,
        "code_verifier": verifier,
        "client_id": client.client_id,
    }
    headers = {"content-type": "application/x-www-form-urlencoded"}
    if not endpoints.is_basic:
        return urlencode({**form, "client_secret": client.client_secret}).encode(), headers
    # RFC 6749, 2.3.1: each part is encoded as in a form before both are joined.
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    return urlencode(form).encode(), {**headers, "authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def id_token_in(body: bytes) -> str | None:
    """Return the ID token of an answer to that; what else is in it goes no further. None: there is none."""
    try:
        return msgspec.json.decode(body, type=_Tokens).id_token
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def error_in(body: bytes) -> str:
    """Return the error that an answer names, if it is one of the standards'; empty: it is not."""
    try:
        return known_error(msgspec.json.decode(body, type=_Refusal).error)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def known_error(code: str) -> str:
    """Return an error of the standards; empty for any other text, which may be anything."""
    return code if code in _ERRORS else ""


def is_code(text: str) -> bool:
    """Return whether a text may be a code for tokens."""
    return 0 < len(text) <= _LONGEST_CODE and bool(_ADDRESS.fullmatch(text))


def claim_fault(claims: Mapping[str, object], claim: str) -> str:
    """Return why a claim names no user, as the end of a sentence; empty: it is a name.

    An address of mail is whatever a person types, until the provider has verified it. Names are compared without their
    capitals, so that a letter outside ASCII must not get that far: the Kelvin sign is a k in lower case.
    """
    name = claims.get(claim)
    if name is None:
        return f"has no claim {claim}: let the provider put it into the ID token, or set CLAUDEOPS_OIDC_CLAIM"
    if not isinstance(name, str):
        return f"has a claim {claim} that is no text"
    if claim == EMAIL and claims.get("email_verified") is not True:
        return "has an address of mail that the provider has not verified"
    return f"has a claim {claim} that is no name of a user here" if user_name_fault(name) else ""
