"""From nothing to the newest tables, back, and again; old databases are kept safe, newer ones left alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine.interfaces import ReflectedIndex

from claudeops.errors import (
    ConfigurationError,
    DatabaseUnavailableError,
    MissingInputError,
    StoreError,
)
from claudeops.store.connection.engines import parse_url
from claudeops.store.migrate import Migrated, migrate, run
from claudeops.store.tables import HEAD
from claudeops.store.tables.all_tables import metadata
from claudeops.store.tables.base import name_conditions
from support.postgres import Server
from support.store_values import NOW
from support.stores import MIGRATIONS, Database
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)


def downgrade(database: Database, revision: str) -> None:
    run(parse_url(database.url), MIGRATIONS, lambda config: command.downgrade(config, revision))


def differences(database: Database) -> list[object]:
    """Return how the database differs from the tables, but for their comments, which no migration writes."""
    name_conditions()
    with database.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
    whole = [each for each in found if isinstance(each, tuple) and each[0] != "add_table_comment"]
    columns = [change for each in found if isinstance(each, list) for change in each if change[0] != "modify_comment"]
    return [*whole, *columns]


def constraints(connection: sa.Connection) -> dict[str, object]:
    """Return what alembic's comparison leaves out: checks, and how keys are made."""
    inspector = sa.inspect(connection)
    tables = [name for name in inspector.get_table_names() if name != "alembic_version"]
    return {
        name: (
            sorted((check["name"], check["sqltext"]) for check in inspector.get_check_constraints(name)),
            inspector.get_pk_constraint(name)["name"],
            sorted(_in_words(index) for index in inspector.get_indexes(name)),
            sorted(str(key) for key in inspector.get_foreign_keys(name)),
        )
        for name in tables
    }


def _in_words(index: ReflectedIndex) -> str:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return f"{index['name']} {index['column_names']} {index['unique']} {options}"


def test_migrated_tables_are_the_mapped_ones(
    empty: Database, up: Callable[[Database], Migrated], tmp_path: Path
) -> None:
    done = up(empty)

    assert done == Migrated(from_revision=None, to_revision=HEAD, backup_path=None)
    assert differences(empty) == []
    assert not (tmp_path / "backups").exists()


def test_checks_and_keys_are_the_mapped_ones(empty: Database, up: Callable[[Database], Migrated]) -> None:
    name_conditions()
    with empty.connect() as connection:
        metadata.create_all(connection)
        mapped = constraints(connection)
        metadata.drop_all(connection)
        connection.commit()

    up(empty)

    with empty.connect() as connection:
        assert constraints(connection) == mapped


def test_ids_of_every_table_are_never_used_twice(tmp_path: Path, up: Callable[[Database], Migrated]) -> None:
    database = Database(f"sqlite:///{tmp_path}/claudeops.db")
    up(database)

    with database.connect() as connection:
        found = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'")
        made = set(found.scalars())

    assert made == {name for name, table in metadata.tables.items() if "id" in table.columns}


def test_down_to_nothing_and_up_again(empty: Database, up: Callable[[Database], Migrated]) -> None:
    up(empty)

    downgrade(empty, "base")
    with empty.connect() as connection:
        left = sa.inspect(connection).get_table_names()
    done = up(empty)

    assert left == ["alembic_version"]
    assert done.to_revision == HEAD
    assert differences(empty) == []


def test_outcomes_of_the_bounds_are_taken_and_become_errors_on_the_way_back(
    empty: Database, up: Callable[[Database], Migrated]
) -> None:
    with empty.connect() as another:  # which has read the tables before
        run(parse_url(empty.url), MIGRATIONS, lambda config: command.upgrade(config, "0004"))
        with pytest.raises(sa.exc.IntegrityError):
            another.execute(ended(1, "out_of_disk"))
        another.rollback()
        another.execute(ended(1, "out_of_memory"))
        another.commit()

        up(empty)

        for number, outcome in enumerate(("out_of_processes", "out_of_disk", "file_too_large"), start=2):
            another.execute(ended(number, outcome))
        another.commit()
        with pytest.raises(sa.exc.IntegrityError):
            another.execute(ended(9, "out_of_luck"))
        another.rollback()
        if empty.url.startswith("sqlite"):
            assert another.exec_driver_sql("PRAGMA integrity_check").scalars().all() == ["ok"]
        another.rollback()
        downgrade(empty, "0004")
        left = another.exec_driver_sql("SELECT outcome FROM sessions ORDER BY id").scalars().all()
        another.rollback()
        with pytest.raises(sa.exc.IntegrityError):
            another.execute(ended(9, "out_of_disk"))
        another.rollback()
    assert left == ["out_of_memory", "error", "error", "error"]


