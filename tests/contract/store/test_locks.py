"""One daemon per database and per state directory, and a question that is in nobody's way."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from claudeops.errors import AlreadyRunningError, DatabaseUnavailableError
from claudeops.store.locks import claim_database, claim_watch, hold_database, is_claimed
from support.stores import Database
from support.waiting import wait_until

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

HOLD = """
import sys, pathlib
from claudeops.store.locks import claim_database
with claim_database(sys.argv[1], pathlib.Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def state(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        return directory

    return make


def test_second_daemon_on_one_database_is_refused_with_the_firsts_pid(
    database: Database, state: Callable[[str], Path]
) -> None:
    with claim_database(database.url, state("one")):
        assert is_claimed(database.url)
        with pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"), claim_database(database.url, state("two")):
            pytest.fail("two daemons on one database")

    assert not is_claimed(database.url)
    with claim_database(database.url, state("two")):
        assert is_claimed(database.url)


def test_refusal_names_the_lock_and_the_remedy(sqlite: Database, state: Callable[[str], Path]) -> None:
    with (
        claim_database(sqlite.url, state("one")),
        pytest.raises(AlreadyRunningError) as caught,
        claim_database(sqlite.url, state("two")),
    ):
        pytest.fail("two daemons on one database")

    assert f"{sqlite.file}.lock" in str(caught.value)
    assert "CLAUDEOPS_DATABASE_URL" in str(caught.value)


def test_file_reached_by_two_names_is_one_database(
    sqlite: Database, tmp_path: Path, state: Callable[[str], Path]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "ops.db"
    link.symlink_to(sqlite.file)

    with claim_database(sqlite.url, state("one")):
        assert is_claimed(f"sqlite:///{link}")
        with pytest.raises(AlreadyRunningError), claim_database(f"sqlite:///{link}", state("two")):
            pytest.fail("two daemons on one database")


def test_two_daemons_cannot_share_a_state_directory(tmp_path: Path, state: Callable[[str], Path]) -> None:
    with (
        claim_database(f"sqlite:///{tmp_path}/a.db", state("one")),
        pytest.raises(AlreadyRunningError, match=r"daemon\.lock"),
        claim_database(f"sqlite:///{tmp_path}/b.db", state("one")),
    ):
        pytest.fail("two daemons in one state directory")


def test_refused_daemon_lets_go_of_what_it_had_already_taken(sqlite: Database, state: Callable[[str], Path]) -> None:
    with claim_database(sqlite.url, state("one")):
        with pytest.raises(AlreadyRunningError), claim_database(sqlite.url, state("two")):
            pytest.fail("two daemons on one database")
        with claim_database(f"sqlite:///{state('two')}/own.db", state("two")):
            pass


def test_lock_of_a_killed_daemon_is_free(database: Database, state: Callable[[str], Path]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, database.url, str(state("one"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunningError, match=f"pid {holder.pid}"), claim_database(database.url, state("two")):
            pytest.fail("two daemons on one database")
        holder.kill()

    if database.url.startswith("postgresql"):
        _wait_for_the_server_to_notice(database)
    with claim_database(database.url, state("one")):
        assert is_claimed(database.url)


def _wait_for_the_server_to_notice(database: Database) -> None:
    """Wait on the lock itself: the server ends a connection a moment after its client is gone."""
    with database.connect() as connection:
        connection.exec_driver_sql("SET lock_timeout = '240s'")
        connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": 0x636C6F64})


def test_asking_does_not_take_the_lock_file_into_being(sqlite: Database) -> None:
    assert not is_claimed(sqlite.url)
    assert not is_claimed(sqlite.url + ".other")
    assert [path.name for path in sqlite.file.parent.iterdir()] == [sqlite.file.name]


def test_daemon_that_starts_while_somebody_asks_is_not_refused(sqlite: Database, state: Callable[[str], Path]) -> None:
    lock = sqlite.file.with_name(sqlite.file.name + ".lock")
    asking = os.open(lock, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(asking, fcntl.LOCK_SH)
    pauses = list[float]()

    def pause(seconds: float) -> None:
        if not pauses:
            os.close(asking)  # whoever asked has its answer
        pauses.append(seconds)

    with claim_database(sqlite.url, state("one"), pause=pause):
        assert is_claimed(sqlite.url)

    assert len(pauses) == 1


def test_lock_file_that_cannot_be_opened_is_said_in_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(DatabaseUnavailableError, match=r"the lock file .* cannot be opened"),
        claim_database(f"sqlite:///{tmp_path}/ops.db", tmp_path / "not there"),
    ):
        pytest.fail("no such directory")


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_who_asks_again_and_again_opens_one_connection(postgresql: Database, state: Callable[[str], Path]) -> None:
    opened = sa.text("SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
    with postgresql.connect() as counting, claim_watch(postgresql.url) as claimed:
        counting.execute(sa.text("SELECT pg_stat_force_next_flush()"))
        before = counting.scalar(opened)
        counting.commit()
        assert [claimed() for _ in range(20)] == [False] * 20
        with claim_database(postgresql.url, state("one")):  # a connection of its own
            assert [claimed() for _ in range(20)] == [True] * 20
        wait_until(lambda: not claimed())  # the server lets go when it sees the connection closed
        counting.execute(sa.text("SELECT pg_stat_force_next_flush()"))
        after = counting.scalar(opened)
    assert after - before <= 2


def drop_daemons_connection(database: Database) -> None:
    """End the connection that holds the lock, as a server that is restarted does."""
    with database.connect() as connection:
        named = "application_name LIKE 'claudeops daemon%'"
        connection.execute(sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {named}"))  # noqa: S608 - our own text
        connection.commit()


def until_unclaimed(url: str) -> None:
    wait_until(lambda: not is_claimed(url))


def test_a_file_lock_needs_no_looking_after(sqlite: Database, state: Callable[[str], Path]) -> None:
    with claim_database(sqlite.url, state("one")) as check:
        check()
        assert is_claimed(sqlite.url)


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_a_lock_whose_connection_was_dropped_is_taken_again(postgresql: Database, state: Callable[[str], Path]) -> None:
    with claim_database(postgresql.url, state("one")) as check:
        check()
        drop_daemons_connection(postgresql)
        until_unclaimed(postgresql.url)
        check()
        assert is_claimed(postgresql.url)
    assert not is_claimed(postgresql.url)


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_a_lock_that_another_daemon_took_meanwhile_is_told(postgresql: Database, state: Callable[[str], Path]) -> None:
    with claim_database(postgresql.url, state("one")) as check:
        drop_daemons_connection(postgresql)
        until_unclaimed(postgresql.url)
        with (
            claim_database(postgresql.url, state("two")),
            pytest.raises(AlreadyRunningError, match="another claudeops daemon"),
        ):
            check()


FLEET = "CLAUDEOPS_DISPATCHER=procrastinate"


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_daemons_that_share_a_database_all_have_it_until_the_last_one_goes(
    postgresql: Database, state: Callable[[str], Path]
) -> None:
    with claim_database(postgresql.url, state("one"), shared=True) as one:
        with claim_database(postgresql.url, state("two"), shared=True) as two:
            one()
            two()
            assert is_claimed(postgresql.url)
        one()
        assert is_claimed(postgresql.url)
    until_unclaimed(postgresql.url)


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_a_daemon_alone_is_refused_beside_sharing_ones_and_the_setting_is_named(
    postgresql: Database, state: Callable[[str], Path]
) -> None:
    with (
        claim_database(postgresql.url, state("one"), shared=True),
        pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}.* share .*: set {FLEET} here too"),
        claim_database(postgresql.url, state("two")),
    ):
        pytest.fail("a daemon that takes the others for dead")


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_a_sharing_daemon_is_refused_beside_one_alone_and_the_setting_is_named(
    postgresql: Database, state: Callable[[str], Path]
) -> None:
    with (
        claim_database(postgresql.url, state("one")),
        pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}.* for itself, without {FLEET}: set that for it"),
        claim_database(postgresql.url, state("two"), shared=True),
    ):
        pytest.fail("a daemon that is taken for dead")


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_a_database_is_not_copied_while_a_sharing_daemon_uses_it_nor_used_while_it_is_copied(
    postgresql: Database, state: Callable[[str], Path]
) -> None:
    with claim_database(postgresql.url, state("one"), shared=True):
        with (
            pytest.raises(AlreadyRunningError, match="stop all of them first") as caught,
            hold_database(postgresql.url),
        ):
            pytest.fail("a copy of what changes")
        assert "here too" not in str(caught.value)
    until_unclaimed(postgresql.url)
    with (
        hold_database(postgresql.url),
        pytest.raises(AlreadyRunningError, match=f"claudeops copy, pid {os.getpid()}"),
        claim_database(postgresql.url, state("one"), shared=True),
    ):
        pytest.fail("a daemon beside a copy")


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_a_shared_lock_whose_connection_was_dropped_is_shared_again(
    postgresql: Database, state: Callable[[str], Path]
) -> None:
    with (
        claim_database(postgresql.url, state("one"), shared=True) as one,
        claim_database(postgresql.url, state("two"), shared=True) as two,
    ):
        drop_daemons_connection(postgresql)
        until_unclaimed(postgresql.url)
        one()
        two()
        with pytest.raises(AlreadyRunningError), claim_database(postgresql.url, state("three")):
            pytest.fail("the lock is not held again")


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_a_sharing_daemon_that_was_cut_off_learns_that_one_alone_has_the_database(
    postgresql: Database, state: Callable[[str], Path]
) -> None:
    with claim_database(postgresql.url, state("one"), shared=True) as check:
        drop_daemons_connection(postgresql)
        until_unclaimed(postgresql.url)
        with claim_database(postgresql.url, state("two")), pytest.raises(AlreadyRunningError, match="for itself"):
            check()


def test_a_file_is_one_daemons_also_where_it_would_be_shared(sqlite: Database, state: Callable[[str], Path]) -> None:
    with (
        claim_database(sqlite.url, state("one"), shared=True),
        pytest.raises(AlreadyRunningError),
        claim_database(sqlite.url, state("two"), shared=True),
    ):
        pytest.fail("two daemons on one file")
