"""A hundred trials, second half: whoever is killed when, nothing is lost, done twice or left running.

In two files, so that two test processes share them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kill_matrix.plan import POLITE_ROUND
from kill_matrix.suite import run_politely, run_seeds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", [50, 75])
async def test_nothing_is_lost_nothing_is_done_twice_nothing_is_left(tmp_path: Path, first: int) -> None:
    await run_seeds(tmp_path, range(first, first + 25))


@pytest.mark.timeout(600)
async def test_a_daemon_that_is_asked_to_stop_at_any_point_leaves_nothing(tmp_path: Path) -> None:
    await run_politely(tmp_path, range(POLITE_ROUND // 2, POLITE_ROUND))
