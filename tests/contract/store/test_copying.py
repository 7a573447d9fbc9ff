"""A copy in PostgreSQL is the whole SQLite database to the last value, whatever interrupts the way there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from claudeops.domain.sessions import Session
from claudeops.errors import (
    AlreadyRunningError,
    ConfigurationError,
    DatabaseUnavailableError,
    MissingInputError,
    NewerDatabaseError,
)
from claudeops.store.copying.copy import DatabaseCopy, copy_database
from claudeops.store.copying.source import CONVERTERS
from claudeops.store.locks import claim_database
from claudeops.store.migrate import migrate
from claudeops.store.tables import HEAD
from claudeops.store.tables.all_tables import metadata
from claudeops.store.tables.columns import Usd, UsdSum
from support.lived_in import something_of_everything
from support.postgres import Server
from support.store_values import queued
from support.stores import MIGRATIONS, POSTGRES, Database, opened
from support.whole_rows import fill_tables

pytest_plugins = ("support.store_fixtures",)

pytestmark = [*POSTGRES, pytest.mark.dialect]

ROWS: Final = range(1, 4)  # of each table
PAGE: Final = 2
SUCH: Final = sorted(metadata.tables)


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Copier:
    """Copies one database to another in small pages, as often as it is called."""

    source: Database
    target: Database

    def __call__(self, *, progress: Callable[..., None] | None = None, restart: bool = False) -> DatabaseCopy:
        return copy_database(
            self.source.url,
            self.target.url,
            migrations_dir=MIGRATIONS,
            progress=progress or (lambda *_: None),
            restart=restart,
            page=PAGE,
        )

    def killed_at(self, doing: str, page: int) -> None:
        """Die after so many pages of a step."""
        left = page

        def progress(step: str, *_: object) -> None:
            nonlocal left
            left -= step == doing
            if step == doing and left <= 0:
                raise KilledError

        with pytest.raises(KilledError):
            self(progress=progress)


@pytest.fixture
def copier(sqlite: Database, copy_target: Database) -> Copier:
    """Return what copies a database with rows in every table."""
    fill_tables(sqlite, ROWS)
    return Copier(sqlite, copy_target)


def content(database: Database) -> dict[str, Sequence[str]]:
    """Return every row of every table in words; amounts with the decimals that PostgreSQL keeps."""

    def words(row: sa.RowMapping, table: sa.Table) -> str:
        return str([_rounded(row[column.name], column) for column in table.columns])

    with database.connect() as connection:
        return {
            name: sorted(words(row, table) for row in connection.execute(sa.select(table)).mappings())
            for name, table in metadata.tables.items()
        }


def _rounded(value: object, column: sa.Column[object]) -> str:
    if isinstance(column.type, Usd | UsdSum) and value is not None:
        return f"{value:.10f}"
    return repr(value)


def revision(database: Database) -> str:
    with database.connect() as connection:
        found: str = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()
    return found


# --- nothing is lost, nothing is changed ----------------------------------------------------------------


def test_every_table_has_rows_and_every_column_a_form_here(copier: Copier) -> None:
    with copier.source.connect() as connection:
        counts = {
            name: connection.scalar(sa.select(sa.func.count()).select_from(metadata.tables[name])) for name in SUCH
        }
    assert counts == dict.fromkeys(SUCH, len(ROWS))
    types = {type(column.type) for table in metadata.tables.values() for column in table.columns}
    assert types == set(CONVERTERS)


def test_every_value_of_every_table_is_the_same_on_the_other_side(copier: Copier) -> None:
    done = copier()

    assert (done.differ, done.differences) == (0, [])
    assert {table.name: table.rows for table in done.tables} == dict.fromkeys(SUCH, len(ROWS))
    assert content(copier.target) == content(copier.source)
    assert revision(copier.target) == HEAD


def test_text_is_the_same_to_the_byte(copier: Copier) -> None:
    copier()

    query = "SELECT input FROM tool_calls ORDER BY id"
    with copier.source.connect() as one, copier.target.connect() as two:
        texts = one.exec_driver_sql(query).scalars().all()
        assert two.exec_driver_sql(query).scalars().all() == texts
    assert any("\u2028" in text and "\t2]," in text for text in texts)


def test_money_has_the_decimals_of_the_column_and_not_fifteen_digits(copier: Copier) -> None:
    copier.source.execute("UPDATE model_calls SET cost_usd = 1234567890.0000000001, charged_usd = 0.30000000000000004")
    copier()

    with copier.target.connect() as connection:
        found = connection.exec_driver_sql("SELECT cost_usd, charged_usd FROM model_calls WHERE id = 1").one()
    assert tuple(found) == (Decimal("1234567890.0000000000"), Decimal("0.3000000000"))


def test_database_without_a_table_is_made(postgres: Server, sqlite: Database) -> None:
    fill_tables(sqlite, range(1, 2))
    target = Database(postgres.url(postgres.create()))

    done = Copier(sqlite, target)()

    assert done.differ == 0
    assert revision(target) == HEAD
    assert content(target) == content(sqlite)


async def test_audit_chain_of_real_sessions_is_whole_on_the_other_side(sqlite: Database, copy_target: Database) -> None:
    async with opened(sqlite) as store:
        await something_of_everything(store)

    done = Copier(sqlite, copy_target)()

    assert done.audit.verified
    assert done.audit.calls > 0
    async with opened(copy_target) as store:
        assert (await store.audit.verify()).verified


def test_faults_that_the_source_has_keep_nobody_from_moving(copier: Copier) -> None:
    done = copier()  # its calls are no chain

    assert done.audit.faults
    assert done.differ == 0
    assert revision(copier.target) == HEAD


async def test_ids_go_on_behind_the_highest_that_ever_was(sqlite: Database, copy_target: Database) -> None:
    async with opened(sqlite) as store:
        numbers = [(await queued(store)).id for _ in range(3)]
    sqlite.execute("DELETE FROM sessions WHERE id = :number", number=numbers[-1])

    Copier(sqlite, copy_target)()

    async with opened(copy_target) as store:
        following = await queued(store)
    assert isinstance(following, Session)
    assert following.id == numbers[-1] + 1


def test_every_table_that_counts_goes_on_behind_its_last_id(copier: Copier) -> None:
    copier.source.execute("UPDATE sqlite_sequence SET seq = seq + 70")

    copier()

    counting = [name for name, table in metadata.tables.items() if "id" in table.columns]
    with copier.target.connect() as connection:
        given = {name: connection.scalar(sa.text(f"SELECT nextval('{name}_id_seq')")) for name in counting}
    assert given == dict.fromkeys(counting, ROWS[-1] + 70 + 1)


# --- it goes on where it was ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
def test_copy_that_is_killed_after_any_page_goes_on_with_the_next(copier: Copier, step: int) -> None:
    pages = len(SUCH) * -(-len(ROWS) // PAGE)
    for number in range(step, pages + 1, step):
        copier.killed_at("copied", step)
        with copier.target.connect() as connection:
            there = [
                connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in metadata.tables.values()
            ]
        assert len(there) == len(SUCH)
        assert sum(-(-count // PAGE) for count in there if count) == number

    done = copier()

    assert sum(-(-table.before // PAGE) for table in done.tables) == pages - pages % step
    assert done.differ == 0
    assert content(copier.target) == content(copier.source)
    assert revision(copier.target) == HEAD


@pytest.mark.parametrize("page", [1, len(SUCH) * 2])
def test_copy_that_is_killed_while_it_compares_is_no_database_yet(copier: Copier, page: int) -> None:
    copier.killed_at("compared", page)

    with pytest.raises(
        ConfigurationError, match="is a copy that is not finished: call `claudeops copy-database` again"
    ):
        copier.target.open()

    assert copier().differ == 0
    assert revision(copier.target) == HEAD


def test_copy_that_is_killed_before_its_first_page_begins_again(copier: Copier) -> None:
    copier.killed_at("read", 1)

    assert revision(copier.target) == HEAD  # nothing is there that a daemon must not touch
    assert copier().differ == 0


def test_nothing_starts_on_a_copy_that_is_not_finished(copier: Copier, tmp_path: Path) -> None:
    copier.killed_at("copied", 3)

    assert revision(copier.target).startswith(f"copy-{HEAD}-")
    with pytest.raises(ConfigurationError, match="a copy that is not finished"):
        migrate(copier.target.url, migrations_dir=MIGRATIONS, backup_dir=tmp_path)
    with pytest.raises(ConfigurationError, match="a copy that is not finished"):
        copier.target.open()


def test_source_that_has_changed_meanwhile_is_noticed_and_copied_anew_on_demand(copier: Copier) -> None:
    copier.killed_at("copied", 7)
    copier.source.execute("UPDATE events SET message = 'a daemon was here' WHERE id = 2")

    with pytest.raises(
        ConfigurationError, match=r"the source has changed since it was begun .* call this with --restart"
    ):
        copier()
    done = copier(restart=True)

    assert {table.before for table in done.tables} == {0}
    assert done.differ == 0
    assert content(copier.target) == content(copier.source)


def test_copy_that_an_older_version_began_is_begun_anew_on_demand(copier: Copier) -> None:
    copier.killed_at("copied", 7)
    copier.target.execute("UPDATE alembic_version SET version_num = :mark", mark=f"copy-{HEAD}-0123456789abcdef0123")

    with pytest.raises(ConfigurationError, match="an unfinished copy of something else"):
        copier()

    assert copier(restart=True).differ == 0


def test_finished_copy_is_a_database_that_nothing_is_copied_into(copier: Copier) -> None:
    copier()

    for restart in (False, True):
        with pytest.raises(ConfigurationError, match="holds rows already"):
            copier(restart=restart)
    assert content(copier.target) == content(copier.source)


# --- what differs is found ------------------------------------------------------------------------------


def changed_before_comparing(copier: Copier, statement: str) -> DatabaseCopy:
    """Copy, and change the target when it begins to be compared."""
    changed: list[str] = []

    def progress(step: str, *_: object) -> None:
        if step == "compared" and not changed:
            copier.target.execute(statement)
            changed.append(statement)

    done = copier(progress=progress)
    assert changed
    return done


def test_every_row_that_differs_is_named_and_no_daemon_starts(copier: Copier) -> None:
    statements = (
        "UPDATE events SET message = message || ' ' WHERE id = 3",
        "UPDATE model_calls SET cost_usd = cost_usd + 0.0000000001 WHERE id = 3",
        "DELETE FROM outbox WHERE id = 2",
        "UPDATE probes SET failures = 9, successes = 9 WHERE name = 'name 2'",
        "INSERT INTO flags (name, value, updated_at) VALUES ('breaker', '{}', now())",
        "INSERT INTO schedule_fires (schedule, due_at, fired_at) VALUES ('x', '2026-01-01Z', now())",
        "SELECT setval('events_id_seq', 99)",
    )
    done = changed_before_comparing(copier, "; ".join(statements))

    assert sorted(each.message for each in done.differences) == [
        "events, id 3: has another value in message.",
        "flags, name breaker: is in the target alone.",
        "model_calls, id 3: has another value in cost_usd.",
        "outbox, id 2: is missing in the target.",
        "probes, name name 2: has another value in failures, successes.",
        "schedule_fires, schedule x, due_at 2026-01-01 00:00:00+00:00: is in the target alone.",
        "the last id of events: is 99, and not 3.",
    ]
    assert done.differ == len(statements)
    assert revision(copier.target).startswith("copy-")
    with pytest.raises(ConfigurationError, match="a copy that is not finished"):
        copier.target.open()
    assert copier(restart=True).differ == 0


def test_many_differences_are_counted_and_few_are_named(sqlite: Database, copy_target: Database) -> None:
    fill_tables(sqlite, range(1, 23))

    done = changed_before_comparing(Copier(sqlite, copy_target), "UPDATE sessions SET tier = tier + 1")

    assert (done.differ, len(done.differences)) == (22, 20)


# --- what is refused ------------------------------------------------------------------------------------


def test_target_of_another_installation_is_left_alone(copier: Copier) -> None:
    copier.target.execute("INSERT INTO flags (name, value, updated_at) VALUES ('paused', '{}', now())")

    with pytest.raises(
        ConfigurationError, match=r"holds rows already \(flags\), those of another installation or of a finished copy"
    ):
        copier()

    assert sum(map(len, content(copier.target).values())) == 1
    assert revision(copier.target) == HEAD


@pytest.mark.parametrize("side", ["source", "target"])
def test_daemon_on_either_side_is_in_the_way(copier: Copier, side: str, tmp_path: Path) -> None:
    database: Database = getattr(copier, side)
    with (
        claim_database(database.url, tmp_path),
        pytest.raises(AlreadyRunningError, match="another claudeops daemon"),
    ):
        copier()

    assert copier().differ == 0


def test_no_daemon_starts_on_either_side_meanwhile(copier: Copier, tmp_path: Path) -> None:
    refused: list[object] = []

    def progress(*_: object) -> None:
        for database in (copier.source, copier.target) if not refused else ():
            with pytest.raises(AlreadyRunningError), claim_database(database.url, tmp_path, pause=lambda _: None):
                pytest.fail("a daemon on a database that is copied")
            refused.append(database)

    copier(progress=progress)
    assert len(refused) == 2


def test_nothing_writes_to_the_source_meanwhile(copier: Copier) -> None:
    refused: list[object] = []

    def progress(*_: object) -> None:
        if not refused:
            engine = sa.create_engine(copier.source.url, connect_args={"timeout": 0})
            with closing(engine.raw_connection()) as connection, pytest.raises(Exception, match="database is locked"):
                connection.cursor().execute("UPDATE events SET message = 'x'")
            engine.dispose()
            refused.append(True)

    copier(progress=progress)
    assert refused


@pytest.mark.parametrize(
    ("found", "error"), [("0001", ConfigurationError), ("9999", NewerDatabaseError)], ids=["older", "newer"]
)
def test_source_of_another_revision_is_refused(copier: Copier, found: str, error: type[Exception]) -> None:
    copier.source.execute("UPDATE alembic_version SET version_num = :found", found=found)
    with pytest.raises(error, match=f"{copier.source.file} is at revision {found}"):
        copier()


def test_source_that_is_missing_is_not_made(copy_target: Database, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="there is no database"):
        Copier(Database(f"sqlite:///{tmp_path}/none.db"), copy_target)()
    assert not list(tmp_path.iterdir())


def test_only_the_way_from_sqlite_to_postgresql_is_known(
    sqlite: Database, copy_target: Database, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sqlite.file)
    other = Database(f"sqlite:///{tmp_path}/other.db")
    for one, two, why in (
        (sqlite, sqlite, "name the same database"),
        (sqlite, Database(f"sqlite:///{link}"), "name the same database"),
        (copy_target, copy_target, "name the same database"),
        (sqlite, other, "do not name a SQLite database and a PostgreSQL database, in this order"),
        (copy_target, sqlite, "do not name a SQLite database and a PostgreSQL database, in this order"),
    ):
        with pytest.raises(ConfigurationError, match=f"CLAUDEOPS_TARGET_DATABASE_URL {why}"):
            Copier(one, two)()


def test_server_that_is_away_is_worth_another_try(sqlite: Database) -> None:
    with pytest.raises(DatabaseUnavailableError) as caught:
        Copier(sqlite, Database("postgresql://ada:hunter22@127.0.0.1:1/ops"))()
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "column", "what"),
    [
        ("UPDATE events SET message = 'a' || char(0) || 'b' WHERE id = 2", "message", "a NUL character"),
        ("UPDATE events SET message = CAST(x'61ff62' AS TEXT) WHERE id = 2", "message", "bytes that are no text"),
        ("UPDATE events SET message = x'6162' WHERE id = 2", "message", "no text"),
        ("UPDATE events SET count = 'many' WHERE id = 2", "count", "no whole number"),
        ("UPDATE events SET count = 1.5 WHERE id = 2", "count", "no whole number"),
        ("UPDATE events SET created_at = 'at noon' WHERE id = 2", "created_at", "no time"),
        ("UPDATE events SET created_at = '2026-01-01 00:00:00+02:00' WHERE id = 2", "created_at", "a time with a zone"),
    ],
)
def test_value_without_a_counterpart_is_named_before_anything_is_written(
    copier: Copier, statement: str, column: str, what: str
) -> None:
    copier.source.execute(statement)

    with pytest.raises(
        ConfigurationError, match=f"row events, id 2 cannot be copied, because its column {column} holds {what},"
    ):
        copier()

    assert sum(map(len, content(copier.target).values())) == 0
    assert revision(copier.target) == HEAD


def test_row_that_postgresql_refuses_is_named_and_what_was_copied_stays(copier: Copier) -> None:
    copier.source.execute("UPDATE alerts SET source = :long WHERE id = 2", long="x" * 300)

    with pytest.raises(ConfigurationError, match=r"row alerts, id 2 cannot be copied: .*too long for type"):
        copier()
    copier.source.execute("UPDATE alerts SET source = 'x' WHERE id = 2")

    assert copier(restart=True).differ == 0
