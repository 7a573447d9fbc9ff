"""What the libraries `joserfc` and `authlib` check of an ID token. No other module imports them: they are an extra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from cryptography.exceptions import UnsupportedAlgorithm
from joserfc import jwt
from joserfc.errors import (
    BadSignatureError,
    ClaimError,
    ExpiredTokenError,
    InvalidKeyIdError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import JWKRegistry, Key, KeySet
from joserfc.jws import JWSRegistry

from claudeops.formats.oidc import ExpectedToken, TokenFault

LEEWAY_SECONDS: Final = 60
"""By which the provider's clock and ours may differ."""

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""Signatures that are taken: those whose key the provider alone has. HS* would be signed by whoever has our secret."""

_MOST_KEYS: Final = 50
_MODULUS: Final = range(342, 1400)  # characters: from 2048 to 8192 bits; a longer one takes its time
_KINDS: Final = ("RSA", "EC", "OKP")
_PUBLIC: Final = frozenset({"kty", "use", "key_ops", "alg", "kid", "n", "e", "crv", "x", "y"})
_FAULTS: Final = (
    *(JoseError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError),
)
# Some providers add names of their own to the header, which say nothing; `crit` is looked at in any case.
_REGISTRY: Final = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
_CLAIMS: Final[Mapping[str, TokenFault]] = {
    "iss": TokenFault.ISSUER,
    "aud": TokenFault.AUDIENCE,
    "azp": TokenFault.AUDIENCE,
    "nonce": TokenFault.NONCE,
}


Keys = KeySet
"""Those of a provider, for whoever does not know the library."""


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


def challenge_of(verifier: str) -> str:
    """Return what the provider is given of a verifier before it sees the verifier itself (RFC 7636, S256)."""
    return str(create_s256_code_challenge(verifier))


def keys_of(body: bytes) -> Keys | None:
    """Return the keys of a JWK set (RFC 7517) that can check signatures; None: there are none."""
    try:
        given = msgspec.json.decode(body, type=_KeySet).keys[:_MOST_KEYS]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    keys = list(_usable(given))
    return KeySet(keys) if keys else None


def _usable(given: list[dict[str, Any]]) -> Iterator[Key]:
    """Yield the keys for signatures; one that cannot be read, or is too short, keeps out no other."""
    for data in given:
        if data.get("kty") not in _KINDS or data.get("use") not in (None, "sig"):
            continue
        if data["kty"] == "RSA" and len(str(data.get("n"))) not in _MODULUS:
            continue
        try:
            key = JWKRegistry.import_key({name: value for name, value in data.items() if name in _PUBLIC})
        except _FAULTS:
            continue
        yield key


def claims_of(token: str, keys: Keys, expected: ExpectedToken) -> Mapping[str, object] | TokenFault:
    """Return what an ID token says, if it holds (OpenID Connect Core, 3.1.3.7), else why it does not."""
    try:
        found = jwt.decode(token, keys, registry=_REGISTRY)
        claims = CodeIDToken(
            found.claims,
            found.header,
            options={"iss": {"value": expected.issuer}, "aud": {"value": expected.client_id}},
            params={"nonce": expected.nonce, "client_id": expected.client_id},
        )
        claims.validate(now=int(expected.at.timestamp()), leeway=LEEWAY_SECONDS)
    except _FAULTS as error:
        return _fault_of(error)
    return dict(claims)


def _fault_of(error: Exception) -> TokenFault:
    if isinstance(error, UnsupportedAlgorithmError):
        return TokenFault.ALGORITHM
    if isinstance(error, InvalidKeyIdError):
        return TokenFault.UNKNOWN_KEY
    if isinstance(error, BadSignatureError):
        return TokenFault.SIGNATURE
    if isinstance(error, ExpiredTokenError):
        return TokenFault.EXPIRED
    if isinstance(error, ClaimError):
        is_late = error.claim in {"iat", "nbf"} and not isinstance(error, MissingClaimError)
        return TokenFault.FUTURE if is_late else _CLAIMS.get(error.claim, TokenFault.CLAIM)
    return TokenFault.MALFORMED
