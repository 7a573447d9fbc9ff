"""Looks that the daemon runs for a session, each once, in a cell of its own; what they print goes to the session.

The gate admits the looks of a call that it allowed. In the text that the session runs, an id stands in the place of
the program, behind `claudeops.engine.cell.bubblewrap.LOOK_CLIENT`; that client asks for the look over the session's own
socket. Nothing but the id comes from the session, and no descriptor of the session is touched: output goes over the
socket, so one that reads slowly, or not at all, keeps nothing but its own look waiting.

What the program writes to standard error is not shown, because a repository can make it hold whatever a link of its
own leads to; it only selects one of a few sentences.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketListener

from claudeops.domain.looks import LookCall
from claudeops.engine.cell.git import NO_REPOSITORY, GitCell, LookRefusedError
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.process.leaders import end_leader, open_leader
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Threads, open_tasks

REFUSED: Final = 126
TOO_LONG: Final = 124
BROKEN: Final = 125
"""Exit statuses of looks that were not run, that took too long, and that went wrong here; all others are git's own."""

NOT_ALLOWED: Final = "this look was not allowed, or has run already: nothing runs twice"

_SOCKET: Final = "look.sock"
_AT_ONCE: Final = 2  # looks of a session that run
_CONNECTIONS: Final = 8  # of a session; more wait until one ends
_ID_BYTES: Final = 256
_ASK_SECONDS: Final = 5.0
_SPARE_SECONDS: Final = 10.0  # beyond the wall, for the session to take the last words
_AGAIN_SECONDS: Final = 0.1
_CHUNK_BYTES: Final = 64 * 1024
_ERROR_BYTES: Final = 4096
_KILLED: Final = (128 + 9, 128 + 24)  # as bubblewrap reports SIGKILL and SIGXCPU

# By what git says of itself, in small letters; a repository can choose among them, and no more than that.
_SENTENCES: Final = (
    (rb"alternate object path|info/alternates", "its objects lie in another repository, which is not looked at"),
    (rb"unable to read", "the repository lacks an object: it may be a partial clone"),
    (rb"out of memory|cannot allocate memory", "it needed too much memory: ask for less"),
    (rb"not a git repository", NO_REPOSITORY),
    (
        (
            rb"unknown revision|bad (?:revision|object)|ambiguous argument|not a valid (?:object|commit)"
            rb"|not a tree object|(?:malformed|invalid) object name|needed a single revision|does not exist in"
            rb"|no names found|no tags can describe|no such ref|does not have any commits"
        ),
        "the repository has no such revision or path: give revisions first, then --, then paths",
    ),
)


@dataclass(kw_only=True, slots=True)
class Looks:
    """The looks of one session."""

    cell: GitCell
    socket: Path  # at which it is asked for them
    log: Logger
    wall_seconds: float = 20.0  # for one look, with the wait for others and for a session that reads slowly
    most_output: int = 4 * 1024 * 1024  # bytes
    _admitted: dict[str, LookCall] = field(default_factory=dict)  # by id, until they run or their call ends
    _connections: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(_CONNECTIONS))
    # A disk that does not answer keeps its threads; those of other sessions are not among them.
    _disks: Threads = field(default_factory=lambda: Threads(most=_AT_ONCE))
    _running: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(_AT_ONCE))

    def admit(self, calls: Iterable[LookCall]) -> None:
        """Let each of these looks run once."""
        self._admitted |= {call.id: call for call in calls}

    def forget(self, tool_use_id: str) -> None:
        """Take back what a tool call has not used, since it has ended."""
        for name in [name for name in self._admitted if name.rpartition("-")[0] == tool_use_id]:
            del self._admitted[name]

    async def serve(self, listener: SocketListener) -> None:
        """Answer the session, until cancelled."""
        async with open_tasks() as tasks:
            while True:
                await self._connections.acquire()
                try:
                    stream = await listener.accept()
                except OSError:  # the daemon is out of descriptors
                    self._connections.release()
                    await anyio.sleep(_AGAIN_SECONDS)
                else:
                    tasks.start_soon(self._answer, stream)

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        try:
            async with stream:
                with (
                    anyio.move_on_after(self.wall_seconds + _SPARE_SECONDS),
                    suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream),
                ):
                    with anyio.fail_after(_ASK_SECONDS):
                        name = await stream.receive(_ID_BYTES)
                    call = self._admitted.pop(name.removesuffix(b"\n").decode("ascii", "replace"), None)
                    status, sentence = await self._ended(call, stream)
                    if call is not None:
                        self.log.info(
                            LogEvent.LOOK_RAN,
                            look=call.id,
                            command=shlex.join((call.program, *call.arguments)),
                            directory=call.directory,
                            status=status,
                            sentence=sentence,
                        )
                    if sentence:
                        await _send(stream, b"e", f"{call.program if call else 'look'}: {sentence}\n".encode())
                    await _send(stream, b"x", str(status).encode())
        except TimeoutError:
            pass  # it connected and asked for nothing
        finally:
            self._connections.release()

    async def _ended(self, call: LookCall | None, stream: ByteSendStream) -> tuple[int, str]:
        """Run a look; return its exit status and a sentence about what went wrong, if anything did."""
        if call is None:
            return REFUSED, NOT_ALLOWED
        with anyio.move_on_after(self.wall_seconds):
            try:
                async with self._running:
                    command = await self._disks.run(
                        partial(self.cell.command, call), seconds=LOOK_SECONDS, what=f"looking at {call.directory}"
                    )
                    return await _run(command, stream, self.most_output)
            except LookRefusedError as error:
                return REFUSED, str(error)
            except OSError as error:
                self.log.error(LogEvent.LOOK_NOT_RUN, look=call.id, error=str(error))
                return BROKEN, "the daemon could not run it: look at something else"
        return TOO_LONG, f"it took longer than {self.wall_seconds:g} s: ask for less"


