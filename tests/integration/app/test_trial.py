"""The trial of isolation goes on beside the rest of a start, which may end before it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from claudeops.app.cell import make_directories, trying
from claudeops.settings import Settings, load_settings
from support.estate import STAND_IN


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    (tmp_path / "repos" / "web").mkdir(parents=True)
    given = {
        "PATH": "/usr/bin:/bin",
        "CLAUDEOPS_STATE_DIR": str(tmp_path / "state"),
        "CLAUDEOPS_RESULTS_DIR": str(tmp_path / "results"),
        "CLAUDEOPS_REPOS_DIR": str(tmp_path / "repos"),
        "CLAUDEOPS_CLAUDE_BIN": str(STAND_IN),
        "ANTHROPIC_API_KEY": "dummy",
    }
    found = load_settings(given, cwd=tmp_path).settings
    await make_directories(found)
    return found


async def test_a_start_that_is_refused_leaves_nothing_of_its_trial_behind(settings: Settings) -> None:
    async with trying(settings) as trial:
        pass
    assert trial.isolation.done()
    assert trial.looks.cancelled()  # what is tried in the cell was not begun


async def test_a_start_that_is_cancelled_waits_for_the_processes_of_its_trial(settings: Settings) -> None:
    with anyio.CancelScope() as scope:
        async with trying(settings) as trial:
            scope.cancel()
            await anyio.sleep_forever()
    assert trial.isolation.done()
    assert trial.looks.done()
