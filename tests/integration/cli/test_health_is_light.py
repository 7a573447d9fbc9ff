"""A container asks for health every 30 seconds, on the machine that is watched over: that must cost it little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOST_MODULES = 40  # of ours
ASKED = """
import atexit, sys
atexit.register(lambda: print(*sorted(name for name in sys.modules if name.partition(".")[0] == "claudeops"
                                      or name in {"anyio", "sqlalchemy", "starlette", "uvicorn"})))
from claudeops.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("wanted", [["health"], ["health", "-o", "json"], ["--output-format=json", "health"]])
@pytest.mark.parametrize("environment", [{}, {"CLAUDEOPS_STATE_DIR": "state", "CLAUDEOPS_LOG_LEVEL": "debug"}])
def test_health_loads_few_modules(wanted: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", ASKED, *wanted]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    answer, _, modules = done.stdout.rstrip("\n").rpartition("\n")
    assert (done.returncode, done.stderr) == (1, "")
    assert "No daemon runs here" in answer
    assert "claudeops.cli.health" in modules.split()
    assert len(modules.split()) <= MOST_MODULES, modules
    assert {name for name in modules.split() if not name.startswith("claudeops")} == set()
