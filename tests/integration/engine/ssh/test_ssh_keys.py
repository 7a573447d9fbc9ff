"""Which files of an operator's directory are private keys, and what a session gets of it without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.ssh.keys import SshKey, find_keys

PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\n"
OTHER = "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n"


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
    put(home, ".ssh/keys/a", OTHER)
    put(home, "elsewhere/b", OTHER)
    put(home, "elsewhere/c", OTHER)
    put(home, "elsewhere/of-web1", OTHER)
    put(home, "elsewhere/of-web2", "no key\n")
    put(home, ".ssh/config", "Include more\nIdentityFile ~/elsewhere/../elsewhere/b\nIdentityFile\t~/elsewhere/of-%h\n")
    put(home, ".ssh/more", f"IdentityFile ~/gone\nIdentityFile {home}/elsewhere/b\n")
    found = find_keys(home)
    assert (found.names, found.outside) == ((".ssh/keys/a", "elsewhere/b", "elsewhere/of-web1"), ())


@pytest.mark.parametrize("text", [PRIVATE, "PuTTY-User-Key-File-3: ssh-ed25519\n"])
def test_a_key_in_the_form_of_ssh_is_found_wherever_it_lies_and_no_other_programs(home: Path, text: str) -> None:
    put(home, "backup/old/key", text)
    put(home, ".kube/client.key", OTHER)
    (home / "link").symlink_to("backup/old/key")
    os.mkfifo(home / "backup" / "pipe")
    assert find_keys(home).names == ("backup/old/key",)


def test_a_key_outside_of_the_directory_is_named_and_nothing_of_it_is_taken(home: Path) -> None:
    put(home.parent, "outside/a")
    put(home.parent, "outside/b")
    put(home.parent, "outside/.ssh/c")
    put(home.parent, "outside/text", "no key\n")
    names = ("a", "b", "text", "gone")
    put(home, ".ssh/config", "".join(f"IdentityFile {home.parent}/outside/{name}\n" for name in names))
    (home / ".ssh" / "id_b").symlink_to(home.parent / "outside" / "b")
    found = find_keys(home)
    assert (found.names, found.outside) == (
        (),
        (str(home / ".ssh/id_b"), *(f"{home.parent}/outside/{n}" for n in "ab")),
    )
    (home.parent / "linked").mkdir()
    (home.parent / "linked" / ".ssh").symlink_to(home.parent / "outside" / ".ssh")
    assert find_keys(home.parent / "linked").outside == (f"{home.parent}/linked/.ssh/c",)


def test_a_directory_that_has_several_names_has_its_keys_once(home: Path) -> None:
    put(home, "dot/id_a", OTHER)
    (home / ".ssh").rmdir()
    (home / ".ssh").symlink_to("dot")
    (home.parent / "other").symlink_to(home)
    put(home, "more/id_b", OTHER)
    lines = (f"IdentityFile {home.parent}/other/{name}\n" for name in ("dot/id_a", "more/id_b"))
    put(home, ".ssh/config", "".join(lines))
    found = find_keys(home.parent / "other")
    named = (SshKey(Path(".ssh/id_a"), Path("dot/id_a")), SshKey(Path("more/id_b"), Path("more/id_b")))
    assert (found.found, found.outside) == (named, ())


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
