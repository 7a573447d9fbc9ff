"""One child process: spawned on socket pairs, stopped politely, reaped with its whole tree.

`Lifeline` is the daemon's end of a session's lifeline. When it closes, a guardian ends the session; without it, a
namespace does not begin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process, UNIXSocketStream

from claudeops.engine.cell.cell import SandboxedCommand
from claudeops.engine.process.channel import Channel
from claudeops.engine.process.leaders import Ahead
from claudeops.engine.process.tree import (
    ProcessId,
    await_end,
    disown,
    first_in_namespace,
    has_ended,
    inherited,
    kill_all,
    marked,
    open_namespace,
    own,
    reap,
    starting,
    still_there,
    tree_of,
)
from claudeops.errors import SpawnError
from claudeops.harness.protocol import CliCommand
from claudeops.structs import replace
from claudeops.tasks import Threads

T = TypeVar("T")

REAP_SECONDS: Final = 2.0
"""How long the kernel gets to deliver the end of a process that was sent SIGKILL."""

GUARDIAN_SECONDS: Final = 1.0
"""How long a guardian gets to end its tree before the daemon does it itself."""

SETTLE_SECONDS: Final = 0.5
"""How long the kernel gets to end a namespace whose first process has gone."""

LISTING_SECONDS: Final = 1.0
"""How long a look at the processes of a session may take."""

_STRAYS_SECONDS: Final = 0.02
"""How long a guardian whose CLI has ended gets to report how many strays it left."""

_AGAIN_SECONDS: Final = 0.1
"""How long killed processes get to end before the next look for more of them."""

_LAST_WORDS_BYTES: Final = 64 * 1024

_NOBODY: Final[AbstractSet[ProcessId]] = frozenset()

_LOOKS: Final = Threads(most=32)
"""Looks run here: reading ``/proc`` takes longer the more processes there are, and may hang on one that hangs."""

START_SECONDS: Final = 20.0
"""How long a guardian may take to start a CLI; a machine under load takes a second."""

_OUTPUT_BYTES: Final = 512 * 1024
"""How much of a CLI's output the kernel is to hold, as far as ``net.core.wmem_max`` lets it.

