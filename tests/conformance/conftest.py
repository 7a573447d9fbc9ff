"""What the cells need on this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from claudeops.engine.cell.cell import USER_HOMES, IsolationLevel
from support import cli
from support.aftermath import assert_settled
from support.checkout import TESTS
from support.doses import drawn
from support.estate import Estate, open_estate
from support.levels import needs


@pytest.fixture
async def estate(tmp_path: Path) -> AsyncIterator[Estate]:
    """Return a node whose CLI is the stand-in; whatever a test has it do, the node must be in order afterwards."""
    async with open_estate(tmp_path) as opened:
        yield opened
        assert_settled(opened)


@pytest.fixture(params=drawn(IsolationLevel, always=[IsolationLevel.BUBBLEWRAP]), ids=str)
def level(request: pytest.FixtureRequest) -> IsolationLevel:
    """Return each level in turn, of those below the strongest one a day.

    What this machine cannot do skips with the sentence that an operator would read.
    """
    found: IsolationLevel = request.param
    needs(found)
    return found


@pytest.fixture
def mcp_server(everybodys_cli: Path) -> Path:
    """Return the stand-in for an MCP server, where every user can reach it."""
    return Path(shutil.copy(TESTS / "support" / "stand_in_mcp.py", everybodys_cli.parent))


@pytest.fixture(scope="session")
def everybodys_cli() -> Iterator[Path]:
    """Return the real CLI where every user can reach it: a developer's own directory is often closed to others."""
    if os.geteuid() == 0:
        USER_HOMES.mkdir(mode=0o711, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="tests-", dir=USER_HOMES if os.geteuid() == 0 else None))
    directory.chmod(0o755)
    try:
        try:
            os.link(cli.binary(), directory / "claude")
        except OSError:  # another file system
            shutil.copy2(cli.binary(), directory / "claude")
        yield directory / "claude"
    finally:
        shutil.rmtree(directory)
