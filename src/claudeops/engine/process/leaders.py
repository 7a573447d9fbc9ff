"""Helper processes of the daemon that are no sessions: each leads a kernel session of its own and is ended as a whole.

They are registered with `tree`, or the daemon would take them for orphans of a session and kill them.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import Final

import anyio
from anyio.abc import Process

from claudeops.engine.process.tree import disown, own, starting

_REAP_SECONDS: Final = 2.0


async def open_leader(
    command: Sequence[str], *, connection: socket.socket | None = None, stderr: int = DEVNULL
) -> Process:
    """Start a helper with an empty environment; the caller ends it with `end_leader`.

    Its stdin and stdout are pipes; with a ``connection`` that is its stdin, and its stdout is nothing. Raises `OSError`
    when it cannot be started.
    """
    stdin, stdout = (PIPE, PIPE) if connection is None else (connection.fileno(), DEVNULL)
    # A fork is quick, and a process whose start is cancelled half-way would belong to no caller.
    with anyio.CancelScope(shield=True), starting():
        process = await anyio.open_process(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env={}, start_new_session=True
        )
        own(process.pid)
    return process


async def end_leader(process: Process) -> None:
    """Kill a helper and everything in its process group, and reap it."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(_REAP_SECONDS):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()
    if process.returncode is not None:
        disown(process.pid)
