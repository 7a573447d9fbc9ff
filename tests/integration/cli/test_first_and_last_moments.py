"""What a command does with Ctrl-C before it has begun and after it has ended, and with output that does not arrive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = """
import atexit, os, signal, sys

class AtThisImport:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtThisImport())
from claudeops.cli.main import main
if sys.argv[1] == "the end":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
main(sys.argv[2:])
"""
IMPORTED = (
    *("claudeops.cli.command_line", "click", "claudeops.cli.commands.watch", "claudeops.cli.reply", "the end"),
    *("claudeops.cli.health", "claudeops.engine.daemon.liveness", "psutil", "claudeops.settings.where"),
)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=cwd, env={}, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("moment", IMPORTED)
@pytest.mark.parametrize("wanted", [["health"], ["health", "-o", "json"]])
def test_ctrl_c_ends_a_command_without_a_traceback(moment: str, wanted: list[str], tmp_path: Path) -> None:
    done = run("-c", INTERRUPTED, moment, *wanted, cwd=tmp_path)

    assert done.stderr.strip() == ""
    assert done.returncode in {-signal.SIGINT, 1}
    if done.returncode == 1 and "json" in wanted:
        assert json.loads(done.stdout)["error"]["message"] == "claudeops health was interrupted."


def test_who_ignores_ctrl_c_goes_on_ignoring_it(tmp_path: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED
    done = run("-c", ignoring, "claudeops.cli.command_line", "health", cwd=tmp_path)
    assert "No daemon runs here" in done.stdout


UNREAD = [
    ["version"],
    ["--help"],
    ["health"],
    ["completion", "bash"],
    ["bootstrap-graph"],
    ["frob", "-o", "json"],
    ["version", "-o", "json"],
    ["status", "--help", "-o", "json"],
    ["status", "-x", "-o", "json"],
]


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("wanted", UNREAD, ids=" ".join)
def test_what_cannot_be_written_is_an_error_in_one_sentence(wanted: list[str], buffered: bool, tmp_path: Path) -> None:
    command = [sys.executable, *([] if buffered else ["-u"]), "-m", "claudeops", *wanted]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env={}, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == (1 if "json" in wanted else 73)
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("claudeops: standard output cannot be written (No space left on device)")


def test_an_output_that_is_closed_is_an_error_and_one_that_nobody_reads_on_is_none(tmp_path: Path) -> None:
    called = f"{sys.executable} -m claudeops version"
    closed = run("-c", f"import os; os.close(1); os.execv('/bin/sh', ['sh', '-c', {called!r}])", cwd=tmp_path)
    assert closed.returncode == 73
    assert "standard output cannot be written (Bad file descriptor)" in closed.stderr

    reading, writing = os.pipe()
    os.close(reading)
    unread = subprocess.run(
        called.split(), cwd=tmp_path, env={}, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (unread.returncode, unread.stderr) == (1, "")
