"""``claudeops migrate`` brings a database to this release, or says what there is to do; it never goes back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from alembic import command

from claudeops.dispatch.procrastinate import job_tables
from claudeops.store.connection.engines import parse_url
from claudeops.store.connection.job_tables import jobs_version, migrate_jobs
from claudeops.store.locks import claim_database
from claudeops.store.migrate import current_revision, run
from claudeops.store.tables import HEAD
from claudeops.structs import replace
from support.commanding import Shell, shell_in
from support.postgres import Server
from support.stores import MIGRATIONS, POSTGRES

pytest_plugins = ("support.store_fixtures",)

BEFORE: Final = f"{int(HEAD) - 1:04}"
JOBS: Final = job_tables()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return shell_in(tmp_path, None, monkeypatch, capsys)


@pytest.fixture
def fleet(shell: Shell, postgres: Server) -> str:
    """Have the shell's database be one of PostgreSQL that daemons share, of the release before; return its address."""
    url = postgres.url(postgres.create())
    shell.set(CLAUDEOPS_DATABASE_URL=url, CLAUDEOPS_DISPATCHER="procrastinate")
    age(url)
    return url


def age(url: str) -> None:
    """Make an empty database one of the release before."""
    run(parse_url(url), MIGRATIONS, lambda config: command.upgrade(config, BEFORE))


def revision(url: str) -> str | None:
    return current_revision(parse_url(url))


def test_an_older_database_is_copied_and_migrated_once(shell: Shell) -> None:
    age(shell.database.url)

    code, written, complaint = shell.call("migrate")

    (backup,) = (shell.root / "state").glob("claudeops.db.backup-*")
    assert (code, complaint) == (0, "")
    assert written.splitlines() == [
        f"{shell.database.file} migrated from revision {BEFORE} to revision {HEAD}",
        f"backup of what it was before: {backup}",
    ]
    assert revision(shell.database.url) == HEAD
    assert revision(f"sqlite:///{backup}") == BEFORE
    again = shell.ask("migrate")
    assert (again["handled"], again["due"], again["from_revision"], again["backup_path"]) == (False, False, HEAD, None)
    assert shell.call("migrate")[1].endswith("that of this claudeops: nothing to do\n")


def test_a_check_changes_nothing_and_says_by_its_status_what_there_is_to_do(shell: Shell) -> None:
    empty = shell.ask("migrate", "--check")
    assert (empty["exit_code"], empty["from_revision"]) == (1, None)
    assert not shell.database.file.exists()
    age(shell.database.url)

    document = shell.ask("migrate", "--check")
    code, written, _ = shell.call("migrate", "--check")

    assert (document["due"], document["handled"]) == (True, False)
    assert (document["from_revision"], document["to_revision"]) == (BEFORE, HEAD)
    assert (code, written) == (
        1,
        f"{shell.database.file} is to be migrated from revision {BEFORE} to revision {HEAD}\n",
    )
    assert revision(shell.database.url) == BEFORE
    assert not [*(shell.root / "state").glob("*backup*")]
    assert shell.ask("migrate")["handled"] is True
    assert shell.ask("migrate", "--check")["exit_code"] == 0


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_newer_database_is_refused_by_the_sentence_of_the_start(shell: Shell, arguments: tuple[str, ...]) -> None:
    age(shell.database.url)
    shell.database.execute("UPDATE alembic_version SET version_num = '9999'")

    code, _, complaint = shell.call("migrate", *arguments)

    assert code == 78
    assert f"is at revision 9999, and this claudeops knows only up to {HEAD}: run the newer claudeops" in complaint


def test_a_file_is_not_migrated_below_its_daemon(shell: Shell) -> None:
    age(shell.database.url)

    with claim_database(shell.database.url, shell.root / "state"):
        code, _, complaint = shell.call("migrate")
        checked = shell.ask("migrate", "--check")

    assert code == 75
    assert "another claudeops daemon" in complaint
    assert revision(shell.database.url) == BEFORE
    assert checked["due"] is True


def test_a_file_that_daemons_are_to_share_is_refused_as_at_a_start(shell: Shell) -> None:
    shell.set(CLAUDEOPS_DISPATCHER="procrastinate")

    code, _, complaint = shell.call("migrate")

    assert code == 78
    assert "a SQLite file, which belongs to one: set a postgresql:// address there" in complaint


@POSTGRES[0]
@POSTGRES[1]
def test_a_shared_database_and_its_jobs_are_migrated_beside_daemons(shell: Shell, fleet: str) -> None:
    with claim_database(fleet, shell.root / "state", shared=True):
        checked = shell.ask("migrate", "--check")
        done = shell.ask("migrate")

    jobs = {"from_version": None, "to_version": JOBS.version}
    assert (checked["due"], checked["jobs"]) == (True, jobs)
    assert (done["handled"], done["from_revision"], done["to_revision"]) == (True, BEFORE, HEAD)
    assert done["jobs"] == jobs
    assert (revision(fleet), jobs_version(parse_url(fleet), JOBS)) == (HEAD, JOBS.version)
    assert shell.ask("migrate", "--check")["due"] is False


@POSTGRES[0]
@POSTGRES[1]
def test_jobs_alone_are_something_to_do(shell: Shell, fleet: str) -> None:
    shell.set(CLAUDEOPS_DISPATCHER="local")
    assert shell.ask("migrate")["jobs"] is None
    assert jobs_version(parse_url(fleet), JOBS) is None
    shell.set(CLAUDEOPS_DISPATCHER="procrastinate")

    code, written, _ = shell.call("migrate")

    assert code == 0
    assert written.endswith(f" migrated: tables of Procrastinate, from none to version {JOBS.version}\n")
    assert "revision" not in written


@POSTGRES[0]
@POSTGRES[1]
def test_who_forgets_that_daemons_share_the_database_is_reminded(shell: Shell, fleet: str) -> None:
    shell.set(CLAUDEOPS_DISPATCHER="local")

    with claim_database(fleet, shell.root / "state", shared=True):
        code, _, complaint = shell.call("migrate")

    assert code == 75
    assert "set CLAUDEOPS_DISPATCHER=procrastinate here too, or stop all of them first" in complaint
    assert revision(fleet) == BEFORE


@POSTGRES[0]
@POSTGRES[1]
def test_jobs_of_a_newer_library_are_found_before_anything_is_changed(
    shell: Shell, fleet: str, postgres: Server
) -> None:
    migrate_jobs(parse_url(fleet), JOBS)
    with closing(postgres.connect(str(parse_url(fleet).database))) as connection:
        newer = replace(JOBS, version="99.00")
        connection.execute(f"COMMENT ON TABLE procrastinate_jobs IS 'claudeops, version {newer.version}'".encode())

    code, _, complaint = shell.call("migrate")

    assert code == 78
    assert "has the tables of Procrastinate in version 99.00" in complaint
    assert revision(fleet) == BEFORE