@asynccontextmanager
async def open_looks(cell: GitCell | None, workspace: Workspace, log: Logger) -> AsyncIterator[Looks | None]:
    """Run a session's looks for the length of the block, where there is a cell for them; raises `OSError`."""
    if cell is None:
        yield None
        return
    place = workspace.etc / _SOCKET
    bound = await SESSION_FILES.run(
        partial(_bound, place), seconds=LOOK_SECONDS, what=f"making {place}", undo=socket.socket.close
    )
    looks = Looks(cell=cell, socket=place, log=log)
    async with await SocketListener.from_socket(bound) as listener, open_tasks() as tasks:
        tasks.start_soon(looks.serve, listener)
        try:
            yield looks
        finally:
            tasks.cancel_scope.cancel()


def _bound(place: Path) -> socket.socket:
    """Return a socket that listens at a path, however long that is: an address holds 107 bytes."""
    directory = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(f"/proc/self/fd/{directory}/{place.name}")
        listening.listen(_CONNECTIONS)
    except OSError:
        listening.close()
        raise
    finally:
        os.close(directory)
    return listening


async def _run(command: tuple[str, ...], stream: ByteSendStream, most: int) -> tuple[int, str]:
    process = await open_leader(command, stderr=PIPE)
    try:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("both were asked for as pipes")
        said = bytearray()
        async with open_tasks() as tasks:
            tasks.start_soon(_keep, process.stderr, said)
            cut = await _copy(process.stdout, stream, most)
            if cut:
                tasks.cancel_scope.cancel()
        if cut:
            return BROKEN, f"its output ends here, after {most // 1024} KiB: ask for less"
        status = await process.wait()
    finally:
        await end_leader(process)
    return status, _sentence(status, bytes(said).lower())


async def _copy(output: ByteReceiveStream, stream: ByteSendStream, left: int) -> bool:
    """Send what a program prints; return whether it printed too much."""
    with suppress(anyio.EndOfStream):
        while left:
            content = await output.receive(min(_CHUNK_BYTES, left))
            left -= len(content)
            await _send(stream, b"o", content)
        await output.receive(1)
        return True
    return False


async def _keep(errors: ByteReceiveStream, said: bytearray) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            content = await errors.receive(_ERROR_BYTES)
            said += content[: _ERROR_BYTES - len(said)]


async def _send(stream: ByteSendStream, kind: bytes, content: bytes) -> None:
    await stream.send(kind + len(content).to_bytes(4, "big") + content)


def _sentence(status: int, said: bytes) -> str:
    """Return what is said about an exit status; a program that fails in silence only answers no."""
    if status in _KILLED:
        return "it computed for too long: ask for less"
    if status == 0 or not said:
        return ""
    return next((sentence for words, sentence in _SENTENCES if re.search(words, said)), f"it failed (status {status})")
