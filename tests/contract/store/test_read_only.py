"""A database that may only be read: whoever writes is told so, and writes again when it may be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claudeops.errors import DatabaseUnavailableError
from support.store_values import how_many_wait, queued
from support.stores import Database, opened

pytestmark = pytest.mark.anyio
pytest_plugins = ("support.store_fixtures",)

NOBODY = 65534


@contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Be somebody whom permissions stop; root is stopped by none."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def make_writable(directory: Path) -> None:
    """Let everybody write every file of a database: SQLite gives those beside it the same permissions."""
    before = os.geteuid()
    os.seteuid(os.getuid())
    for file in directory.iterdir():
        file.chmod(0o666)
    os.seteuid(before)


@pytest.fixture
def read_only(migrated_sqlite: Path) -> Iterator[Database]:
    """Give a database that nobody may write, in a directory where everybody may."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        file = Path(name) / "claudeops.db"
        shutil.copyfile(migrated_sqlite, file)
        file.chmod(0o444)
        yield Database(f"sqlite:///{file}")


async def test_database_that_may_only_be_read_is_unavailable_for_writing_until_it_may_be_written(
    read_only: Database,
) -> None:
    with bound_by_permissions():
        async with opened(read_only) as store:
            for _ in range(2):
                with pytest.raises(DatabaseUnavailableError, match="readonly database; the same call may work later"):
                    await queued(store)

            make_writable(read_only.file.parent)
            session = await queued(store)
            assert await how_many_wait(store) == session.id == 1
