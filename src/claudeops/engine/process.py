"""One child process: spawned on socket pairs, stopped politely, reaped with its whole tree."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import UNIXSocketStream

from claudeops.engine.lifeline import Lifeline
from claudeops.engine.reaper import disown, inherited, own, reap, starting
from claudeops.engine.tree import ProcessId, first_inside, kill_all, marked, still_there, tree_of
from claudeops.errors import SpawnError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process

    from claudeops.engine.cell import Enclosed
    from claudeops.engine.channel import Channel
    from claudeops.harness.protocol import Command

REAP_SECONDS: Final = 2.0
"""How long the kernel gets to deliver the end of a process that was sent SIGKILL."""

GUARDIAN_SECONDS: Final = 1.0
"""How long a guardian gets to end its tree before that is done without it."""

SETTLE_SECONDS: Final = 0.5
"""How long the kernel gets to end a namespace whose first process has gone."""

_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A running CLI with our ends of its streams.

    ``process`` is what the daemon started: the guardian, or bubblewrap, which ends as the CLI ends.
    """

    process: Process
    stdin: UNIXSocketStream
    stdout: UNIXSocketStream
    stderr: ByteReceiveStream
    mark: str
    lifeline: Lifeline | None = None  # of the guardian, where there is one; else everything is in a namespace
    cli: int | None = None  # the CLI's own pid, as its guardian told it
    seen: set[ProcessId] = field(default_factory=set)  # every member of its tree that was ever listed

    @property
    def pid(self) -> int:
        """The id of the process that the daemon started, which is also its session and group id."""
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
            if self.lifeline is not None:
                await self.lifeline.cut()
        if self.exited:
            disown(self.pid)


async def spawn(
    command: Command, *, cwd: Path, mark: str, enclosed: Enclosed | None = None, pass_fds: Sequence[int] = ()
) -> Child:
    """Start ``command`` in a session and process group of its own; raises `SpawnError`.

    stdin and stdout are socket pairs, not pipes: a tool cannot open ``/proc/<cli>/fd/0`` of a socket, and so
    can neither forge answers of the gate nor lines of the log.
    """
    (ours_in, theirs_in), (ours_out, theirs_out), (ours_life, theirs_life) = _socket_pairs(3)
    try:
        with starting():
            process = await anyio.open_process(
                _command_line(command, enclosed, theirs_life.fileno()),
                stdin=theirs_in.fileno(),
                stdout=theirs_out.fileno(),
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=command.env,
                start_new_session=True,
                pass_fds=pass_fds if enclosed is None else (*pass_fds, *enclosed.inherited, theirs_life.fileno()),
            )
            own(process.pid)
    except (OSError, ValueError) as error:
        for ours in (ours_in, ours_out, ours_life):
            ours.close()
        raise SpawnError(f"{command.argv[0]} could not be started: {error}") from error
    finally:
        for theirs in (theirs_in, theirs_out, theirs_life):
            theirs.close()
    if process.stderr is None:
        raise AssertionError("stderr was asked for as a pipe")
    lifeline = await Lifeline.over(ours_life)
    child = Child(
        process=process,
        stdin=await UNIXSocketStream.from_socket(ours_in),
        stdout=await UNIXSocketStream.from_socket(ours_out),
        stderr=process.stderr,
        mark=mark,
    )
    if enclosed is None:
        await lifeline.cut()
        return child
    return await _begun(child, lifeline, guarded=enclosed.guarded, name=command.argv[0])


def _socket_pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    """Return so many pairs, or none: where descriptors run out, those that were made are closed again."""
    with ExitStack() as made:
        pairs = []
        for _ in range(count):
            pairs.append(socket.socketpair())
            for end in pairs[-1]:
                made.callback(end.close)
        made.pop_all()
        return pairs


def _command_line(command: Command, enclosed: Enclosed | None, lifeline: int) -> tuple[str, ...]:
    if enclosed is None:
        return command.argv
    return (*enclosed.before, str(lifeline), enclosed.binary, *command.argv[1:])