More is then read at once; short lines take several times their bytes there. A CLI that prints more waits for us."""

_LINE_BYTES: Final = 64


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A running CLI with our ends of its streams.

    ``process`` is what the daemon started: the guardian, or bubblewrap, which ends as the CLI ends.
    """

    process: Process
    stdin: UNIXSocketStream
    stdout: UNIXSocketStream
    stderr: ByteReceiveStream
    mark: str
    lifeline: Lifeline | None = None  # to the guardian, where there is one; else everything is in a namespace
    cli: int | None = None  # the CLI's own pid, as its guardian reported it
    seen: set[ProcessId] = msgspec.field(default_factory=set)  # every member of its tree that was ever listed
    _namespaces: list[int] = msgspec.field(default_factory=list)  # descriptors, as `open_namespace` gives one

    @property
    def pid(self) -> int:
        """The id of the process that the daemon started, which is also its session and group id."""
        return self.process.pid

    @property
    def exited(self) -> bool:
        """Whether the CLI itself has ended; what it started may still run."""
        return self.process.returncode is not None

    async def note_tree(self) -> None:
        """Remember the tree as it is now; descent is lost once a parent dies. Bounded by `LISTING_SECONDS`."""
        self.seen.update(await _looked(lambda: tree_of(self.pid), _NOBODY))

    async def note_namespace(self) -> None:
        """Remember its namespace, if it has one, to know at once when everything in it has ended."""
        if self.lifeline is not None or self.exited:
            return
        with suppress(TimeoutError):
            found = await _LOOKS.run(
                partial(open_namespace, self.pid),
                seconds=LISTING_SECONDS,
                what="a look at a namespace",
                undo=_close,
            )
            if found is not None:
                self._namespaces.append(found)

    async def namespace_ended(self) -> bool:
        """Return whether everything that ran has ended with its namespace; ``False`` where that is not known."""
        if not self._namespaces:
            return False
        wait = partial(has_ended, self._namespaces[0], SETTLE_SECONDS)
        return await _looked(wait, otherwise=False, seconds=LISTING_SECONDS + SETTLE_SECONDS)

    async def aclose(self) -> None:
        """Close our ends."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(REAP_SECONDS):
            for stream in (self.stdin, self.stdout, self.stderr):
                with suppress(OSError, anyio.ClosedResourceError):
                    await stream.aclose()
            if self.lifeline is not None:
                await self.lifeline.cut()
        while self._namespaces:
            os.close(self._namespaces.pop())
        if self.exited:
            disown(self.pid)


async def spawn(
    command: CliCommand,
    *,
    cwd: Path,
    mark: str,
    sandboxed: SandboxedCommand | None = None,
    pass_fds: Sequence[int] = (),
    before_go: Callable[[], Awaitable[None]] | None = None,
    ahead: Ahead | None = None,
) -> Child:
    """Start ``command`` in a session and process group of its own; raises `SpawnError`, and what ``before_go`` raises.

    ``before_go`` is called when its namespace is there, and nothing runs in it yet; without a namespace never.
    ``ahead`` becomes what leads the command, where that is what was started.

    stdin and stdout are socket pairs, not pipes: a tool cannot open ``/proc/<cli>/fd/0`` of a socket, and so
    can neither forge answers of the gate nor lines of the log.
    """
    (ours_in, theirs_in), (ours_out, theirs_out), (ours_life, theirs_life) = _socket_pairs(3)
    theirs_out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _OUTPUT_BYTES)
    try:
        with starting():
            line = _command_line(command, sandboxed, theirs_life.fileno())
            given = pass_fds if sandboxed is None else (*pass_fds, *sandboxed.inherited, theirs_life.fileno())
            descriptors = {0: theirs_in.fileno(), 1: theirs_out.fileno(), **{each: each for each in given}}
            process = await _process(line, descriptors, cwd=cwd, env=command.env, ahead=ahead)
            own(process.pid)
    except BaseException as error:  # also where the start is cancelled half-way
        for ours in (ours_in, ours_out, ours_life):
            ours.close()
        if not isinstance(error, OSError | ValueError):
            raise
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
    if sandboxed is None:
        await lifeline.cut()
        return child
    return await _begun(child, lifeline, guarded=sandboxed.guarded, name=command.argv[0], before_go=before_go)


async def stop(
    child: Child, channel: Channel, *, interrupt: bytes | None, grace_seconds: float, is_quiet: bool = False
) -> None:
    """End a child within ``grace_seconds`` in all, politely first. The caller shields this.

    ``interrupt`` lets the CLI print a result line, so that the cost is known; SIGTERM makes it reap the tools
    that it started; SIGKILL does neither, so the tree is listed before it. Without a control channel
    (``interrupt`` is ``None``) SIGINT takes the place of the interrupt, and both signals go to the whole group,
    because such a CLI need not reap its tools. ``is_quiet``: it begins with SIGTERM, and prints no result line.
    """
    await child.note_tree()
    deadline = anyio.current_time() + grace_seconds
    if not is_quiet:
        if interrupt is not None:
            with anyio.move_on_after(grace_seconds * 0.5):  # a CLI that does not read its input must not eat the grace
                await channel.send(interrupt)
        else:
            await _signal_group(child, signal.SIGINT)
        if await exited_within(child, deadline - grace_seconds * 0.5 - anyio.current_time()):
            return
        await child.note_tree()
    await channel.close()
    await (_signal_group if interrupt is None else _signal)(child, signal.SIGTERM)
    if await exited_within(child, deadline - grace_seconds * 0.1 - anyio.current_time()):
        return
    await kill(child)


async def kill(child: Child) -> None:
    """SIGKILL the whole tree at once and wait for the child's end, at most `REAP_SECONDS` when it was listed."""
    await child.note_tree()
    if child.lifeline is not None:
        # The guardian ends everything below it, including what is started meanwhile, and then ends as the CLI did.
        await child.lifeline.cut()
        if await exited_within(child, GUARDIAN_SECONDS):
            return
    kill_all(child.seen | await _looked(lambda: marked(child.mark), _NOBODY))
    await exited_within(child, REAP_SECONDS)


async def sweep(child: Child) -> int:
    """Kill whatever the ended child left behind; return how many processes that were.

    Repeats until a look finds none: a fork that races the first look is caught by the next one. Processes in a
    namespace end with it, a moment after its first process.
    """
    if await child.namespace_ended():
        return 0
    reported = 0 if child.lifeline is None else await child.lifeline.strays(_STRAYS_SECONDS)
    killed: set[ProcessId] = set()
    settled = anyio.current_time() + (SETTLE_SECONDS if child.lifeline is None else 0.0)
    with anyio.move_on_after(REAP_SECONDS):
        while strays := await _looked(lambda: _left_of(child), _NOBODY):
            patience = settled - anyio.current_time()
            if patience <= 0:
                killed |= strays
                kill_all(strays)
                patience = _AGAIN_SECONDS
            # Wait for the processes found so far without another look, which reads every process of the machine.
            await _looked(partial(await_end, strays, patience), None, LISTING_SECONDS + patience)
    return reported + len(killed)


async def exited_within(child: Child, seconds: float) -> bool:
    """Wait for the child's exit, at most ``seconds``."""
    with anyio.move_on_after(seconds):
        await child.process.wait()
    return child.exited


