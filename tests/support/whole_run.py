"""What ``make test`` runs: pytest with its worker processes, of which nothing outlives it.

Ctrl-C, or a signal that ends `make`, is passed on as an interrupt to all of them, so that tests end what they have
started. Whatever is left after a while, or after a second Ctrl-C, or because pytest itself was killed, is ended here:
this process inherits every orphan below it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

import psutil

GRACE_SECONDS: Final = 20.0
"""From the interrupt on: tests put away what they have made."""

_TESTS: Final = Path(__file__).parents[1]
_FEW_FILES: Final = 20  # that each worker may as well compile for itself
_END_SECONDS: Final = 5.0  # from the politer signal to the last one
_LOOK_SECONDS: Final = 0.1
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class _Asked:
    """How often somebody asked for the end, and by what."""

    def __init__(self) -> None:
        self.times = 0
        self.by = signal.SIGINT
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.times += 1
        self.by = signal.Signals(number)


def main(arguments: list[str]) -> int:
    """Run pytest and return its exit status, or the one of the signal that ended it."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # a make that is killed does not leave it behind
    asked = _Asked()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the workers share what is compiled here
    try:
        if not any("tests" in argument for argument in arguments):
            _compile(asked)
        status = 0 if asked.times else _run_pytest(arguments, asked)
    finally:
        left = end_all()
    if left:
        sys.stderr.write(f"ended what the tests had left running: {', '.join(left)}\n")
    return 128 + asked.by if asked.times else status


def _run_pytest(arguments: list[str], asked: _Asked) -> int:
    # A session of its own: the terminal's Ctrl-C comes here alone, and goes from here to all of them at once.
    tests = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], start_new_session=True)
    _wait(tests, asked)
    return 0 if asked.times else _status(tests)


def _compile(asked: _Asked) -> None:
    """Compile what changed of the test files, in two processes; else every worker compiles all of it."""
    stale = [str(file) for file in sorted(_TESTS.rglob("test_*.py")) if not _is_compiled(file)]
    if len(stale) < _FEW_FILES:
        return
    command = [sys.executable, "-m", "pytest", "-qq", "--collect-only", "-p", "no:cacheprovider"]
    halves = [
        # What is wrong with a file is told by the run itself.
        subprocess.Popen(
            [*command, *half], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for half in (stale[::2], stale[1::2])
    ]
    for half in halves:
        _wait(half, asked, [one.pid for one in halves])


def _is_compiled(file: Path) -> bool:
    """Return whether pytest's own compiled form of a file is there and newer."""
    written = file.stat().st_mtime
    compiled = (file.parent / "__pycache__").glob(f"{file.stem}.*-pytest-*.pyc")
    return any(one.stat().st_mtime >= written for one in compiled)


def _wait(tests: subprocess.Popen[bytes], asked: _Asked, ours: Sequence[int] = ()) -> None:
    """Return when pytest has ended, or has had its time to."""
    give_up = None
    while tests.poll() is None:
        _take_orphans(ours or (tests.pid,))
        if asked.times and give_up is None:
            os.killpg(tests.pid, signal.SIGINT)
            give_up = time.monotonic() + GRACE_SECONDS
        if asked.times > 1 or (give_up is not None and time.monotonic() > give_up):
            return
        time.sleep(_LOOK_SECONDS)


def _take_orphans(ours: Sequence[int]) -> None:
    """Reap the orphans that came here and have ended, but for processes of ours: tests look who is gone."""
    while (
        ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    ) is not None and ended.si_pid not in ours:
        os.waitpid(ended.si_pid, os.WNOHANG)


def _status(tests: subprocess.Popen[bytes]) -> int:
    code = tests.wait()
    return code if code >= 0 else 128 - code


def end_all() -> list[str]:
    """End every process below this one, those that come meanwhile too; return what they were."""
    found: dict[int, str] = {}
    insist = time.monotonic() + _END_SECONDS
    while below := _below():
        for process in below:
            if process.pid not in found:
                found[process.pid] = _described(process)
                _send(process, signal.SIGTERM)
            elif time.monotonic() > insist:
                _send(process, signal.SIGKILL)
        psutil.wait_procs(below, timeout=_LOOK_SECONDS)
    return list(found.values())


def _below() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if _lives(one)]


def _lives(process: psutil.Process) -> bool:
    """Tell a process from what is left of one, whose parent has yet to ask for it; our own are asked for here."""
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return True
        if process.ppid() == os.getpid():
            os.waitpid(process.pid, os.WNOHANG)
    except (psutil.Error, ChildProcessError):
        pass
    return False


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):  # it may have ended
        process.send_signal(number)


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({' '.join(process.cmdline())[:100]})"
    except psutil.Error:
        return str(process.pid)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
