"""What one daemon holds after many sessions in a row is what it held after a few."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import daemon_within

LIMIT_SECONDS = 170


@pytest.mark.timeout(180)
def test_descriptors_threads_and_memory_do_not_grow_with_the_sessions_that_ran(tmp_path: Path) -> None:
    command = [sys.executable, "-m", daemon_within.__name__, str(tmp_path)]
    support = Path(daemon_within.__file__).parents[1]
    run = subprocess.run(command, cwd=support, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {}
