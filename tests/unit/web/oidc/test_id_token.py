"""Which ID tokens hold: those that the provider's key has signed, for us, for this login, now."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import OctKey, OKPKey

from claudeops.formats.oidc import ExpectedToken, TokenFault
from claudeops.structs import replace
from claudeops.web.oidc.id_token import ALGORITHMS, LEEWAY_SECONDS, Keys, challenge_of, claims_of, keys_of
from support.identity_provider import by_secret, ec_key, jwks, rsa_key, signed, unsigned
from support.listening import NOON

ISSUER: Final = "https://id.example.com"
CLIENT: Final = "claudeops"
AT: Final = int(NOON.timestamp())
EXPECTED: Final = ExpectedToken(issuer=ISSUER, client_id=CLIENT, nonce="n" * 43, at=NOON)
GOOD: Final[dict[str, Any]] = {
    "iss": ISSUER,
    "aud": CLIENT,
    "sub": "4711",
    "iat": AT,
    "exp": AT + 300,
    "nonce": EXPECTED.nonce,
    "preferred_username": "bea",
}


def claims(**instead: object) -> dict[str, Any]:
    """Return what a good token says; ``None``: without that."""
    return {name: value for name, value in {**GOOD, **instead}.items() if value is not None}


def keys(*given: Any) -> Keys:
    found = keys_of(jwks(*(given or (rsa_key(), ec_key()))))
    assert found is not None
    return found


@cache
def ours() -> Keys:
    return keys()


def fault(token: str) -> TokenFault:
    found = claims_of(token, ours(), EXPECTED)
    assert isinstance(found, TokenFault), found
    return found


def test_a_token_of_the_provider_for_us_holds() -> None:
    for key in (rsa_key(), ec_key()):
        assert claims_of(signed(claims(), key), keys(), EXPECTED) == GOOD


@pytest.mark.parametrize("alg", ["RS512", "PS256"])
def test_other_signatures_by_the_same_key_hold(alg: str) -> None:
    assert claims_of(signed(claims(), rsa_key(), alg=alg), keys(), EXPECTED) == GOOD


def test_no_algorithm_that_is_taken_has_a_shared_secret() -> None:
    assert not [one for one in ALGORITHMS if one == "none" or one.startswith(("HS", "dir", "A"))]


# --- the signature


@pytest.mark.parametrize("alg", ["none", "None", "NONE", ""])
def test_a_token_that_needs_no_signature_proves_nothing(alg: str) -> None:
    for header in ({}, {"kid": rsa_key().kid}):
        assert fault(unsigned(claims(), alg=alg, **header)) is TokenFault.ALGORITHM


def test_a_token_signed_by_what_everybody_may_read_or_by_our_secret_proves_nothing() -> None:
    public = rsa_key()
    for secret in (public.as_pem(private=False), public.as_der(private=False), json.dumps(public.as_dict()).encode()):
        assert fault(by_secret(claims(), secret, kid=public.kid)) is TokenFault.ALGORITHM
    assert fault(by_secret(claims(), b"the-secret-of-the-client")) is TokenFault.ALGORITHM


def test_a_shared_secret_among_the_keys_is_no_key() -> None:
    shared = OctKey.generate_key(256, parameters={"kid": "shared"})
    body = json.dumps({"keys": [shared.as_dict(private=True)]}).encode()
    assert keys_of(body) is None


def test_a_token_of_another_key_is_unknown_or_wrong() -> None:
    stranger = rsa_key("stranger")
    assert fault(signed(claims(), stranger)) is TokenFault.UNKNOWN_KEY
    assert fault(signed(claims(), stranger, kid=rsa_key().kid)) is TokenFault.SIGNATURE


def test_a_token_whose_text_was_changed_is_wrong() -> None:
    head, _, signature = signed(claims(), rsa_key()).split(".")
    other = signed(claims(preferred_username="ada"), ec_key()).split(".")[1]
    assert fault(f"{head}.{other}.{signature}") is TokenFault.SIGNATURE
    assert fault(f"{head}.{other}.") is TokenFault.SIGNATURE


def test_a_key_that_the_token_brings_along_is_none_of_the_providers() -> None:
    stranger = ec_key("stranger")
    brought = {"jwk": stranger.as_dict(private=False), "kid": ec_key().kid}
    assert fault(signed(claims(), stranger, **brought)) is TokenFault.SIGNATURE


def test_a_header_that_must_be_understood_and_is_not_is_refused() -> None:
    head = unsigned(claims(), alg="RS256", kid=rsa_key().kid, crit=["exp"], exp=1)
    assert fault(head + "AAAA") is TokenFault.MALFORMED


def test_without_a_key_id_the_one_key_counts_and_of_several_none() -> None:
    token = signed(claims(), rsa_key(), kid=None)
    assert claims_of(token, keys(rsa_key()), EXPECTED) == GOOD
    assert fault(token) is TokenFault.UNKNOWN_KEY


def test_keys_that_cannot_check_a_signature_keep_out_no_other() -> None:
    good = json.loads(jwks(rsa_key()))["keys"][0]
    odd = [
        {},
        {"kty": "RSA"},
        {"kty": "RSA", "n": 7, "e": []},
        {"kty": "RSA", "n": "A" * 2000, "e": "AQAB"},
        {"kty": "EC", "crv": "P-0", "x": "A", "y": "A"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "A"},
        {**good, "use": "enc", "kid": "encrypts"},
        {**good, "use": ["sig"], "kid": "odd"},
        {"kty": "RSA", "kid": "short", "n": "v" * 171, "e": "AQAB"},
        OKPKey.generate_key("X25519").as_dict(private=False),
    ]
    found = keys_of(json.dumps({"keys": [*odd, good]}).encode())
    assert found is not None
    assert [key.kid for key in found.keys if key.kid in {"rsa", "short", "encrypts", "odd"}] == ["rsa"]
    assert claims_of(signed(claims(), rsa_key()), found, EXPECTED) == GOOD


@pytest.mark.parametrize("body", [b"", b"{}", b'{"keys": []}', b'{"keys": {}}', b'{"keys": [7]}', b"[" * 100_000])
def test_what_has_no_keys_has_none(body: bytes) -> None:
    assert keys_of(body) is None


# --- the claims


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        ({"iss": "https://evil.example.com"}, TokenFault.ISSUER),
        ({"iss": f"{ISSUER}/"}, TokenFault.ISSUER),
        ({"iss": [ISSUER]}, TokenFault.ISSUER),
        ({"iss": None}, TokenFault.ISSUER),
        ({"aud": "another"}, TokenFault.AUDIENCE),
        ({"aud": ["another"]}, TokenFault.AUDIENCE),
        ({"aud": []}, TokenFault.AUDIENCE),
        ({"aud": {CLIENT: 1}}, TokenFault.AUDIENCE),
        ({"aud": None}, TokenFault.AUDIENCE),
        ({"aud": [CLIENT, "another"]}, TokenFault.AUDIENCE),  # of several, one must be named in azp
        ({"aud": [CLIENT, "another"], "azp": "another"}, TokenFault.AUDIENCE),
        ({"azp": "another"}, TokenFault.AUDIENCE),
        ({"nonce": "m" * 43}, TokenFault.NONCE),
        ({"nonce": ""}, TokenFault.NONCE),
        ({"nonce": [EXPECTED.nonce]}, TokenFault.NONCE),
        ({"nonce": None}, TokenFault.NONCE),
        ({"exp": AT - LEEWAY_SECONDS}, TokenFault.EXPIRED),
        ({"exp": None}, TokenFault.CLAIM),
        ({"exp": "tomorrow"}, TokenFault.CLAIM),
        ({"exp": True}, TokenFault.CLAIM),
        ({"exp": float("nan")}, TokenFault.CLAIM),
        ({"iat": AT + LEEWAY_SECONDS + 1}, TokenFault.FUTURE),
        ({"nbf": AT + LEEWAY_SECONDS + 1}, TokenFault.FUTURE),
        ({"iat": None}, TokenFault.CLAIM),
        ({"sub": None}, TokenFault.CLAIM),
        ({"sub": 7}, TokenFault.CLAIM),
    ],
)
def test_a_claim_that_is_not_ours_is_refused_by_its_name(instead: dict[str, object], why: TokenFault) -> None:
    assert fault(signed(claims(**instead), ec_key())) is why


@pytest.mark.parametrize(
    "instead",
    [
        {"aud": [CLIENT]},
        {"aud": [CLIENT, "another"], "azp": CLIENT},
        {"azp": CLIENT},
        {"exp": AT - LEEWAY_SECONDS + 1},
        {"iat": AT + LEEWAY_SECONDS},
        {"at_hash": "of-a-token-that-is-not-used"},
    ],
)
def test_what_the_standard_lets_a_provider_do_holds(instead: dict[str, object]) -> None:
    assert claims_of(signed(claims(**instead), ec_key()), keys(), EXPECTED) == claims(**instead)


def test_a_token_holds_in_its_own_time() -> None:
    token = signed(claims(), ec_key())
    late = replace(EXPECTED, at=NOON.replace(hour=13))
    assert claims_of(token, keys(), late) is TokenFault.EXPIRED


# --- anything at all


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "a.b.c", "é.é.é", "\ud800", "W10.e30.", "eyJhbGciOlsxXX0.e30.AA", "x" * 200_000, "a.b.c.d.e"],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    assert fault(token) in {TokenFault.MALFORMED, TokenFault.ALGORITHM}


def test_a_payload_that_is_no_object_or_too_deep_is_refused() -> None:
    head, _, _ = signed(claims(), ec_key()).split(".")
    for payload in ("W10", "bnVsbA", "W1tb" * 20_000):
        assert fault(f"{head}.{payload}.AA") in {TokenFault.SIGNATURE, TokenFault.MALFORMED}


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=6), st.recursive(st.none() | st.integers(), st.lists)))
def test_no_token_makes_it_fail(text: str, header: dict[str, object]) -> None:
    fault(text)
    fault(unsigned(claims(), **{"alg": "ES256", **header}))


@given(st.binary(max_size=200))
def test_no_key_set_makes_it_fail(body: bytes) -> None:
    keys_of(body)


def test_the_challenge_is_that_of_the_standard() -> None:
    # RFC 7636, appendix B.
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
