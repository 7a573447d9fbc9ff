"""A session that turns on what holds it: its guardian killed, its processes cut loose. Nothing is left all the same."""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet
from pathlib import Path

import psutil
import pytest

from support.caged import daemon_output

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
    said = await daemon_output(tmp_path, CUT_LOOSE, binary=everybodys_cli)
    assert "children left: []" in said, said
    assert "no_result -9" in said
    assert sleepers() == set()
