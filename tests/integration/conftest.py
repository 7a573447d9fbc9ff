"""A node whose CLI is the scriptable stand-in, on a real SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.estate import Estate, open_estate
from support.plans import watched_plans


@pytest.fixture
async def estate(tmp_path: Path) -> AsyncIterator[Estate]:
    async with open_estate(tmp_path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_big_table_is_scanned() -> Iterator[None]:
    """Fail a test by which a statement comes up that reads a big table from one end to the other."""
    with watched_plans() as scans:
        yield
    assert not scans, "\n\n".join(scans)
