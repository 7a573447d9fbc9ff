"""A command in the wrong directory invites nobody to a second installation; somebody else's database is not touched."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from claudeops.cli.command_line import call
from claudeops.errors import ConfigurationError
from claudeops.store.connection.engines import parse_url
from claudeops.store.locks import check_database, is_claimed
from claudeops.store.migrate import migrate
from claudeops.store.store import open_store
from support.stores import MIGRATIONS


@pytest.mark.parametrize(
    "arguments",
    [
        "list-approvals",
        "approve 1",
        "deny 1",
        "memories list",
        "memories forget 1",
        "pause",
        "resume",
        "tail",
        "tail 1",
        "audit verify",
        "backup copy.db",
        "health",
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_in_the_wrong_directory_it_is_said_where_the_state_was_looked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    form: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    code = call([*arguments.split(), "--output-format", form])

    told = capsys.readouterr()
    assert code in ((78, 1) if form == "text" else (1,))
    assert str(tmp_path / ".claudeops" / "state") in told.out + told.err
    assert "CLAUDEOPS_STATE_DIR" in told.out + told.err
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - hidden ones too


def probed(url: str, directory: Path) -> None:
    check_database(url, directory)


def opened(url: str, _: Path) -> None:
    open_store(url)


def migrated(url: str, directory: Path) -> None:
    migrate(url, migrations_dir=MIGRATIONS, backup_dir=directory)


@pytest.mark.parametrize("use", [probed, opened, migrated])
@pytest.mark.parametrize("table", ["sessions", "bookmarks"])
def test_somebody_elses_database_is_refused_and_not_a_byte_of_it_changes(
    tmp_path: Path, use: Callable[[str, Path], None], table: str
) -> None:
    file = tmp_path / "places.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)")
    before = file.read_bytes()

    with pytest.raises(ConfigurationError, match=rf"somebody else's tables \({table}\)"):
        use(f"sqlite:///{file}", tmp_path)

    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["places.db"]


def test_a_look_at_an_empty_file_leaves_it_empty(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()

    assert check_database(f"sqlite:///{file}", tmp_path).revision is None
    assert not is_claimed(f"sqlite:///{file}")

    assert file.stat().st_size == 0


def test_the_writer_finds_and_leaves_its_own_file_in_wal_mode(tmp_path: Path) -> None:
    file = tmp_path / "claudeops.db"
    migrate(f"sqlite:///{file}", migrations_dir=MIGRATIONS, backup_dir=tmp_path)

    with closing(sqlite3.connect(str(parse_url(f"sqlite:///{file}").database))) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
