"""One child process: spawned on socket pairs, stopped politely, reaped with its whole tree."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import UNIXSocketStream

from claudeops.engine.tree import ProcessId, kill_all, marked, still_there, tree_of
from claudeops.errors import SpawnError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process

    from claudeops.engine.channel import Channel
    from claudeops.harness.protocol import Command

REAP_SECONDS: Final = 2.0
"""How long the kernel gets to deliver the end of a process that was sent SIGKILL."""

_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A running CLI with our ends of its streams."""

    process: Process
    stdin: UNIXSocketStream
    stdout: UNIXSocketStream
    stderr: ByteReceiveStream
    mark: str
    seen: set[ProcessId] = field(default_factory=set)  # every member of its tree that was ever listed

    @property
    def pid(self) -> int:
        """The CLI's process id, which is also its session and group id."""
        return self.process.pid

    @property
    def exited(self) -> bool:
        """Whether the CLI itself has ended; what it started may still run."""
        return self.process.returncode is not None

    def note_tree(self) -> None:
        """List the tree as it is now; descent is lost once a parent dies."""
        self.seen.update(tree_of(self.pid))

    async def aclose(self) -> None:
        """Close our ends."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(REAP_SECONDS):
            for stream in (self.stdin, self.stdout, self.stderr):
                with suppress(OSError, anyio.ClosedResourceError):
                    await stream.aclose()


async def spawn(command: Command, *, cwd: Path, mark: str, pass_fds: Sequence[int] = ()) -> Child:
    """Start ``command`` in a session and process group of its own; raises `SpawnError`.

    stdin and stdout are socket pairs, not pipes: a tool cannot open ``/proc/<cli>/fd/0`` of a socket, and so
    can neither forge answers of the gate nor lines of the log.
    """
    ours_in, theirs_in = socket.socketpair()
    ours_out, theirs_out = socket.socketpair()
    try:
        process = await anyio.open_process(
            command.argv,
            stdin=theirs_in.fileno(),
            stdout=theirs_out.fileno(),
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=command.env,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except (OSError, ValueError) as error:
        ours_in.close()
        ours_out.close()
        raise SpawnError(f"{command.argv[0]} could not be started: {error}") from error
    finally:
        theirs_in.close()
        theirs_out.close()
    if process.stderr is None:
        raise AssertionError("stderr was asked for as a pipe")
    return Child(
        process=process,
        stdin=await UNIXSocketStream.from_socket(ours_in),
        stdout=await UNIXSocketStream.from_socket(ours_out),
        stderr=process.stderr,
        mark=mark,
    )


async def stop(child: Child, channel: Channel, *, interrupt: bytes | None, grace_seconds: float) -> None:
    """End a child within ``grace_seconds`` in all, politely first.

    ``interrupt`` lets the CLI print a result line, so that the cost is known; SIGTERM makes it reap the tools
    that it started; SIGKILL reaches neither, so the tree is listed before it. Without a control channel
    (``interrupt`` is ``None``) SIGINT takes the place of the interrupt, and both signals go to the whole group:
    such a CLI need not reap its tools. The caller shields this.
    """
    child.note_tree()
    if interrupt is not None:
        await channel.send(interrupt)
    else:
        _signal_group(child, signal.SIGINT)
    if await exited_within(child, grace_seconds * 0.5):
        return
    child.note_tree()
    await channel.close()
    (_signal_group if interrupt is None else _signal)(child, signal.SIGTERM)
    if await exited_within(child, grace_seconds * 0.4):
        return
    await kill(child)


async def kill(child: Child) -> None:
    """SIGKILL the whole tree at once and wait for the child's end, at most `REAP_SECONDS`."""
    child.note_tree()
    kill_all(child.seen | marked(child.mark))
    await exited_within(child, REAP_SECONDS)


async def sweep(child: Child) -> int:
    """Kill whatever the ended child left behind; return how many processes that were.

    Repeats until a look finds nobody: a fork that races the first look is caught by the next one.
    """
    killed = 0
    with anyio.move_on_after(REAP_SECONDS):
        while True:
            strays = {process for process in child.seen | marked(child.mark) if still_there(process)}
            if not strays:
                break
            killed += kill_all(strays)
            await anyio.sleep(_POLL_SECONDS)
    return killed


async def exited_within(child: Child, seconds: float) -> bool:
    """Wait for the child's exit, at most ``seconds``."""
    with anyio.move_on_after(seconds):
        await child.process.wait()
    return child.exited


def _signal_group(child: Child, number: signal.Signals) -> None:
    if child.exited:
        return  # reaped, so its number may belong to others by now
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _signal(child: Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        child.process.send_signal(number)
