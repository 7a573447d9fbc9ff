"""Tokens of those who call the daemon."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.access.tokens import ApiToken, TokenState, digest_of, presented, scope_fault, written
from claudeops.text.redact import Redactor

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "abcdefghijklmnopqrstuvwxyz0123456789_-ABCDE"


def token(*, expires_at: datetime | None = None, revoked_at: datetime | None = None) -> ApiToken:
    return ApiToken(
        id=7,
        name="am",
        scopes=("alerts:prometheus",),
        digest=digest_of(SECRET),
        created_at=NOW,
        created_by="ada",
        expires_at=expires_at,
        revoked_at=revoked_at,
    )


def test_what_is_written_is_read_again() -> None:
    found = presented(written(7, SECRET))

    assert found is not None
    assert (found.id, found.secret) == (7, SECRET)
    assert token().is_proven_by(found.secret)
    assert not token().is_proven_by(found.secret[:-1] + "F")


@pytest.mark.parametrize(
    "text",
    [
        *("", "cops_", f"cops_0_{SECRET}", f"cops_07_{SECRET}", f"cops_-1_{SECRET}", f"cops_1234567890_{SECRET}"),
        *(f"cops_7_{SECRET}x", f"cops_7_{SECRET[:-1]}", f"COPS_7_{SECRET}", f" cops_7_{SECRET}", f"cops_7_{SECRET}\n"),
        *(f"cops_\N{ARABIC-INDIC DIGIT SEVEN}_{SECRET}", f"cops_7_{SECRET[:-1]}\u00e9"),
    ],
)
def test_anything_else_is_no_token(text: str) -> None:
    assert presented(text) is None


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    assert presented(text) is None
    assert scope_fault(text) or text


def test_a_token_ends_at_its_time_and_not_after() -> None:
    assert token(expires_at=NOW + timedelta(seconds=1)).state(NOW) is TokenState.ACTIVE
    assert token(expires_at=NOW).state(NOW) is TokenState.EXPIRED
    assert token(expires_at=NOW, revoked_at=NOW).state(NOW) is TokenState.REVOKED


def test_neither_secret_nor_digest_is_ever_shown() -> None:
    shown = repr(token()) + repr(presented(written(7, SECRET)))

    assert SECRET not in shown
    assert digest_of(SECRET) not in shown
    assert Redactor(()).text(f"curl -H 'X: {written(7, SECRET)}' x") == "curl -H 'X: [redacted]' x"


@pytest.mark.parametrize("scope", ["read", "trigger", "alerts:prometheus", "alerts:a.b-c_d", "heartbeats:backup"])
def test_a_scope_is_a_word_or_a_word_and_a_name(scope: str) -> None:
    assert scope_fault(scope) == ""


@pytest.mark.parametrize(
    "scope",
    [
        *(
            "",
            "approve",
            "admin",
            "read:x",
            "metrics:x",
            "alerts",
            "alerts:",
            "alerts:*",
            "alerts:a b",
            "alerts:a/b",
            "ALERTS:x",
        ),
        *("heartbeats:../x", "alerts:probes", "alerts:-x", "alerts:" + "x" * 101),
    ],
)
def test_no_scope_reaches_further_than_it_says(scope: str) -> None:
    assert scope_fault(scope).endswith(".")
