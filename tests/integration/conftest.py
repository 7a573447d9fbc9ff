"""A node whose CLI is the scriptable stand-in, on a real SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.estate import Estate, open_estate


@pytest.fixture
async def estate(tmp_path: Path) -> AsyncIterator[Estate]:
    async with open_estate(tmp_path) as opened:
        yield opened
