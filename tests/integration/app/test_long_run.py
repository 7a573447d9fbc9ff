"""What one daemon holds after many sessions in a row is what it held after a few."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import daemon_within

# Sessions after which every cache, connection and worker is there, and then as many as show what each leaves behind.
# Bytes are counted in the long dose alone: a few sessions are too few to tell them from what a cache takes.
A_FEW = ("4", "10")
MANY = pytest.param(("20", "40", "bytes"), marks=[pytest.mark.long, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("dose", [A_FEW, MANY], ids=" ".join)
def test_what_a_daemon_holds_does_not_grow_with_the_sessions_that_ran(tmp_path: Path, dose: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", daemon_within.__name__, str(tmp_path), *dose]
    support = Path(daemon_within.__file__).parents[1]
    run = subprocess.run(command, cwd=support, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {}
