"""More files and connections than the usual 1024: the daemon may have them, and its guardians know their numbers."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from claudeops.engine.cell import guardian
from claudeops.engine.system import MOST_DESCRIPTORS
from support.waiting import PATIENCE_SECONDS

HIGH: Final = 1500  # above what ``select`` knows
HARD: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
RAISED: Final = """
import resource, sys
from claudeops.engine.system import raise_descriptor_limit
soft, hard = (int(number) for number in sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def raised(soft: int, hard: int) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", RAISED, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    return [int(number) for number in done.stdout.split()]


def test_the_limit_is_raised_as_far_as_that_is_allowed() -> None:
    assert raised(100, 200) == [200, 200, 200]
    assert raised(200, 200) == [200, 200, 200]
    most = MOST_DESCRIPTORS if HARD == resource.RLIM_INFINITY else min(HARD, MOST_DESCRIPTORS)
    assert raised(100, HARD) == [most, most, HARD]


@pytest.mark.skipif(resource.RLIM_INFINITY != HARD < 2 * HIGH, reason=f"needs {2 * HIGH} descriptors")
def test_a_guardian_sees_its_lifeline_whatever_its_number() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * HIGH, before[1]))
    ours, theirs = socket.socketpair()
    try:
        os.dup2(theirs.fileno(), HIGH)
        command = [
            sys.executable,
            "-I",
            "-S",
            str(Path(guardian.__file__)),
            *["-1"] * 5,  # no user, group, lock nor bounds
            "4=0",  # no core files, and no limit beside
            "",  # no control groups
            *("-1", ""),  # no keyring of its own, no filter
            str(HIGH),
            "/bin/sleep",
            "60",
        ]
        with subprocess.Popen(command, pass_fds=[HIGH]) as process, closing(ours):
            os.close(HIGH)
            theirs.close()
            assert ours.recv(100).startswith(b"started ")
            ours.shutdown(socket.SHUT_RDWR)
            assert process.wait(timeout=PATIENCE_SECONDS) == -9, "it ends as what it guarded"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