async def _begun(child: Child, lifeline: Lifeline, *, guarded: bool, name: str) -> Child:
    """Return the child once it has begun; what could not be started is removed."""
    begun = False
    try:
        if guarded:
            child = replace(child, lifeline=lifeline, cli=await lifeline.started())
        else:
            await lifeline.let_go_on()
        begun = True
    except SpawnError as error:
        raise SpawnError(f"{name} could not be started: {await _last_words(child) or error}") from None
    finally:
        with anyio.CancelScope(shield=True):
            if not (guarded and begun):
                await lifeline.cut()
            if not begun:
                await kill(child)
                await sweep(child)
                await child.aclose()
    return child


async def _last_words(child: Child) -> str:
    """Return the last line that was said on stderr, for as long as it takes to say one."""
    said = b""
    with anyio.move_on_after(GUARDIAN_SECONDS), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            said += await child.stderr.receive()
    return said.decode("utf-8", "replace").strip().rpartition("\n")[2]


async def stop(child: Child, channel: Channel, *, interrupt: bytes | None, grace_seconds: float) -> None:
    """End a child within ``grace_seconds`` in all, politely first.

    ``interrupt`` lets the CLI print a result line, so that the cost is known; SIGTERM makes it reap the tools
    that it started; SIGKILL reaches neither, so the tree is listed before it. Without a control channel
    (``interrupt`` is ``None``) SIGINT takes the place of the interrupt, and both signals go to the whole group:
    such a CLI need not reap its tools. The caller shields this.
    """
    child.note_tree()
    deadline = anyio.current_time() + grace_seconds
    if interrupt is not None:
        with anyio.move_on_after(grace_seconds * 0.5):  # a CLI that does not read its input must not eat the grace
            await channel.send(interrupt)
    else:
        _signal_group(child, signal.SIGINT)
    if await exited_within(child, deadline - grace_seconds * 0.5 - anyio.current_time()):
        return
    child.note_tree()
    await channel.close()
    (_signal_group if interrupt is None else _signal)(child, signal.SIGTERM)
    if await exited_within(child, deadline - grace_seconds * 0.1 - anyio.current_time()):
        return
    await kill(child)


async def kill(child: Child) -> None:
    """SIGKILL the whole tree at once and wait for the child's end, at most `REAP_SECONDS`."""
    child.note_tree()
    if child.lifeline is not None:
        # The guardian ends everything below it, also what is started meanwhile, and then as the CLI did.
        await child.lifeline.cut()
        if await exited_within(child, GUARDIAN_SECONDS):
            return
    kill_all(child.seen | marked(child.mark))
    await exited_within(child, REAP_SECONDS)


async def sweep(child: Child) -> int:
    """Kill whatever the ended child left behind; return how many processes that were.

    Repeats until a look finds nobody: a fork that races the first look is caught by the next one. What a namespace
    held ends with it, a moment after its first process.
    """
    told = 0 if child.lifeline is None else await child.lifeline.strays(_POLL_SECONDS)
    killed: set[ProcessId] = set()
    settled = anyio.current_time() + (SETTLE_SECONDS if child.lifeline is None else 0.0)
    with anyio.move_on_after(REAP_SECONDS):
        while strays := _left_of(child):
            if anyio.current_time() >= settled:
                killed |= strays
                kill_all(strays)
            await anyio.sleep(_POLL_SECONDS)
            reap(inherited())
    reap(inherited())
    return told + len(killed)


def _left_of(child: Child) -> set[ProcessId]:
    """Return what still runs of an ended child: seen in its tree, marked as its own, or fallen to us as an orphan."""
    orphans = frozenset().union(*(tree_of(pid) for pid in inherited()))
    return {process for process in child.seen | marked(child.mark) | orphans if still_there(process)}


async def exited_within(child: Child, seconds: float) -> bool:
    """Wait for the child's exit, at most ``seconds``."""
    with anyio.move_on_after(seconds):
        await child.process.wait()
    return child.exited


def _signal_group(child: Child, number: signal.Signals) -> None:
    if (cli := _cli(child)) is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(os.getpgid(cli), number)


def _signal(child: Child, number: signal.Signals) -> None:
    if (cli := _cli(child)) is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(cli, number)


def _cli(child: Child) -> int | None:
    """Return the CLI's own pid, if it still runs: what stands in front of it would not pass a signal on."""
    if child.exited:
        return None  # reaped, so its number may belong to others by now
    return child.cli if child.cli is not None else first_inside(child.pid)
