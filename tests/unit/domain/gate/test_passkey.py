"""What a passkey signs, and what a signature on record must say."""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256

import pytest

from claudeops.domain.gate.approval import Approval, ApprovalStatus, answer, proven, proven_yes
from claudeops.domain.gate.passkey import (
    CHALLENGE_TIME,
    YOUNG,
    Assertion,
    Challenge,
    content_fault,
    is_young,
    packed,
    site_fault,
    unpacked,
)
from claudeops.structs import replace
from support.store_values import NOW

KEY = b"k" * 32
CHALLENGE = Challenge(nonce=b"n" * 32, call_hash="ab" * 32, approval_id=7, expires_at=NOW + CHALLENGE_TIME)
ASKED = Approval(
    id=7,
    session_id=1,
    tool_use_id="toolu_1",
    call_hash="ab" * 32,
    status=ApprovalStatus.PENDING,
    requested_at=NOW,
    expires_at=NOW + timedelta(minutes=15),
    passkey=True,
)


def made(
    *, kind: str = "webauthn.get", challenge: bytes = CHALLENGE.digest, rp_id: str = "localhost", flags: int = 0b101
) -> Assertion:
    client = json.dumps({"type": kind, "challenge": packed(challenge), "origin": "http://localhost:8080"})
    return Assertion(
        challenge=CHALLENGE,
        user_id=1,
        rp_id="localhost",
        credential_id="aWQ",
        public_key="a2V5",
        authenticator_data=packed(sha256(rp_id.encode()).digest() + bytes([flags]) + bytes(4)),
        client_data=packed(client.encode()),
        signature="c2ln",
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(CHALLENGE, nonce=b"m" * 32),
        replace(CHALLENGE, call_hash="cd" * 32),
        replace(CHALLENGE, answer="deny"),
        replace(CHALLENGE, approval_id=8),
        replace(CHALLENGE, expires_at=CHALLENGE.expires_at + timedelta(seconds=1)),
    ],
)
def test_a_challenge_is_good_for_one_call_answer_question_and_time(other: Challenge) -> None:
    assert other.digest != CHALLENGE.digest
    assert content_fault(replace(made(), challenge=other)) == "is about another call, answer, question or time"


def test_a_challenge_is_what_the_how_to_says() -> None:
    said = f"{'ab' * 32}:approve:7:{int(CHALLENGE.expires_at.timestamp())}"
    assert CHALLENGE.digest == sha256(b"n" * 32 + said.encode()).digest()


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (made(), ""),
        (made(kind="webauthn.create"), "is of another kind"),
        (made(rp_id="evil.example.com"), "is for another site"),
        (made(flags=0b001), "was made without its owner"),
        (made(flags=0), "was made without its owner"),
        (replace(made(), client_data="e30"), "cannot be read"),
        (replace(made(), client_data="!"), "cannot be read"),
        (replace(made(), authenticator_data=""), "is for another site"),
    ],
)
def test_a_signature_on_record_is_held_against_what_it_must_say(found: Assertion, fault: str) -> None:
    assert content_fault(found) == fault


def test_nothing_of_a_signature_can_be_changed_without_its_digest() -> None:
    whole = made()
    changed = [
        replace(whole, user_id=2),
        replace(whole, rp_id="x"),
        replace(whole, credential_id="x"),
        replace(whole, public_key="x"),
        replace(whole, authenticator_data="x"),
        replace(whole, client_data="x"),
        replace(whole, signature="x"),
        replace(whole, challenge=replace(CHALLENGE, approval_id=8)),
    ]
    assert len({whole.digest, *(one.digest for one in changed)}) == len(changed) + 1


def test_a_yes_without_a_signature_counts_for_nothing_where_one_is_demanded() -> None:
    plain = answer(KEY, ASKED, status=ApprovalStatus.APPROVED, decided_by="telegram:ada", at=NOW)
    signed = answer(KEY, ASKED, status=ApprovalStatus.APPROVED, decided_by="web:bob", at=NOW, assertion=made().digest)
    row = replace(ASKED, answers=(plain, signed))
    assert proven_yes(KEY, row) == ("telegram:ada", "web:bob")
    assert proven_yes(KEY, row, passkey=True) == ("web:bob",)


def test_the_proof_covers_the_signature_so_that_none_is_put_under_an_answer_or_taken_away() -> None:
    plain = answer(KEY, ASKED, status=ApprovalStatus.APPROVED, decided_by="ada", at=NOW)
    signed = answer(KEY, ASKED, status=ApprovalStatus.APPROVED, decided_by="ada", at=NOW, assertion="d" * 64)
    assert proven(KEY, ASKED, plain)
    assert proven(KEY, ASKED, signed)
    assert not proven(KEY, ASKED, replace(plain, assertion="d" * 64))
    assert not proven(KEY, ASKED, replace(signed, assertion=""))
    assert not proven(KEY, ASKED, replace(signed, assertion="e" * 64))


def test_a_login_is_too_old_to_add_a_passkey_after_ten_minutes() -> None:
    assert is_young(NOW, NOW + YOUNG - timedelta(seconds=1))
    assert not is_young(NOW, NOW + YOUNG)


@pytest.mark.parametrize(
    ("host", "is_tls", "words"),
    [
        ("localhost", False, ""),
        ("ops.example.com", True, ""),
        ("ops.example.com", False, "Passkeys need https"),
        ("127.0.0.1", False, "not by an address"),
        ("10.0.0.1", True, "not by an address"),
        ("[::1]", True, "not by an address"),
        ("", True, "not by an address"),
    ],
)
def test_a_passkey_works_by_a_name_and_in_private_alone(host: str, is_tls: bool, words: str) -> None:
    found = site_fault(host, is_tls=is_tls)
    assert words in found
    assert bool(found) == bool(words)


def test_base64_is_for_urls_and_nothing_else_is_taken_for_it() -> None:
    for length in range(5):
        assert unpacked(packed(b"\xff" * length)) == b"\xff" * length
    for text in ("+/+/", "a", "a b="):
        with pytest.raises(ValueError, match="base64"):
            unpacked(text)
