"""Addresses and databases that are not opened, and what is said of them."""

from __future__ import annotations

import anyio
import pytest
import sqlalchemy as sa

from claudeops.errors import ConfigurationError, DatabaseUnavailableError, MissingInputError, NewerDatabaseError
from claudeops.store.connection.engines import border, parse_url, shown
from claudeops.store.store import open_store
from claudeops.store.tables import HEAD
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect


async def test_password_is_in_no_sentence() -> None:
    url = parse_url("postgresql://me:hunter2@db.example:5432/ops?connect_timeout=1")

    with pytest.raises(DatabaseUnavailableError) as caught, border(url):
        raise sa.exc.OperationalError("SELECT hunter2", {}, RuntimeError("auth failed for me:hunter2"))

    assert "hunter2" not in str(caught.value)
    assert "SELECT" not in str(caught.value)
    assert shown(url) == "postgresql://me:***@db.example:5432/ops"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("mysql://me:hunter2@host/db", "mysql", id="another kind"),
        pytest.param("hunter2", "no database address", id="no address"),
        pytest.param("sqlite://", "names no file", id="no file"),
        pytest.param("sqlite:///:memory:", "names no file", id="memory"),
    ],
)
async def test_address_that_cannot_be_is_refused_without_repeating_a_password(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        open_store(url)

    assert "hunter2" not in str(caught.value)
    assert "CLAUDEOPS_DATABASE_URL" in str(caught.value)


async def test_database_that_was_never_set_up_is_not_made_by_opening_it(tmp_path: object) -> None:
    file = f"{tmp_path}/none.db"

    with pytest.raises(MissingInputError, match=r"no database .*none\.db: set CLAUDEOPS_STATE_DIR"):
        open_store(f"sqlite:///{file}")

    assert not await anyio.Path(file).exists()


@pytest.mark.parametrize(
    ("revision", "error"),
    [pytest.param("9999", NewerDatabaseError, id="newer"), pytest.param("0000", ConfigurationError, id="older")],
)
async def test_database_of_another_revision_is_not_opened(
    database: Database, revision: str, error: type[Exception]
) -> None:
    database.execute("UPDATE alembic_version SET version_num = :revision", revision=revision)
    try:
        with pytest.raises(error, match=revision):
            database.open()
    finally:
        database.execute("UPDATE alembic_version SET version_num = :revision", revision=HEAD)


async def test_unreachable_server_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailableError, match=r"127\.0\.0\.1:1/ops says"):
        open_store("postgresql://me:hunter2@127.0.0.1:1/ops")