def test_old_refusals_become_a_kind_of_their_own_and_other_failures_on_the_way_back(
    empty: Database, up: Callable[[Database], Migrated]
) -> None:
    def kinds() -> list[object]:
        with empty.connect() as connection:
            found = connection.exec_driver_sql("SELECT failure_kind FROM sessions ORDER BY id")
            return list(found.scalars())

    run(parse_url(empty.url), MIGRATIONS, lambda config: command.upgrade(config, "0017"))
    rows = [("other", "refusal"), ("other", "end_turn"), ("rate_limit", "refusal"), (None, "refusal")]
    with empty.connect() as connection:
        for number, (kind, stop_reason) in enumerate(rows, start=1):
            connection.execute(ended(number, "error", failure_kind=kind, stop_reason=stop_reason))
        connection.commit()

    up(empty)
    after = kinds()
    downgrade(empty, "0017")

    assert after == ["refusal", "other", "rate_limit", None]
    assert kinds() == ["other", "other", "rate_limit", None]


def ended(number: int, outcome: str, **more: object) -> sa.Insert:
    values = {
        "id": number,
        "tier": 1,
        "ordinal": number,
        "harness": "claude",
        "model": "haiku",
        "trigger": "manual",
        "status": "ended",
        "outcome": outcome,
        "created_at": NOW,
        "attempt": 1,
        "audit_head": "",
        **more,
    }
    required = {column.name for column in metadata.tables["sessions"].columns if not column.nullable}
    assert required <= set(values), required - set(values)
    return sa.insert(sa.table("sessions", *map(sa.column, values))).values(**values)


def test_sources_that_were_heard_of_before_they_were_counted_are_known(
    empty: Database, up: Callable[[Database], Migrated]
) -> None:
    run(parse_url(empty.url), MIGRATIONS, lambda config: command.upgrade(config, "0017"))
    bodies = [
        ("am", "read", 2, 3, "{}", None),
        ("am", "unparsed", 0, 0, "<a>", "it is not JSON"),
        ("hc", "read", 1, 0, "{}", None),
        ("probes", "read", 1, 0, None, None),  # the daemon's own, which nobody has sent
    ]
    deliveries = metadata.tables["alert_deliveries"]
    with empty.connect() as connection:
        for number, (source, status, count, repeats, raw, remark) in enumerate(bodies, 1):
            row = {"id": number, "source": source, "key": str(number), "received_at": NOW, "raw": raw, "status": status}
            more = {"remark": remark, "alerts": count, "left_out": 0, "repeats": repeats}
            connection.execute(sa.insert(deliveries).values(**row, **more))
        connection.commit()

    up(empty)

    found = [
        tuple(row[name] for name in ("source", "bodies", "alerts", "unreadable", "reason", "delivery_id"))
        for row in empty.rows("alert_sources")
    ]
    assert sorted(found) == [("am", 5, 8, 1, "it is not JSON", 2), ("hc", 1, 1, 0, None, None)]


def test_there_is_one_head_and_the_code_knows_it() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)

    assert scripts.get_heads() == [HEAD]


def test_revisions_are_counted_up_so_that_older_and_newer_can_be_told_apart() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]

    assert revisions == sorted(revisions, reverse=True)
    assert all(re.fullmatch(r"\d{4}", revision) for revision in revisions)


