"""What a provider may say of itself, what it is asked, and which claims name a user."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.oidc import (
    Endpoints,
    OidcClient,
    authorization_address,
    claim_fault,
    endpoints_of,
    error_in,
    id_token_in,
    is_code,
    issuer_fault,
    known_error,
    token_request,
)

ISSUER = "https://id.example.com/realms/ops"
ENDPOINTS = Endpoints(authorization=f"{ISSUER}/auth?kc=1", token=f"{ISSUER}/token", keys=f"{ISSUER}/keys")
SECRET = "hunter22:%&"


def client(claim: str = "preferred_username", *urls: str) -> OidcClient:
    return OidcClient(
        issuer=ISSUER,
        client_id="claude ops",
        client_secret=SECRET,
        claim=claim,
        public_urls=urls or ("https://ops.example.com", "http://10.0.0.5:8080"),
    )


def configuration(issuer: str = ISSUER, **instead: object) -> bytes:
    usual = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/auth",
        "token_endpoint": f"{issuer}/token",
        "jwks_uri": f"{issuer}/keys",
        "scopes_supported": ["openid"],
    }
    return json.dumps({name: value for name, value in {**usual, **instead}.items() if value is not None}).encode()


# --- the issuer


@pytest.mark.parametrize(
    "issuer",
    [
        ISSUER,
        "https://id.example.com/application/o/ops/",
        "https://id.example.com:8443",
        "http://127.0.0.1:9000",
        "http://[::1]:9000",
        "http://localhost",
    ],
)
def test_an_issuer_is_taken_as_it_is_written(issuer: str) -> None:
    assert issuer_fault(issuer) == ""


@pytest.mark.parametrize("issuer", ["http://id.example.com", "http://10.0.0.1", "http://localhost.example.com"])
def test_an_issuer_in_the_clear_is_refused(issuer: str) -> None:
    assert "plain http" in issuer_fault(issuer)


@pytest.mark.parametrize(
    "issuer",
    [
        "",
        "id.example.com",
        "ftp://id.example.com",
        "https://",
        "https://ada:hunter22@id.example.com",
        "https://@id.example.com",
        "https://id.example.com/?a=b",
        "https://id.example.com/?",
        "https://id.example.com/#a",
        "https://id.example.com/#",
        "https://id.example.com:http",
        "https://id..example.com",
        f"https://{'a' * 64}.example.com",
        "https://id.example.com/ ",
        "https://id.example.com/\u00e9",
        f"https://id.example.com/{'a' * 2000}",
    ],
)
def test_what_is_no_address_is_no_issuer(issuer: str) -> None:
    assert "is no address" in issuer_fault(issuer)


# --- its configuration


def test_the_configuration_says_where_what_goes() -> None:
    assert endpoints_of(configuration(), ISSUER) == Endpoints(
        authorization=f"{ISSUER}/auth", token=f"{ISSUER}/token", keys=f"{ISSUER}/keys", is_basic=True
    )
    assert client().configuration == f"{ISSUER}/.well-known/openid-configuration"


@pytest.mark.parametrize("issuer", [f"{ISSUER}/", ISSUER.upper(), "https://id.example.com", "https://evil.example.com"])
def test_a_provider_that_calls_itself_otherwise_is_another_one(issuer: str) -> None:
    found = endpoints_of(configuration(issuer=issuer), ISSUER)
    assert isinstance(found, str)
    assert "another issuer" in found
    assert "evil" not in found


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "address",
    [
        "http://id.example.com/x",
        "http://127.0.0.1/x",  # the issuer is not on this machine
        "javascript:alert(1)",
        "/token",
        "https://a:b@id.example.com/x",
        "https://id.example.com/x#y",
        "https://id.example.com/x\ny",
        "https://id..example.com/x",
        "file:///etc/passwd",
    ],
)
def test_no_endpoint_is_where_others_read_along(name: str, address: str) -> None:
    assert endpoints_of(configuration(**{name: address}), ISSUER) == (
        "an endpoint in its configuration is no https address"
    )


def test_on_this_machine_endpoints_need_no_tls() -> None:
    issuer = "http://127.0.0.1:9000"
    assert isinstance(endpoints_of(configuration(issuer), issuer), Endpoints)
    assert isinstance(endpoints_of(configuration(issuer, token_endpoint="http://10.0.0.1/x"), issuer), str)


@pytest.mark.parametrize(
    ("methods", "is_basic"),
    [(["client_secret_post"], False), (["client_secret_post", "client_secret_basic"], True), (None, True)],
)
def test_the_secret_goes_as_the_provider_takes_it(methods: list[str] | None, is_basic: bool) -> None:
    found = endpoints_of(configuration(token_endpoint_auth_methods_supported=methods), ISSUER)
    assert isinstance(found, Endpoints)
    assert found.is_basic is is_basic


def test_a_provider_that_takes_no_secret_of_ours_is_said_so() -> None:
    found = endpoints_of(configuration(token_endpoint_auth_methods_supported=["private_key_jwt"]), ISSUER)
    assert "client_secret_basic" in str(found)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"{}", b"[" * 100_000, b"\xff", configuration(jwks_uri=None), b'{"issuer": 1}'],
)
def test_what_is_no_configuration_is_one_sentence(body: bytes) -> None:
    assert "is no JSON with issuer" in str(endpoints_of(body, ISSUER))


# --- what is asked


def test_the_browser_is_led_there_with_all_that_binds_the_login() -> None:
    address = authorization_address(
        client(), ENDPOINTS, callback="https://ops.example.com/login/oidc/callback", state="s", nonce="n", challenge="c"
    )
    assert address.startswith(f"{ISSUER}/auth?kc=1&")
    assert parse_qs(urlsplit(address).query) == {
        "kc": ["1"],
        "response_type": ["code"],
        "client_id": ["claude ops"],
        "redirect_uri": ["https://ops.example.com/login/oidc/callback"],
        "scope": ["openid profile email"],
        "state": ["s"],
        "nonce": ["n"],
        "code_challenge": ["c"],
        "code_challenge_method": ["S256"],
    }
    assert SECRET not in address


@pytest.mark.parametrize(("claim", "scope"), [("email", "openid email"), ("sub", "openid")])
def test_no_more_is_requested_than_the_claim_needs(claim: str, scope: str) -> None:
    assert client(claim).scope == scope


def test_the_secret_goes_along_encoded_as_the_standard_has_it() -> None:
    form, headers = token_request(client(), ENDPOINTS, code="c&d", verifier="v", callback="https://a/b")
    assert parse_qs(form.decode()) == {
        "grant_type": ["authorization_code"],
        "code": ["c&d"],
        "redirect_uri": ["https://a/b"],
        "code_verifier": ["v"],
        "client_id": ["claude ops"],
    }
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"claude+ops:hunter22%3A%25%26"


def test_the_secret_is_in_the_form_where_the_provider_wants_it_there() -> None:
    post = Endpoints(authorization="", token="", keys="", is_basic=False)
    form, headers = token_request(client(), post, code="c", verifier="v", callback="https://a/b")
    assert parse_qs(form.decode())["client_secret"] == [SECRET]
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("host", "public"),
    [
        ("ops.example.com", "https://ops.example.com"),
        ("OPS.example.com", "https://ops.example.com"),
        ("10.0.0.5:8080", "http://10.0.0.5:8080"),
        ("10.0.0.5", "https://ops.example.com"),
        ("evil.example.com", "https://ops.example.com"),
        ("", "https://ops.example.com"),
    ],
)
def test_no_browser_is_led_back_to_another_address_than_a_public_one(host: str, public: str) -> None:
    assert client().public_url(host) == public


def test_a_repr_has_no_secret() -> None:
    assert SECRET not in repr(client())


# --- what comes back


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"id_token": 7}', b'{"id_token": null}', b"{" * 100_000])
def test_an_answer_without_a_token_has_none(body: bytes) -> None:
    assert id_token_in(body) is None


def test_the_token_alone_is_taken_out_of_an_answer() -> None:
    assert id_token_in(b'{"access_token": "a", "id_token": "i", "refresh_token": "r"}') == "i"


def test_an_error_is_one_of_the_standards_or_not_repeated() -> None:
    assert error_in(b'{"error": "invalid_grant", "error_description": "x"}') == "invalid_grant"
    assert error_in(b'{"error": "<script>"}') == error_in(b"<html>") == error_in(b'{"error": 1}') == ""
    assert known_error("access_denied") == "access_denied"
    assert known_error("access_denied<script>") == ""


@pytest.mark.parametrize(
    ("code", "is_one"),
    [("", False), ("a b", False), ("a\n", False), ("é", False), ("a" * 4097, False), ("a.b-c", True)],
)
def test_a_code_is_short_and_printable(code: str, is_one: bool) -> None:
    assert is_code(code) is is_one


# --- the claim


@pytest.mark.parametrize(
    ("claims", "claim"),
    [
        ({"preferred_username": "Bea"}, "preferred_username"),
        ({"sub": "4711"}, "sub"),
        ({"email": "bea@example.com", "email_verified": True}, "email"),
    ],
)
def test_a_claim_names_a_user(claims: dict[str, Any], claim: str) -> None:
    assert claim_fault(claims, claim) == ""


@pytest.mark.parametrize(
    ("claims", "claim", "says"),
    [
        ({}, "preferred_username", "CLAUDEOPS_OIDC_CLAIM"),
        ({"preferred_username": None}, "preferred_username", "no claim"),
        ({"preferred_username": ["bea"]}, "preferred_username", "no text"),
        ({"preferred_username": {"name": "bea"}}, "preferred_username", "no text"),
        ({"preferred_username": 7}, "preferred_username", "no text"),
        ({"preferred_username": True}, "preferred_username", "no text"),
        ({"preferred_username": ""}, "preferred_username", "no name of a user"),
        ({"preferred_username": " bea"}, "preferred_username", "no name of a user"),
        ({"preferred_username": "bea\n"}, "preferred_username", "no name of a user"),
        ({"preferred_username": "\u212aim"}, "preferred_username", "no name of a user"),  # the Kelvin sign
        ({"preferred_username": "\ud800"}, "preferred_username", "no name of a user"),
        ({"preferred_username": "<b>"}, "preferred_username", "no name of a user"),
        ({"preferred_username": "b" * 101}, "preferred_username", "no name of a user"),
        ({"email": "bea@example.com"}, "email", "not verified"),
        ({"email": "bea@example.com", "email_verified": False}, "email", "not verified"),
        ({"email": "bea@example.com", "email_verified": "true"}, "email", "not verified"),
        ({"email": "bea@example.com", "email_verified": 1}, "email", "not verified"),
    ],
)
def test_a_claim_that_names_no_user_says_why(claims: dict[str, Any], claim: str, says: str) -> None:
    assert says in claim_fault(claims, claim)


@given(st.text(max_size=40))
def test_two_names_that_are_one_user_differ_by_ascii_capitals_alone(name: str) -> None:
    if claim_fault({"sub": name}, "sub") == "":
        assert name.isascii()