class Lifeline(msgspec.Struct):
    """The daemon's end of the lifeline: reads what the guardian reports, and ends everything. See ``guardian.py``."""

    stream: UNIXSocketStream
    _unread: bytes = b""

    @classmethod
    async def over(cls, ours: socket.socket) -> Self:
        """Wrap a socket whose other end a guardian has, or will have."""
        return cls(await UNIXSocketStream.from_socket(ours))

    async def started(self) -> int:
        """Return the CLI's pid once it runs; raises `SpawnError`. Bounded by `START_SECONDS`."""
        with anyio.move_on_after(START_SECONDS):
            word, _, number = (await self._line()).partition(" ")
            if word == "started":
                return int(number)
            if word == "failed":
                raise SpawnError(os.strerror(int(number)))
            raise SpawnError("its guardian ended before it ran")
        raise SpawnError(f"its guardian did not start it within {START_SECONDS:g} s")

    async def ready(self) -> None:
        """Wait for the shell that waits in a namespace; raises `SpawnError`. Bounded by `START_SECONDS`."""
        with anyio.move_on_after(START_SECONDS):
            if await self._line() != "ready":
                raise SpawnError("its namespace could not be made")
            return
        raise SpawnError(f"its namespace was not there within {START_SECONDS:g} s")

    async def let_go_on(self) -> None:
        """Send that shell the word to go on; a socket's buffer has room for it."""
        with contextlib.suppress(anyio.BrokenResourceError):  # it has gone already, as its exit will show
            await self.stream.send(b"go\n")

    async def strays(self, seconds: float) -> int:
        """Return how many processes the ended CLI left to its guardian; 0 if no report comes in time."""
        with anyio.move_on_after(seconds):
            while line := await self._line():
                word, _, number = line.partition(" ")
                if word == "strays":
                    return int(number)
        return 0

    async def cut(self) -> None:
        """Make the guardian kill everything below it, the CLI first. Safe to call twice."""
        await self.stream.aclose()

    async def _line(self) -> str:
        """Return the next line without its end; empty at the end of the stream."""
        while b"\n" not in self._unread:
            try:
                self._unread += await self.stream.receive(_LINE_BYTES)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return ""
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode("ascii", "replace")


def _socket_pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    """Return this many pairs, or none: if descriptors run out, the pairs made so far are closed."""
    with ExitStack() as made:
        pairs = []
        for _ in range(count):
            pairs.append(socket.socketpair())
            for end in pairs[-1]:
                made.callback(end.close)
        made.pop_all()
        return pairs


async def _process(
    line: tuple[str, ...], descriptors: Mapping[int, int], *, cwd: Path, env: Mapping[str, str], ahead: Ahead | None
) -> Process:
    """Start a command line, or have what was started ahead go on as it; raises `OSError` and `ValueError`."""
    if ahead is not None and ahead.leads(line):
        return await ahead.become(line, cwd=cwd, env=env, descriptors=descriptors)
    return await anyio.open_process(
        line,
        stdin=descriptors[0],
        stdout=descriptors[1],
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
        pass_fds=[each for each in descriptors if each > 1],
    )


def _command_line(command: CliCommand, sandboxed: SandboxedCommand | None, lifeline: int) -> tuple[str, ...]:
    if sandboxed is None:
        return command.argv
    return (*sandboxed.before, str(lifeline), sandboxed.binary, *command.argv[1:])


async def _begun(
    child: Child, lifeline: Lifeline, *, guarded: bool, name: str, before_go: Callable[[], Awaitable[None]] | None
) -> Child:
    """Return the child once it runs; a child that could not be started is removed."""
    begun = False
    try:
        if guarded:
            child = replace(child, lifeline=lifeline, cli=await lifeline.started())
        else:
            await lifeline.ready()
            if before_go is not None:
                await before_go()
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
    """Return the last line of stderr; waits at most `GUARDIAN_SECONDS` for its end."""
    output = b""
    with anyio.move_on_after(GUARDIAN_SECONDS), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            output = (output + await child.stderr.receive())[-_LAST_WORDS_BYTES:]
    return output.decode("utf-8", "replace").strip().rpartition("\n")[2]


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _left_of(child: Child) -> AbstractSet[ProcessId]:
    """Return what still runs of an ended child: seen in its tree, marked as its own, or inherited as an orphan.

    Reaps the orphans that have ended.
    """
    ours = inherited()
    orphans = frozenset().union(*(tree_of(pid) for pid in ours))
    left = {process for process in child.seen | marked(child.mark) | orphans if still_there(process)}
    reap(ours)
    return left


async def _looked(look: Callable[[], T], otherwise: T, seconds: float = LISTING_SECONDS) -> T:
    """Return the result of a look at processes, made off the event loop; ``otherwise`` when it takes too long."""
    try:
        return await _LOOKS.run(look, seconds=seconds, what="a look at the processes of a session")
    except TimeoutError:
        return otherwise


async def _signal_group(child: Child, number: signal.Signals) -> None:
    if (cli := await _cli(child)) is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(os.getpgid(cli), number)


async def _signal(child: Child, number: signal.Signals) -> None:
    if (cli := await _cli(child)) is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(cli, number)


async def _cli(child: Child) -> int | None:
    """Return the CLI's own pid, if it still runs: the process in front of it would not pass a signal on."""
    if child.exited:
        return None  # reaped, so its pid may belong to another process by now
    if child.cli is not None:
        return child.cli
    inner = await _looked(lambda: first_in_namespace(child.pid), child.pid)
    return inner if child.process.returncode is None else None  # it may have been reaped meanwhile