def test_alembic_is_not_imported_when_there_is_nothing_to_do(sqlite: Database, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from claudeops.store.migrate import migrate\n"
        "done = migrate(sys.argv[1], migrations_dir=pathlib.Path('/nowhere'), backup_dir=pathlib.Path('/nowhere'))\n"
        "print(done.from_revision == done.to_revision, 'alembic' in sys.modules)"
    )

    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, sqlite.url],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=PATIENCE_SECONDS,
    )

    assert told.stdout.split() == ["True", "False"]


def test_revision_that_nobody_knows_is_said_in_a_sentence(sqlite: Database, up: Callable[[Database], Migrated]) -> None:
    sqlite.execute("UPDATE alembic_version SET version_num = '0000'")

    with pytest.raises(StoreError, match="cannot be migrated: Can't locate revision identified by '0000'"):
        up(sqlite)


def test_somebody_elses_database_is_left_alone(empty: Database, up: Callable[[Database], Migrated]) -> None:
    with empty.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE sessions (id INTEGER PRIMARY KEY)")
        connection.commit()

    with pytest.raises(ConfigurationError, match=r"somebody else's tables \(sessions\)"):
        up(empty)


def test_missing_migrations_are_named(empty: Database, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="holds no migrations"):
        migrate(empty.url, migrations_dir=tmp_path, backup_dir=tmp_path)


def test_directory_that_is_not_there_is_said_in_a_sentence(tmp_path: Path, up: Callable[[Database], Migrated]) -> None:
    with pytest.raises(DatabaseUnavailableError, match="cannot be opened: No such file or directory"):
        up(Database(f"sqlite:///{tmp_path}/nowhere/claudeops.db"))


def test_new_database_is_its_owners_alone(tmp_path: Path, up: Callable[[Database], Migrated]) -> None:
    database = Database(f"sqlite:///{tmp_path}/claudeops.db")

    up(database)

    assert database.file.stat().st_mode & 0o777 == 0o600


def test_directory_with_a_percent_sign_is_no_trouble(tmp_path: Path) -> None:
    odd = tmp_path / "100% mine"
    odd.symlink_to(MIGRATIONS)

    done = migrate(f"sqlite:///{tmp_path}/claudeops.db", migrations_dir=odd, backup_dir=tmp_path)

    assert done.to_revision == HEAD


def test_migrating_leaves_the_programs_logging_alone(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, logging\n"
        "before = (list(logging.root.handlers), logging.root.level)\n"
        "from claudeops.store.migrate import migrate\n"
        "migrate(sys.argv[1], migrations_dir=pathlib.Path(sys.argv[2]), backup_dir=pathlib.Path('.'))\n"
        "assert (list(logging.root.handlers), logging.root.level) == before\n"
        "handlers = logging.getLogger('alembic').handlers\n"
        "assert all(isinstance(handler, logging.NullHandler) for handler in handlers)"
    )

    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, f"sqlite:///{tmp_path}/claudeops.db", str(MIGRATIONS)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=PATIENCE_SECONDS,
    )

    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@pytest.mark.postgres
@pytest.mark.xdist_group("postgres")
def test_two_daemons_that_start_at_once_on_an_empty_database_migrate_it_once(postgres: Server, tmp_path: Path) -> None:
    database = Database(postgres.url(postgres.create()))
    order = {"url": database.url, "migrations_dir": str(MIGRATIONS), "backup_dir": str(tmp_path)}
    line = json.dumps(order).encode() + b"\n"
    with ExitStack() as running:
        both = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-I", "-m", "claudeops.app.migration"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for _ in range(2)
        ]
        for process in both:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
        answers = [json.loads(process.stdout.read()) for process in both if process.stdout is not None]

    assert [answer.get("error") for answer in answers] == [None, None]
    assert [answer["now"] for answer in answers] == [HEAD, HEAD]
    assert [row["version_num"] for row in version_of(database)] == [HEAD]


def version_of(database: Database) -> list[dict[str, object]]:
    with database.connect() as connection:
        return [dict(row) for row in connection.execute(sa.text("SELECT version_num FROM alembic_version")).mappings()]
