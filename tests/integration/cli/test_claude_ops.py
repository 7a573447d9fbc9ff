"""Coming from Claude Ops: its file beside ours, its database taken over, its set-up read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claudeops.cli.command_line import call
from claudeops.errors import ConfigurationError
from claudeops.store.locks import claim_database
from claudeops.store.migrate import migrate
from support.claude_ops import old_database
from support.stores import MIGRATIONS


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state directory that nothing has run in."""
    directory = tmp_path / "state"
    directory.mkdir()
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    code = call([*arguments, "--output-format", "json"])
    loaded = json.loads(capsys.readouterr().out)
    assert isinstance(loaded, dict)
    assert loaded["exit_code"] == code
    return loaded


def test_a_first_start_beside_its_file_says_exactly_what_to_do_and_changes_nothing(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = old_database(state / "claudeops.db")
    before = file.read_bytes()

    with pytest.raises(ConfigurationError) as refused:
        migrate(f"sqlite:///{file}", migrations_dir=MIGRATIONS, backup_dir=tmp_path)
    assert call(["memories", "list"]) == 78

    aside = state / "claude-ops.db"
    for says in (str(refused.value), capsys.readouterr().err):
        assert f"mv {file} {aside}" in says
        assert f"claudeops migrate-from {aside}" in says
    assert file.read_bytes() == before
    file.rename(aside)
    assert call(["migrate-from", str(aside)]) == 0  # as the sentence says


@pytest.mark.usefixtures("state")
def test_it_says_what_it_took_and_what_it_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = old_database(tmp_path / "old.db")
    assert call(["migrate-from", str(old)]) == 0
    text = capsys.readouterr().out
    assert "  5 sessions\n" in text
    assert "  1 memories that read like an order" in text
    assert call(["migrate-from", str(old)]) == 0
    assert "was taken over already, on " in capsys.readouterr().out


@pytest.mark.usefixtures("state")
def test_it_is_one_document_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = old_database(tmp_path / "old.db")
    first, second = (document(capsys, "migrate-from", str(old)) for _ in range(2))
    assert "error" not in first, first
    assert (first["handled"], first["done_at"], first["taken"]) == (
        True,
        None,
        {"sessions": 5, "events": 2, "memories": 2, "cooldown_actions": 1, "service_checks": 2},
    )
    left = first["left"]
    assert isinstance(left, list)
    assert sum(one["count"] for one in left) == 8
    assert (second["handled"], second["taken"], second["left"]) == (False, {}, [])


def test_a_daemon_is_not_disturbed(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = old_database(tmp_path / "old.db")
    with claim_database(f"sqlite:///{state / 'claudeops.db'}", state):
        refused = document(capsys, "migrate-from", str(old))
    assert (refused["exit_code"], refused["sysexit"]) == (1, 75)


@pytest.mark.usefixtures("state")
def test_a_path_that_is_wrong_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = document(capsys, "migrate-from", str(tmp_path / "no.db"))
    error = refused["error"]
    assert isinstance(error, dict)
    assert (refused["sysexit"], error["kind"], error["operation"]) == (78, "filesystem", "migrate_from")
    assert list((tmp_path / "state").iterdir()) == []


def test_an_old_set_up_is_answered_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / ".env"
    file.write_text("CLAUDEOPS_INTERVAL=900\nCLAUDEOPS_VERBOSE=true\nCLAUDEOPS_PR_ENABLED=1\n", encoding="utf-8")
    assert call(["doctor", "--from-claude-ops", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["1", "stays", "CLAUDEOPS_INTERVAL"]
    assert "now CLAUDEOPS_LOG_LEVEL" in lines[1]
    assert lines[-1] == "1 stays, 1 renamed, 1 gone. 2 lines are to be changed."

    told = document(capsys, "doctor", "--from-claude-ops", str(file))
    assert told["counts"] == {"stays": 1, "renamed": 1, "gone": 1, "note": 0, "strange": 0}
    missing = document(capsys, "doctor", "--from-claude-ops", str(tmp_path / "none"))
    assert (missing["exit_code"], missing["sysexit"]) == (1, 66)
