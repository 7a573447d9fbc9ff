"""The tables of the jobs are made and brought up to date by us, and are never taken from another program."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest

from claudeops.dispatch.procrastinate import job_tables
from claudeops.errors import ConfigurationError, NewerDatabaseError, StoreError
from claudeops.store.connection.engines import parse_url
from claudeops.store.connection.job_tables import migrate_jobs
from claudeops.store.migrate import current_revision
from claudeops.store.tables import JOBS_MARK
from claudeops.structs import replace
from support.postgres import Server
from support.stores import POSTGRES
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)

pytestmark = list(POSTGRES)

TABLES: Final = job_tables()
COMMENT: Final = "SELECT obj_description('procrastinate_jobs'::regclass, 'pg_class')"

CATALOG: Final = (
    "SELECT (table_name, column_name, data_type) FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT enumtypid::regtype || '.' || enumlabel FROM pg_enum",
)


@pytest.fixture
def name(postgres: Server) -> str:
    return postgres.create()


@pytest.fixture
def plain(postgres: Server, name: str) -> Iterator[psycopg.Connection]:
    with postgres.connect(name) as connection:
        yield connection


def catalog(connection: psycopg.Connection) -> Sequence[Sequence[str]]:
    return [sorted(str(row[0]) for row in connection.execute(query)) for query in CATALOG]


def comment(connection: psycopg.Connection) -> str | None:
    row = connection.execute(COMMENT).fetchone()
    return None if row is None else row[0]


def test_the_tables_are_made_once_and_say_whose_they_are(
    postgres: Server, name: str, plain: psycopg.Connection
) -> None:
    url = parse_url(postgres.url(name))

    assert migrate_jobs(url, TABLES) == (None, TABLES.version)
    made = catalog(plain)

    assert comment(plain) == f"{JOBS_MARK}{TABLES.version}"
    assert migrate_jobs(url, TABLES) == (TABLES.version, TABLES.version)
    assert catalog(plain) == made
    assert current_revision(url) is None  # they are not in the way of our own tables


@pytest.mark.parametrize("version", ["02.06.00_01_add_cancel_states", "03.03.00_01_pre_priority_lock_fetch_job"])
def test_older_tables_become_what_new_ones_are(
    postgres: Server, name: str, plain: psycopg.Connection, version: str
) -> None:
    new = postgres.create()
    migrate_jobs(parse_url(postgres.url(new)), TABLES)
    for script in sorted(TABLES.scripts):
        if script <= version:
            plain.execute(TABLES.scripts[script].encode())
    plain.execute(f"COMMENT ON TABLE procrastinate_jobs IS '{JOBS_MARK}{version}'".encode())

    assert migrate_jobs(parse_url(postgres.url(name)), TABLES) == (version, TABLES.version)

    with postgres.connect(new) as connection:
        assert catalog(plain) == catalog(connection)
    assert comment(plain) == f"{JOBS_MARK}{TABLES.version}"


def test_two_that_start_at_once_make_the_tables_once(postgres: Server, name: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(partial(migrate_jobs, tables=TABLES), [parse_url(postgres.url(name))] * 2))

    assert sorted(found, key=str) == [(TABLES.version, TABLES.version), (None, TABLES.version)]


def test_a_script_that_fails_changes_nothing(postgres: Server, name: str, plain: psycopg.Connection) -> None:
    url = parse_url(postgres.url(name))
    migrate_jobs(url, TABLES)
    made = catalog(plain)
    scripts = {"98": "CREATE TABLE procrastinate_more (id int)", "99": "SELECT 1/0"}

    with pytest.raises(StoreError, match="division by zero"):
        migrate_jobs(url, replace(TABLES, version="99", scripts=scripts))

    assert (catalog(plain), comment(plain)) == (made, f"{JOBS_MARK}{TABLES.version}")


def test_tables_that_are_newer_than_the_library_are_named_and_left_alone(
    postgres: Server, name: str, plain: psycopg.Connection
) -> None:
    url = parse_url(postgres.url(name))
    migrate_jobs(url, TABLES)

    with pytest.raises(NewerDatabaseError) as caught:
        migrate_jobs(url, replace(TABLES, version="03.00.00"))

    assert f"in version {TABLES.version}, and the library that is installed here knows only up to 03.00.00" in str(
        caught.value
    )
    assert comment(plain) == f"{JOBS_MARK}{TABLES.version}"


@pytest.mark.parametrize("says", [b"NULL", b"'jobs of the shop'"])
def test_tables_of_another_program_are_left_alone(
    postgres: Server, name: str, plain: psycopg.Connection, says: bytes
) -> None:
    plain.execute(TABLES.whole.encode())
    plain.execute(b"COMMENT ON TABLE procrastinate_jobs IS " + says)
    before = comment(plain)

    with pytest.raises(ConfigurationError, match="holds the tables of Procrastinate for another program"):
        migrate_jobs(parse_url(postgres.url(name)), TABLES)

    assert comment(plain) == before


def test_a_dump_takes_the_tables_along_with_their_version(postgres: Server, name: str, tmp_path: Path) -> None:
    migrate_jobs(parse_url(postgres.url(name)), TABLES)
    dump, restored = tmp_path / "claudeops.dump", postgres.url(postgres.create())
    dumping = ("pg_dump", "--format", "custom", "--file", str(dump), postgres.url(name))
    restoring = ("pg_restore", "--exit-on-error", "--single-transaction", "--no-owner", "--dbname", restored, str(dump))

    for program, *arguments in (dumping, restoring):
        subprocess.run([postgres.binaries / program, *arguments], check=True, timeout=PATIENCE_SECONDS)

    assert migrate_jobs(parse_url(restored), TABLES) == (TABLES.version, TABLES.version)
