"""Which files of an operator's directory are private keys, and what a session gets of it without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.ssh_keys import SshKey, find_keys

PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    return tmp_path / "home"


def put(home: Path, name: str, text: str = PRIVATE) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)


@pytest.mark.parametrize("kind", ["", "OPENSSH ", "RSA ", "EC ", "ENCRYPTED "])
def test_a_key_is_recognised_by_what_it_begins_with(home: Path, kind: str) -> None:
    put(home, ".ssh/production", f"Bag Attributes\n-----BEGIN {kind}PRIVATE KEY-----\n")
    put(home, ".ssh/id_rsa", "see the wiki for the -----BEGIN RSA PRIVATE KEY-----\n")
    put(home, ".ssh/id_rsa.pub", "-----BEGIN RSA PUBLIC KEY-----\n")
    assert find_keys(home).names == (".ssh/production",)


def test_keys_are_found_in_directories_and_where_the_configuration_names_them(home: Path) -> None:
    put(home, ".ssh/keys/a")
    put(home, "elsewhere/b")
    put(home, "elsewhere/c")
    put(home, ".ssh/config", "Include more\nIdentityFile ~/elsewhere/../elsewhere/b\nIdentityFile ~/../outside\n")
    put(home, ".ssh/more", "IdentityFile ~/gone\n")
    put(home.parent, "outside")
    assert find_keys(home).names == (".ssh/keys/a", "elsewhere/b")


def test_a_key_behind_a_link_is_left_out_in_its_place(home: Path) -> None:
    put(home, "kept/key")
    put(home.parent, "outside")
    (home / ".ssh" / "id_a").symlink_to("../kept/key")
    (home / ".ssh" / "id_b").symlink_to(home.parent / "outside")
    (home / ".ssh" / "round").symlink_to("round")
    assert find_keys(home).found == (SshKey(Path(".ssh/id_a"), Path("kept/key")),)
    workspace = workspaces.make(home.parent / "session", template_home=home, without=find_keys(home).files)
    assert [path.name for path in (workspace.home / "kept").iterdir()] == []


def test_what_is_no_key_is_copied(home: Path) -> None:
    for name in (".ssh/id_a", ".ssh/known_hosts", ".ssh/config", ".ssh/id_a.pub", ".ssh/id_a-cert.pub", ".kube/config"):
        put(home, name, PRIVATE if name == ".ssh/id_a" else name)
    workspace = workspaces.make(home.parent / "session", template_home=home, without=find_keys(home).files)
    copied = sorted(str(path.relative_to(workspace.home)) for path in workspace.home.rglob("*") if path.is_file())
    assert copied == [".kube/config", ".ssh/config", ".ssh/id_a-cert.pub", ".ssh/id_a.pub", ".ssh/known_hosts"]


def test_a_directory_without_ssh_has_no_keys(tmp_path: Path) -> None:
    assert find_keys(tmp_path).found == ()
