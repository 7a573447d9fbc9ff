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
from anyio.abc import Process, SocketStream, UNIXSocketStream

from claudeops.engine.process.tree import disown, own, starting

_REAP_SECONDS: Final = 2.0


async def open_leader(
    command: Sequence[str],
    *,
    connection: socket.socket | None = None,
    stdout: int | None = None,
    stderr: int = DEVNULL,
    pass_fds: Sequence[int] = (),
) -> Process:
    """Start a helper with an empty environment; the caller ends it with `end_leader`.

    Its stdin and stdout are pipes; with a ``connection`` that is its stdin, and its stdout is nothing, unless it is
    given. Raises `OSError` when it cannot be started.
    """
    stdin, otherwise = (PIPE, PIPE) if connection is None else (connection.fileno(), DEVNULL)
    stdout = otherwise if stdout is None else stdout
    # A fork is quick, and a process whose start is cancelled half-way would belong to no caller.
    with anyio.CancelScope(shield=True), starting():
        process = await anyio.open_process(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={},
            start_new_session=True,
            pass_fds=pass_fds,
        )
        own(process.pid)
    return process


async def open_fed_leader(command: Sequence[str]) -> tuple[Process, SocketStream]:
    """Start a helper as `open_leader` does; return it, and what writes its stdin.

    Its stdin is a socket, not a pipe: a tool cannot open a socket by ``/proc``, and for a pipe whose reader was killed
    Debian 12's Python (3.11.2) logs an error that no caller can await.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        # Before the start: the caller must get a process that runs, whatever is cancelled.
        stdin = await UNIXSocketStream.from_socket(ours)
        try:
            return await open_leader(command, connection=theirs, stdout=PIPE), stdin
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stdin)
            raise


async def end_leader(process: Process, stdin: SocketStream | None = None) -> None:
    """Kill a helper and everything in its process group, reap it, and close what writes its stdin."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(_REAP_SECONDS):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if stdin is not None:
            await anyio.aclose_forcefully(stdin)
        await process.aclose()
    if process.returncode is not None:
        disown(process.pid)
