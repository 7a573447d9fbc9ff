"""A session that turns on what holds it: its guardian killed, its processes cut loose. Nothing is left all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Set as AbstractSet
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.engine.cell.cell import Level
from support.checkout import TESTS

pytestmark = pytest.mark.anyio


# The guardian is the parent of the CLI, which is the parent of the tool. What is left clears its environment and forks
# twice, so that neither the mark nor descent leads to it; it falls to the daemon, which knows that it did not start it.
NUMBER = 800_000 + os.getpid()  # tells our sleepers from those of another run of this test
CUT_LOOSE = (
    f"(setsid env -i /bin/sh -c 'exec sleep {NUMBER}.1' > /dev/null 2>&1 &); "
    f"kill -9 $(ps -o ppid= -p $PPID); sleep {NUMBER}.2"
)


def sleepers() -> AbstractSet[int]:
    found = set()
    for process in psutil.process_iter(["cmdline", "status"]):
        arguments = process.info["cmdline"] or []
        if arguments and Path(arguments[0]).name == "sleep" and arguments[1].startswith(f"{NUMBER}."):
            found.add(process.pid)
    return found


async def test_orphans_of_a_killed_guardian_are_killed_and_reaped_by_the_daemon(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS), "CAGED_CLI": str(everybodys_cli)}
    with anyio.fail_after(50):
        done = await anyio.run_process(
            [sys.executable, "-m", "support.caged", Level.NONE.value, str(tmp_path), CUT_LOOSE],
            env=environment,
            cwd=tmp_path,
            stderr=subprocess.STDOUT,
            check=False,
        )
    said = done.stdout.decode()
    assert "children left: []" in said, said
    assert "no_result -9" in said
    assert sleepers() == set()
