"""``claudeops copy-database`` takes its addresses from the environment alone, and says what came of the copy."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from claudeops.cli.text import screen
from support.commanding import Shell, shell_in
from support.lived_in import something_of_everything
from support.stores import POSTGRES, Database

pytest_plugins = ("support.store_fixtures",)

TARGET: Final = "CLAUDEOPS_TARGET_DATABASE_URL"
ADDRESS: Final = "postgresql://ada:hunter22@db.example/ops"


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)


@pytest.fixture
def ready(shell: Shell, copy_target: Database) -> Shell:
    """Return the shell of an operator who has a history and names an empty database."""
    shell.prepare(something_of_everything)
    shell.set(CLAUDEOPS_TARGET_DATABASE_URL=copy_target.url)
    return shell


@pytest.mark.parametrize("arguments", [(ADDRESS,), ("copy.db", ADDRESS), ("--restart", ADDRESS)])
@pytest.mark.parametrize("form", ["text", "json"])
def test_address_as_an_argument_is_refused_and_not_repeated(shell: Shell, arguments: Sequence[str], form: str) -> None:
    code, written, complaint = shell.call("copy-database", *arguments, "--output-format", form)

    assert code == (64 if form == "text" else 1)
    assert f"every user of the machine sees the arguments of a command: set {TARGET}" in written + complaint
    assert "hunter22" not in written + complaint


def test_target_that_is_not_named_is_asked_for(shell: Shell) -> None:
    code, _, complaint = shell.call("copy-database")

    assert code == 78
    assert complaint.startswith(
        f"claudeops: {TARGET} is not set: set it to the address of an empty PostgreSQL database"
    )


def test_target_that_is_no_address_is_named_by_its_variable_and_not_shown(shell: Shell) -> None:
    shell.set(CLAUDEOPS_TARGET_DATABASE_URL="mysql://ada:hunter22@db/ops")

    code, _, complaint = shell.call("copy-database")

    assert code == 78
    assert complaint.startswith(f"claudeops: {TARGET} is not a URL of SQLite or PostgreSQL (not shown")
    assert "hunter22" not in complaint


@POSTGRES[0]
@POSTGRES[1]
def test_copy_says_what_it_has_copied_and_what_comes_next(ready: Shell, copy_target: Database) -> None:
    code, written, complaint = ready.call("copy-database")

    assert (code, complaint) == (0, "")
    copied, trail, following = written.splitlines()
    assert copied.startswith("copied and compared ")
    assert copied.endswith(f"from {ready.database.file} to postgresql://claudeops@/{copy_target.url.split('/')[3][:6]}")
    assert trail.startswith("the audit trail is as it was written: 6 sessions, 1 tool calls, 0 tombstones")
    assert following.startswith("next: set CLAUDEOPS_DATABASE_URL to the address in CLAUDEOPS_TARGET_DATABASE_URL")


@POSTGRES[0]
@POSTGRES[1]
def test_address_in_a_file_serves_as_well(ready: Shell, copy_target: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ready.root / "target"
    file.write_text(f"{copy_target.url}\n", encoding="utf-8")
    monkeypatch.delenv(TARGET)
    ready.set(CLAUDEOPS_TARGET_DATABASE_URL_FILE=str(file))

    document = ready.ask("copy-database")

    assert document["verified"] is True
    ready.set(CLAUDEOPS_DATABASE_URL=copy_target.url)
    assert ready.ask("audit", "verify")["verified"] is True


@POSTGRES[0]
@POSTGRES[1]
def test_difference_is_an_exit_status_a_sentence_and_a_document(
    ready: Shell, copy_target: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        """A terminal on which every line is due; what changes the target when the comparing begins."""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            if "compared: " in text:
                copy_target.execute("UPDATE events SET message = 'x'")
            return super().write(text)

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(screen, "PATIENCE_SECONDS", -1.0)

    document = ready.ask("copy-database")

    assert (document["exit_code"], document["verified"]) == (1, False)
    assert "read: sessions, 6 rows …" in terminal.getvalue()
    assert "copied: sessions, 6 of 6 rows …" in terminal.getvalue()
    differences = document["differences"]
    assert isinstance(differences, list)
    assert differences[0]["table"] == "events"
    assert document["differ"] == len(differences)

    monkeypatch.undo()
