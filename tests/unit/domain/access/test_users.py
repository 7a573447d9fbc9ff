"""What a user may be called, and what is no password."""

from __future__ import annotations

import pytest

from claudeops.domain.access.logins import Role
from claudeops.domain.access.users import NewUser, name_key, password_fault, user_name_fault
from support.store_values import NOW


@pytest.mark.parametrize("name", ["ada", "Ada.Lovelace", "ada@example.com", "a" * 100, "1"])
def test_whoever_has_a_name_or_an_address_can_be_a_user(name: str) -> None:
    assert user_name_fault(name) == ""


@pytest.mark.parametrize("name", ["", " ada", "../ada", "ada\n", "-rf", "a" * 101, "\u202eada", "\u0430da", "a b"])
def test_no_name_hides_something_or_looks_like_another(name: str) -> None:
    assert user_name_fault(name)


def test_capitals_make_no_other_person() -> None:
    assert name_key("ADA@Example.com") == name_key("ada@example.COM")


@pytest.mark.parametrize("length", [0, 11, 1001])
def test_no_password_is_short_or_endless_and_none_is_repeated(length: int) -> None:
    assert "x" * max(length, 5) not in password_fault("x" * length)
    assert password_fault("x" * length)
    assert (password_fault("x" * 12), password_fault("x" * 1000)) == ("", "")


def test_no_hash_is_shown_by_mistake() -> None:
    assert "secret" not in repr(
        NewUser(name="ada", role=Role.ADMIN, password_hash="secret", created_at=NOW, created_by="ada")
    )
