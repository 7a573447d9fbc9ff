"""What a file says in the open of the private key in it; the keys themselves are made by ssh-keygen."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.network.ssh_key import OWN_FORM_CHARACTERS, PrivateKey, has_own_form, private_key
from support.ssh_servers import make_key, needs_ssh

BEGIN, END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa"])
@pytest.mark.parametrize("passphrase", ["", "a passphrase"])
def test_the_public_half_of_a_key_and_whether_it_is_locked_are_read_off(
    tmp_path: Path, kind: str, passphrase: str
) -> None:
    needs_ssh()
    public = make_key(tmp_path / "key", passphrase, kind=kind)
    text = (tmp_path / "key").read_text()
    assert private_key(text) == PrivateKey(is_locked=bool(passphrase), public=public)
    assert has_own_form(text[:OWN_FORM_CHARACTERS])


@pytest.mark.parametrize("passphrase", ["", "a passphrase"])
@pytest.mark.parametrize("form", ["PEM", "PKCS8"])
def test_of_a_key_in_another_form_it_is_known_whether_it_is_locked(tmp_path: Path, form: str, passphrase: str) -> None:
    needs_ssh()
    make_key(tmp_path / "key", passphrase, kind="ecdsa", form=form)
    text = (tmp_path / "key").read_text()
    assert private_key(f"Bag Attributes\n{text}") == PrivateKey(is_locked=bool(passphrase))
    assert not has_own_form(text[:OWN_FORM_CHARACTERS]), "such a file may be another program's"


def test_a_key_of_putty_is_one_too() -> None:
    assert has_own_form("PuTTY-User-Key-File-3: ssh-ed25519")
    assert private_key("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n") == PrivateKey()


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN RSA PUBLIC KEY-----\n", f"see {BEGIN}\n", "ssh-ed25519 AAAA", "-----BEGIN X-----"]
)
def test_what_is_no_private_key_is_none(text: str) -> None:
    assert private_key(text) is None


@pytest.mark.parametrize("content", [b"", b"openssh-key-v1\0", b"openssh-key-v2\0" + b"\0" * 40, b"\xff" * 40])
def test_a_broken_key_is_one_of_which_nothing_is_known(content: bytes) -> None:
    found = private_key(f"{BEGIN}\n{base64.b64encode(content).decode()}\n{END}\n")
    assert found is not None
    assert found.public is None


@given(text=st.text(max_size=200))
def test_whatever_the_file_holds_something_is_decided(text: str) -> None:
    assert private_key(f"{BEGIN}\n{text}") is not None
    private_key(text)
