"""A daemon of the release before goes on writing and reading while another one has migrated the database.

It knows only the columns of its own revision. Whatever it could insert, read, change and delete there must go on
working at the head: no new column that it would have to fill, no old one gone, no value refused that was taken.
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from claudeops.store.connection.engines import parse_url
from claudeops.store.migrate import run
from support.doses import drawn
from support.postgres import Server
from support.stores import MIGRATIONS, Database
from support.whole_rows import row, value_of

pytest_plugins = ("support.store_fixtures",)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


REVISIONS = [script.revision for script in reversed(list(ScriptDirectory.from_config(_config()).walk_revisions()))]


def upgrade(database: Database, revision: str) -> None:
    run(parse_url(database.url), MIGRATIONS, lambda config: command.upgrade(config, revision))


def as_they_are(database: Database) -> list[sa.Table]:
    """Return the tables of a database as it has them now, those that others name first."""
    known = sa.MetaData()
    with database.connect() as connection:
        known.reflect(connection)
    return [table for table in known.sorted_tables if table.name != "alembic_version"]


def write_and_read(database: Database, tables: list[sa.Table], number: int) -> None:
    """Do in every table what a daemon does that knows these tables."""
    with database.connect() as connection:
        for table in tables:
            connection.execute(sa.insert(table).values(row(table, number)))
        for table in tables:
            read = connection.execute(sa.select(table).where(_key(table, number))).mappings().one()
            assert set(read) == {column.name for column in table.columns}
            free = {name: value for name, value in row(table, number).items() if not table.c[name].primary_key}
            if free:  # there are tables of which every column is part of the key
                changed = connection.execute(sa.update(table).where(_key(table, number)).values(free))
                assert changed.rowcount == 1
        for table in reversed(tables):
            assert connection.execute(sa.delete(table).where(_key(table, number))).rowcount == 1
        connection.commit()


def _key(table: sa.Table, number: int) -> sa.ColumnElement[bool]:
    return sa.and_(*(column == value_of(column, number) for column in table.primary_key.columns))


@pytest.mark.parametrize("previous", drawn(REVISIONS[:-1], count=4, always=(REVISIONS[0], REVISIONS[-2])))
def test_what_a_release_wrote_and_read_works_on_every_later_schema(empty: Database, previous: str) -> None:
    upgrade(empty, previous)
    tables = as_they_are(empty)
    write_and_read(empty, tables, 1)  # else the test would say nothing

    upgrade(empty, "head")

    write_and_read(empty, tables, 2)


@pytest.mark.parametrize(
    "harm",
    [
        "ALTER TABLE events ADD COLUMN colour VARCHAR(9) NOT NULL",
        "ALTER TABLE memories DROP COLUMN observation",
        "ALTER TABLE outbox RENAME TO sent",
    ],
)
@pytest.mark.postgres
def test_a_migration_that_did_harm_would_be_noticed(postgres: Server, harm: str) -> None:
    database = Database(postgres.url(postgres.create()))
    upgrade(database, "head")
    tables = as_they_are(database)
    write_and_read(database, tables, 1)
    with database.connect() as connection:
        connection.execute(sa.text(harm))
        connection.commit()

    with pytest.raises(sa.exc.SQLAlchemyError):
        write_and_read(database, tables, 2)
