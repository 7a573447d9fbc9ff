"""A place that this user may not look into, and a file that is no database, are no bugs of ours: 78 and a sentence."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from claudeops.cli.command_line import call
from claudeops.cli.reply import exit_for
from claudeops.errors import ConfigurationError, StoreError
from claudeops.files import is_directory, is_file, is_there
from claudeops.store.connection.engines import parse_url
from claudeops.store.locks import check_database
from claudeops.store.migrate import back_up_to, current_revision, migrate
from support.stores import MIGRATIONS

ASKED = (
    *("list-approvals", "approve 1", "deny 1", "stop 1", "pause", "resume", "memories list", "list-incidents"),
    *(
        "incident 1",
        "ack 1",
        "resolve 1",
        "silence service=x",
        "end-silence 1",
        "list-silences",
        "chain 1",
        "diff-chains 1 2",
    ),
    *(
        "list-events",
        "list-checks",
        "list-actions",
        "spend",
        "stats",
        "audit verify",
        "list-sessions",
        "load-session 1",
    ),
    *("delete-session 1", "flush-transcript 1", "replay 1", "backup copy.db", "token list", "token revoke 1", "tail 1"),
    *("exec-command tier1 x --no-wait", "ping x", "token create --name a --scope read", "login-link"),
    *("user add a --role viewer", "user list", "user set a --role viewer", "user remove a"),
)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up everything an operator has but a database; return where that would be."""
    (tmp_path / "repos" / "web").mkdir(parents=True)
    (tmp_path / "repos" / "web" / "CLAUDE-OPS.md").write_text("# web\n", encoding="utf-8")
    monkeypatch.setenv("CLAUDEOPS_REPOS_DIR", str(tmp_path / "repos"))
    monkeypatch.setenv("CLAUDEOPS_RESULTS_DIR", str(tmp_path / "results"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-none")
    state = tmp_path / "elsewhere"
    state.mkdir()
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(state))
    monkeypatch.chdir(tmp_path)
    return state


def text(file: Path) -> None:
    file.write_text("notes of a meeting, which are longer than the header of a database is.\n" * 9, encoding="utf-8")


def noise(file: Path) -> None:
    file.write_bytes(bytes(range(256)) * 40)


def damaged(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0001')")
        connection.commit()
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))


def directory(file: Path) -> None:
    file.mkdir()


NONE = (text, noise, damaged, directory)


@pytest.mark.parametrize("make", NONE)
def test_every_way_to_a_file_that_is_no_database_says_so(tmp_path: Path, make: Callable[[Path], None]) -> None:
    file = tmp_path / "claudeops.db"
    make(file)
    url = parse_url(f"sqlite:///{file}")
    ways: list[Callable[[], object]] = [
        lambda: current_revision(url),
        lambda: migrate(str(url), migrations_dir=MIGRATIONS, backup_dir=tmp_path),
        lambda: check_database(str(url), tmp_path),
        lambda: back_up_to(url, tmp_path / "copy.db"),
    ]
    for way in ways:
        with pytest.raises(StoreError) as told:
            way()
        assert exit_for(told.value) == 78
        assert str(file) in str(told.value)


@pytest.mark.parametrize("asked", ["list-sessions", "ack 1", "token list", "backup copy.db", "tail 1"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_no_command_calls_it_a_bug(state: Path, asked: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    text(state / "claudeops.db")
    code = call([*asked.split(), "-o", form])

    told = capsys.readouterr()
    assert "This is a bug" not in told.out + told.err
    assert code == (78 if form == "text" else 1)
    if form == "json":
        assert json.loads(told.out)["sysexit"] == 78


@pytest.mark.parametrize("asked", ASKED)
def test_a_place_that_cannot_be_looked_at_is_named(
    state: Path, asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    too_long = state / ("x" * 300)  # refused for root as well, unlike a directory of another user
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(too_long))
    code = call([*asked.split(), "-o", "json"])

    document = json.loads(capsys.readouterr().out)
    assert (code, document["sysexit"]) == (1, 78), document
    assert str(too_long) in document["error"]["message"]
    assert "correct" in document["error"]["message"] or "set" in document["error"]["message"]


def test_what_may_not_be_looked_at_is_neither_there_nor_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert [is_there(tmp_path / name) for name in ("file", "nothing", "file/x", ".")] == [True, False, False, True]
    assert [is_file(tmp_path / name) for name in ("file", "nothing", ".")] == [True, False, False]
    assert [is_directory(tmp_path / name) for name in ("file", "nothing", ".")] == [False, False, True]

    def refuse(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    for asked in (is_there, is_file, is_directory):
        with pytest.raises(
            ConfigurationError, match=rf"{tmp_path}/file \(Permission denied\): call this as the daemon"
        ):
            asked(tmp_path / "file")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_file_that_nobody_thought_of_is_no_bug_either(
    state: Path, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "open", refuse)
    recorded = state / "bodies.jsonl"
    recorded.touch()
    call(["alerts", "replay", str(recorded), "-o", form])
    told = capsys.readouterr()
    assert "Permission denied" in told.out + told.err
    assert "This is a bug" not in told.out + told.err
