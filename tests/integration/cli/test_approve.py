"""An operator at a shell says yes to what there is to see, or says that it was not to be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from claudeops.domain.gate.approval import ApprovalStatus, CalledScript, NewApproval
from claudeops.domain.sessions import Session
from claudeops.engine.gate.approval_key import ensure_key
from claudeops.store.store import Store
from support.commanding import Shell, shell_in
from support.store_values import NOW, after, call, started, wanted

pytest_plugins = ("support.store_fixtures",)

LATER = after(days=36_500)


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    shell = shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)
    ensure_key(tmp_path / "state")
    return shell


def question(session: Session, *, hidden: bool, scripts: tuple[CalledScript, ...] = (), text: str = "x") -> NewApproval:
    return NewApproval(
        session=session,
        call=call("toolu_1"),
        call_hash="0123",
        workdir="/work",
        redacted_input=f'{{"command":"sh;token=[redacted] {text}"}}',
        scripts=scripts,
        reason="inline code",
        requested_at=NOW,
        expires_at=LATER,
        hidden=hidden,
    )


def asked(shell: Shell, *, hidden: bool, scripts: tuple[CalledScript, ...] = (), text: str = "x") -> None:
    async def ask(store: Store) -> None:
        await store.approvals.request_approval(
            question(await started(store, wanted(3)), hidden=hidden, scripts=scripts, text=text)
        )

    shell.prepare(ask)


def status(shell: Shell) -> object:
    return shell.database.rows("approvals")[0]["status"]


def listed_document(shell: Shell) -> dict[str, Any]:
    (document,) = cast("list[dict[str, Any]]", shell.ask("list-approvals")["approvals"])
    return document


def test_a_call_that_is_not_shown_whole_takes_no_yes_but_one_that_says_so(shell: Shell) -> None:
    asked(shell, hidden=True)

    code, _, complaint = shell.call("approve", "1")
    assert code == 1
    assert "the call is not shown whole, because parts that look like secrets are hidden" in complaint
    assert "sh;token=[redacted]" in complaint
    document = shell.ask("approve", "1")
    assert (document["handled"], document["exit_code"]) == (False, 1)
    assert "--unseen" in str(document["error"])
    assert status(shell) == ApprovalStatus.PENDING

    code, told, _ = shell.call("approve", "1", "--unseen")
    assert (code, told.startswith("approval 1: approved by ")) == (0, True)
    assert "not whole" in told
    assert "--unseen" not in told
    assert status(shell) == ApprovalStatus.APPROVED


def test_a_no_needs_nothing_to_be_seen(shell: Shell) -> None:
    asked(shell, hidden=True)

    assert shell.call("deny", "1")[0] == 0
    assert status(shell) == ApprovalStatus.DENIED


@pytest.mark.parametrize("hidden", [True, False])
def test_the_list_says_whether_a_call_is_whole(shell: Shell, hidden: bool) -> None:
    asked(shell, hidden=hidden)

    listed = shell.call("list-approvals")[1]
    assert ("  not whole: parts that look like secrets are hidden as [redacted]" in listed) is hidden
    assert ("claudeops approve 1 --unseen" in listed) is hidden
    document = listed_document(shell)
    assert document["hidden"] is hidden


@pytest.mark.parametrize("hidden", [True, False])
def test_no_command_is_suggested_that_cannot_say_yes(shell: Shell, hidden: bool) -> None:
    asked(shell, hidden=hidden)
    shell.database.execute("UPDATE approvals SET passkey = true")
    page = "takes a yes with a passkey alone, on its page: http://localhost:8080/approvals/1\n"
    listed = shell.call("list-approvals")[1]
    assert page in listed
    assert "claudeops approve" not in listed
    shell.set(CLAUDEOPS_PUBLIC_URL="https://ops.example")
    assert "on its page: https://ops.example/approvals/1" in shell.call("list-approvals")[1]
    refused = shell.ask("approve", "1")["error"]
    assert isinstance(refused, dict)
    assert "passkey" in refused["message"]
    assert "--unseen" not in f"{refused['message']} {refused['hint']}"
    assert shell.call("deny", "1")[0] == 0
    assert "passkey" not in shell.call("list-approvals", "--all")[1]


@pytest.mark.parametrize(("mask", "hidden"), [("[redacted]", True), ("x", False)])
def test_a_row_of_an_earlier_version_is_whole_if_nothing_is_masked_in_it(shell: Shell, mask: str, hidden: bool) -> None:
    asked(shell, hidden=False)
    shell.database.execute("UPDATE approvals SET hidden = NULL, input = :input", input=f'{{"command":"sh {mask}"}}')

    assert shell.call("approve", "1")[0] == int(hidden)


def test_the_list_says_what_a_script_lacks(shell: Shell) -> None:
    scripts = (
        CalledScript(path="/work/a.sh", sha256="ab", text="a;token=[redacted]", hidden=True),
        CalledScript(path="/work/b.sh", sha256="ab", text="long", cut=True),
        CalledScript(path="/work/c.sh", sha256="ab", text="whole"),
    )
    asked(shell, hidden=False, scripts=scripts)

    listed = shell.call("list-approvals")[1]
    assert listed.count("not whole: ") == 2
    assert "hidden as [redacted], and what is hidden runs too; read /work/a.sh itself" in listed
    assert "the script goes on after this; read /work/b.sh itself" in listed
    assert shell.call("approve", "1")[0] == 0  # the whole script is a file that the operator can read


def test_the_list_shows_every_sign_and_no_name_as_a_field(shell: Shell) -> None:
    path = "/work/a\nscript /work/b.sh (sha256 cd):"
    asked(shell, hidden=False, scripts=(CalledScript(path=path, sha256="ab"),), text="\u3164\u00a0\U000e0100")

    listed = shell.call("list-approvals")[1]
    assert r"x\u3164\u00a0\U000e0100" in f"x{listed.partition('[redacted] ')[2]}"
    assert sum(line.startswith("  script ") for line in listed.splitlines()) == 1
    document = listed_document(shell)
    assert r"\u3164\u00a0\U000e0100" in document["input"]["command"]
