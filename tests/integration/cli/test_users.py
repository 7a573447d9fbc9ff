"""Users by command: who may log in, as what, and that no password is kept or printed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from claudeops.cli.commands.access import _ROLES
from claudeops.domain.access.logins import Role
from claudeops.web.passwords import is_right
from support.commanding import Shell, shell_in

pytest_plugins = ("support.store_fixtures",)

PASSWORD = "correct horse battery"


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)


def typed(shell: Shell, text: bytes, *arguments: str) -> tuple[int, str, str]:
    """Call a command with something on stdin."""
    shell.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    return shell.call(*arguments)


def test_the_roles_of_the_command_are_all_there_are() -> None:
    assert list(_ROLES) == [role.value for role in Role]


def test_a_password_is_kept_as_a_hash_and_printed_nowhere(shell: Shell) -> None:
    done = typed(shell, f"{PASSWORD}\nmore\n".encode(), "user", "add", "Bea", "--role", "operator", "--password-stdin")
    assert done[0] == 0
    (row,) = shell.database.rows("users")
    assert is_right(str(row["password_hash"]), PASSWORD)
    everything = f"{done} {shell.database.rows('users')} {shell.database.rows('events')}"
    assert PASSWORD not in everything
    assert "$argon2id$" not in str(shell.call("user", "list", "-o", "json"))


@pytest.mark.parametrize(
    ("text", "arguments", "code", "says"),
    [
        (b"short\n", ("user", "add", "bea", "--role", "viewer", "--password-stdin"), 1, "12 to 1000 characters"),
        (b"", ("user", "add", "bea", "--role", "viewer", "--password-stdin"), 1, "12 to 1000 characters"),
        (b"\xff\xfe\n", ("user", "add", "bea", "--role", "viewer", "--password-stdin"), 64, "not UTF-8"),
        (b"", ("user", "add", "../etc", "--role", "viewer"), 1, "letters, digits"),
        (b"", ("user", "add", "bea", "--role", "boss"), 64, "boss"),
        (b"", ("user", "set", "bea"), 64, "nothing to change"),
        (b"", ("user", "set", "bea", "--role", "viewer"), 1, "There is no user bea"),
        (b"", ("user", "remove", "bea"), 1, "There is no user bea"),
        (b"", ("login-link", "--name", "bea"), 1, "claudeops user add bea"),
    ],
)
def test_what_is_wrong_with_a_user_is_said_and_nothing_is_changed(
    shell: Shell, text: bytes, arguments: tuple[str, ...], code: int, says: str
) -> None:
    found, written, complaints = typed(shell, text, *arguments)
    assert (found, written) == (code, "")
    assert says in complaints
    assert (shell.database.rows("users"), shell.database.rows("login_links")) == ([], [])


def test_a_name_is_taken_whatever_its_capitals(shell: Shell) -> None:
    assert shell.call("user", "add", "Bea", "--role", "viewer")[0] == 0
    code, _, complaints = shell.call("user", "add", "BEA", "--role", "admin")
    assert code == 1
    assert "claudeops user set BEA" in complaints
    assert [row["role"] for row in shell.database.rows("users")] == ["viewer"]


def test_a_link_for_a_colleague_is_no_admins(shell: Shell) -> None:
    shell.call("user", "add", "Bea", "--role", "viewer")
    _, written, _ = shell.call("login-link", "--name", "bea")
    assert "as Bea (viewer)" in written
    (row,) = shell.database.rows("login_links")
    assert (row["name"], row["role"], row["user_id"]) == ("Bea", "viewer", 1)


def test_every_change_is_on_record_with_who_made_it(shell: Shell) -> None:
    shell.call("user", "add", "bea", "--role", "viewer")
    shell.call("user", "set", "bea", "--role", "approver")
    shell.call("user", "remove", "bea")
    said = [str(row["message"]) for row in shell.database.rows("events")]
    assert [line.partition(" has ")[2] for line in said] == [
        "added the user bea as viewer",
        "given the user bea the role approver",
        "removed the user bea",
    ]
    assert "no users" in shell.call("user", "list")[1]
