"""Helper processes of the daemon that are no sessions: each leads a kernel session of its own and is ended as a whole.

They are registered with `tree`, or the daemon would take them for orphans of a session and kill them.

One of them may become a session: a launcher that was started ahead (`Ahead`).
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import Process, SocketStream, TaskGroup, UNIXSocketStream

from claudeops.engine.cell.bubblewrap import LAUNCHER
from claudeops.engine.cell.cgroups import ControlGroup, Groups
from claudeops.engine.process.tree import disown, own, starting
from claudeops.tasks import open_tasks

SPARE_SECONDS: Final = 20.0
"""How long a launcher waits for a session that is expected."""

_LEFT_TO_THE_SESSION: Final = (OSError, RuntimeError)  # the second: the machine has no thread left

_REAP_SECONDS: Final = 2.0
_LENGTH_BYTES: Final = 8
_WORDS_SECONDS: Final = 20.0  # for a launcher to take its words


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


# --- launchers that are started ahead ------------------------------------------------------------------


class Ahead(msgspec.Struct, kw_only=True):
    """A launcher that was started ahead: it takes longer to start than all that it does.

    It waits for its words while the daemon finds out what the session sees and reads. If the daemon dies meanwhile, or
    the session does not start after all, it ends.
    """

    process: Process
    door: UNIXSocketStream
    group: ControlGroup | None = None  # its session's
    has_joined: bool = False
    settled: anyio.Event = msgspec.field(default_factory=anyio.Event)  # it has joined its group, or could not
    is_used: bool = False  # its process is a session's now, or has ended

    def leads(self, command: Sequence[str]) -> bool:
        """Return whether a command is led by it, and not by another program."""
        return not self.is_used and self.process.returncode is None and tuple(command[: len(LAUNCHER)]) == LAUNCHER

    async def end(self) -> None:
        """End it, unless a session has it."""
        if not self.is_used:
            self.is_used = True
            await end_leader(self.process)
            await anyio.aclose_forcefully(self.door)

    async def join(self, group: ControlGroup) -> None:
        """Put it into its session's control group; where that fails it tries itself later, and says why."""
        with suppress(*_LEFT_TO_THE_SESSION):
            await anyio.to_thread.run_sync(group.take, self.process.pid)
            self.has_joined = True
        self.settled.set()

    async def become(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], descriptors: Mapping[int, int]
    ) -> Process:
        """Have it go on as a command that it leads, and return its process.

        ``descriptors``: what it gets, by the number that it has there; all others stay here. Whether it goes on at all
        shows as with any other process: one that could not has ended.
        """
        if self.group is not None:
            with anyio.move_on_after(_WORDS_SECONDS):
                await self.settled.wait()
        group, *others = command[len(LAUNCHER) :]
        words = ("" if self.has_joined else group, *others)
        variables = [f"{name}={value}" for name, value in env.items()]
        head = (str(cwd), ",".join(map(str, descriptors)), str(len(variables)))
        content = os.fsencode("".join(f"{text}\0" for text in (*head, *variables, *words)))
        # The kernel has its own copies of the descriptors once they are sent.
        with suppress(anyio.BrokenResourceError), anyio.move_on_after(_WORDS_SECONDS):
            await self.door.send_fds(b"\n", list(descriptors.values()))
            await self.door.send(len(content).to_bytes(_LENGTH_BYTES, "big") + content)
        self.is_used = True
        await self.door.aclose()
        return self.process


@asynccontextmanager
async def started_ahead(groups: Groups | None = None) -> AsyncIterator[Ahead | None]:
    """Hold a launcher for the length of the block, unless it is used by then; ``None``: it could not be started.

    Its control group is held, too. It begins to join that now, while it starts and its session's place is made. What
    cannot be had is left to the session's own start, which says why if it fails as well.
    """
    try:
        ahead = await _begun_ahead()
    except _LEFT_TO_THE_SESSION:
        yield None
        return
    async with AsyncExitStack() as held, open_tasks() as tasks:
        try:
            if groups is not None:
                with suppress(*_LEFT_TO_THE_SESSION):
                    ahead.group = await held.enter_async_context(groups.lease())
                    tasks.start_soon(ahead.join, ahead.group)
            yield ahead
        finally:
            await ahead.end()  # before its group is removed


async def _begun_ahead() -> Ahead:
    ours, theirs = socket.socketpair()
    with theirs:
        door = await UNIXSocketStream.from_socket(ours)
        try:
            process = await open_leader(LAUNCHER, connection=theirs, stderr=PIPE)
        except BaseException:
            await anyio.aclose_forcefully(door)
            raise
    return Ahead(process=process, door=door)


class _Spare(msgspec.Struct, kw_only=True):
    """A launcher for a session that is expected."""

    begun: anyio.Event = msgspec.field(default_factory=anyio.Event)  # it has started, or could not be
    over: anyio.Event = msgspec.field(default_factory=anyio.Event)  # it is not needed any more
    ahead: Ahead | None = None


class Launchers:
    """The launchers of all sessions, one of which may be for a session that is expected. Of `open_launchers`."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._spare: _Spare | None = None

    def expect(self, groups: Groups | None = None) -> None:
        """Start one for a session that will probably come; unless it does, it ends after `SPARE_SECONDS`."""
        if self._spare is None:
            self._spare = _Spare()
            self._tasks.start_soon(self._hold, self._spare, groups)

    @asynccontextmanager
    async def started_ahead(self, groups: Groups | None = None) -> AsyncIterator[Ahead | None]:
        """Hold a launcher for the length of the block, the one that was expected if there is; see `started_ahead`."""
        spare, self._spare = self._spare, None
        if spare is None:
            async with started_ahead(groups) as ahead:
                yield ahead
            return
        try:
            await spare.begun.wait()
            yield spare.ahead
        finally:
            spare.over.set()

    async def _hold(self, spare: _Spare, groups: Groups | None) -> None:
        async with started_ahead(groups) as spare.ahead:
            spare.begun.set()
            with anyio.move_on_after(SPARE_SECONDS):
                await spare.over.wait()
            if self._spare is spare:
                self._spare = None
            else:  # a session has it, and takes as long as it takes
                await spare.over.wait()


@asynccontextmanager
async def open_launchers() -> AsyncIterator[Launchers]:
    """Yield launchers; what waits for a session when the block is left ends."""
    async with open_tasks() as tasks:  # what fails within the block is raised as it is
        yield Launchers(tasks)
        tasks.cancel_scope.cancel()
