"""A process with everything imported, of which daemons are forked: a start costs milliseconds instead of a second.

Run as a program (``python -m kill_matrix.zygote``). It has one thread and no event loop, so a fork of it is a process
like any other. Orders come on stdin and reports go to stdout, one JSON document a line:

``{"environment": {...}, "directory": "...", "trial": "...", "output": "...", "strikes": [...], "tries": false}`` forks
a daemon, which tries itself what sessions can be run in, or gets what was found once
``{"forked": pid}`` answers that; ``{"ended": pid, "status": n}`` tells of its end

The end of stdin kills what is left and ends this process, as the end of its parent does.
"""

from __future__ import annotations

import ctypes
import encodings.idna  # noqa: F401
import gc
import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# Imported here for the daemons, which would do it late, each of them.
import alembic.command  # noqa: F401
import anyio._backends._asyncio
import anyio._core._subprocesses  # noqa: F401
import httpcore2  # noqa: F401
import idna.idnadata  # noqa: F401
import jsonschema  # noqa: F401
import markdown_it.main  # noqa: F401
import procrastinate.builtin_tasks
import procrastinate.psycopg_connector
import procrastinate.worker  # noqa: F401
import psycopg_pool  # noqa: F401
import truststore  # noqa: F401
import uvicorn.lifespan.off
import uvicorn.loops.asyncio  # noqa: F401
from apscheduler.schedulers.asyncio import AsyncIOScheduler  # noqa: F401

import claudeops.app.daemon
import claudeops.dispatch.procrastinate
import claudeops.engine.cell.git
import claudeops.engine.cell.network
import claudeops.engine.daemon.fleet
import claudeops.formats.report.draft7
import claudeops.store.connection.job_tables  # noqa: F401
from claudeops import logs
from claudeops.cli.run import run_until_stopped
from claudeops.settings import load_settings
from kill_matrix.plan import Strike
from kill_matrix.points import arm
from kill_matrix.tried import Found, Knowing, Tried
from kill_matrix.world import STAND_IN

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_ORDER_BYTES: Final = 64 * 1024


def main() -> None:
    """Fork daemons until stdin ends."""
    # What a killed daemon leaves falls to us: it is reaped here, so that no zombie is taken for a stray.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _warm_up()
    gc.collect()
    gc.freeze()
    daemons: set[int] = set()
    tried, unread = Tried(), b""
    _tell({"ready": os.getpid()})
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if ended in readable:
            os.read(ended, 4096)
            _reap(daemons)
        if 0 in readable:
            if not (piece := os.read(0, _ORDER_BYTES)):
                break
            *orders, unread = (unread + piece).split(b"\n")
            for order in orders:
                asked = json.loads(order)
                found = None if asked["tries"] else tried.of(asked["environment"])
                daemons.add(pid := _fork(asked, found, ended, wake))
                _tell({"forked": pid})
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)


def _warm_up() -> None:
    """Do what imports and compiles at its first time, for all daemons at once."""
    load_settings({"PATH": os.environ["PATH"], "CLAUDEOPS_CLAUDE_BIN": str(STAND_IN)}, cwd=Path.cwd())
    logs.configure(level="error", fmt="json", stream=sys.stderr, redact=str)


def _fork(order: Mapping[str, object], found: Found | None, *ours: int) -> int:
    """Return the pid of a new daemon."""
    output = os.open(str(order["output"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    pid = os.fork()
    if pid:
        os.close(output)
        return pid
    status = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for descriptor in ours:
            os.close(descriptor)
        status = _be_a_daemon(order, found, output)
    finally:
        logs.flush()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _be_a_daemon(order: Mapping[str, object], found: Found | None, output: int) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.close(nothing)
    environment = order["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(order["directory"]))
    strikes = order["strikes"]
    assert isinstance(strikes, list)
    arm([strike for one in strikes if (strike := Strike.from_document(one))], Path(str(order["trial"])))
    return int(run_until_stopped(None if found is None else Knowing(found).as_process()))


def _reap(daemons: set[int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in daemons:
            daemons.discard(pid)
            _tell({"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _tell(document: Mapping[str, object]) -> None:
    os.write(1, json.dumps(document).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    main()
