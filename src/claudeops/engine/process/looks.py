"""Looks that the daemon runs for a session, each once, in a cell of its own; what they print goes to the session.

The gate admits the looks of a call that it allowed. In the text that the session runs, an id stands in the place of
the program, behind `claudeops.engine.cell.bubblewrap.LOOK_CLIENT`; that client asks for the look over the session's own
socket. Nothing but the id comes from the session, and no descriptor of the session is touched: output goes over the
socket, so one that reads slowly, or not at all, keeps nothing but its own look waiting.

What a program writes to standard error goes to its cell, which makes a sentence of it.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketListener

from claudeops.domain.looks import LookCall
from claudeops.engine.cell.look_cell import LookCell, LookRefusedError, ReadLines
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.process.leaders import end_leader, open_leader
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Threads, open_tasks

REFUSED: Final = 126
TOO_LONG: Final = 124
BROKEN: Final = 125
"""Exit statuses of looks that did not run, took too long, and went wrong here; all others are the program's own."""

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


class SessionLooks(msgspec.Struct, kw_only=True):
    """The looks of one session."""

    cells: Mapping[str, LookCell]  # by program
    socket: Path  # at which it is asked for them
    log: Logger
    most_output: int = 4 * 1024 * 1024  # bytes
    _admitted: dict[str, LookCall] = msgspec.field(default_factory=dict)  # by id, until they run or their call ends
    _connections: anyio.Semaphore = msgspec.field(default_factory=lambda: anyio.Semaphore(_CONNECTIONS))
    # A disk that does not answer keeps its threads; those of other sessions are not among them.
    _disks: Threads = msgspec.field(default_factory=lambda: Threads(most=_AT_ONCE))
    _running: anyio.Semaphore = msgspec.field(default_factory=lambda: anyio.Semaphore(_AT_ONCE))

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
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                    with anyio.fail_after(_ASK_SECONDS):
                        name = await stream.receive(_ID_BYTES)
                    call = self._admitted.pop(name.removesuffix(b"\n").decode("ascii", "replace"), None)
                    cell = None if call is None else self.cells.get(call.program)
                    if call is None or cell is None:
                        with anyio.move_on_after(_SPARE_SECONDS):
                            await _close(stream, REFUSED, f"look: {NOT_ALLOWED}")
                        return
                    with anyio.move_on_after(cell.wall_seconds + _SPARE_SECONDS):
                        await self._serve_call(call, cell, stream)
        except TimeoutError:
            pass  # it connected and asked for nothing
        finally:
            self._connections.release()

    async def _serve_call(self, call: LookCall, cell: LookCell, stream: ByteSendStream) -> None:
        status, sentence = await self._ended(call, cell, stream)
        self.log.info(
            LogEvent.LOOK_RAN,
            look=call.id,
            command=shlex.join((call.program, *call.arguments)),
            directory=None if call.where is None else call.where.directory,
            status=status,
            sentence=sentence,
        )
        await _close(stream, status, f"{call.program}: {sentence}" if sentence else "")

    async def _ended(self, call: LookCall, cell: LookCell, stream: ByteSendStream) -> tuple[int, str]:
        """Run a look; return its exit status and a sentence about it, if there is anything to say."""
        what = f"looking with {call.program}" if call.where is None else f"looking at {call.where.directory}"
        with anyio.move_on_after(cell.wall_seconds):
            try:
                async with self._running:
                    command = await self._disks.run(partial(cell.command, call), seconds=LOOK_SECONDS, what=what)
                    printed = cell.printed if isinstance(cell, ReadLines) else None
                    status, said = await _run(command, stream, self.most_output, printed)
                if status in _KILLED:
                    return status, "it computed for too long: ask for less"
                return status, cell.sentence(call, status, said)
            except _TooMuchError as error:
                return BROKEN, str(error)
            except LookRefusedError as error:
                return REFUSED, str(error)
            except OSError as error:
                self.log.error(LogEvent.LOOK_NOT_RUN, look=call.id, error=str(error))
                return BROKEN, "the daemon could not run it: look at something else"
        return TOO_LONG, f"it took longer than {cell.wall_seconds:g} s: ask for less"


@asynccontextmanager
async def open_looks(
    cells: Mapping[str, LookCell], workspace: Workspace, log: Logger
) -> AsyncIterator[SessionLooks | None]:
    """Run a session's looks for the length of the block, where there are cells for them; raises `OSError`."""
    if not cells:
        yield None
        return
    place = workspace.etc / _SOCKET
    bound = await SESSION_FILES.run(
        partial(bound_socket, place, waiting=_CONNECTIONS),
        seconds=LOOK_SECONDS,
        what=f"making {place}",
        undo=socket.socket.close,
    )
    looks = SessionLooks(cells=cells, socket=place, log=log)
    async with await SocketListener.from_socket(bound) as listener, open_tasks() as tasks:
        tasks.start_soon(looks.serve, listener)
        try:
            yield looks
        finally:
            tasks.cancel_scope.cancel()


def bound_socket(place: Path, *, waiting: int, mode: int | None = None) -> socket.socket:
    """Return a socket that listens at a path, however long that is: an address holds 107 bytes.

    ``waiting``: how many connections may wait for being accepted. ``mode``: who may connect; None: as the umask has it.
    Raises `OSError`. Accesses the disk.
    """
    directory = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(f"/proc/self/fd/{directory}/{place.name}")
        if mode is not None:
            place.chmod(mode)
        listening.listen(waiting)
    except OSError:
        listening.close()
        raise
    finally:
        os.close(directory)
    return listening


class _TooMuchError(Exception):
    """A look was cut off, because it printed too much."""


async def _run(
    command: tuple[str, ...], stream: ByteSendStream, most: int, printed: Callable[[bytes], bytes] | None
) -> tuple[int, bytes]:
    """Return the exit status, and the beginning of what was written to standard error; raises `_TooMuchError`."""
    process = await open_leader(command, stderr=PIPE)
    try:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("both were asked for as pipes")
        said = bytearray()
        async with open_tasks() as tasks:
            tasks.start_soon(_keep, process.stderr, said)
            cut = await (
                _copy(process.stdout, stream, most)
                if printed is None
                else _copy_lines(process.stdout, stream, most, printed)
            )
            if cut:
                tasks.cancel_scope.cancel()
        if cut:
            raise _TooMuchError(f"its output ends here, after {most // 1024} KiB: ask for less")
        status = await process.wait()
    finally:
        await end_leader(process)
    return status, bytes(said)


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


async def _copy_lines(
    output: ByteReceiveStream, stream: ByteSendStream, left: int, printed: Callable[[bytes], bytes]
) -> bool:
    """Send what may be read of the lines that a program prints; return whether it printed too much."""
    rest = b""
    with suppress(anyio.EndOfStream):
        while left:
            content = await output.receive(min(_CHUNK_BYTES, left))
            left -= len(content)
            *lines, rest = (rest + content).split(b"\n")
            if len(rest) > _CHUNK_BYTES:  # it is no line, and would be looked through again with each chunk
                lines, rest = [*lines, rest], b""
            if lines:
                await _send(stream, b"o", b"".join(printed(line) + b"\n" for line in lines))
        await output.receive(1)
        return True
    if rest:
        await _send(stream, b"o", printed(rest))
    return False


async def _keep(errors: ByteReceiveStream, said: bytearray) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            content = await errors.receive(_ERROR_BYTES)
            said += content[: _ERROR_BYTES - len(said)]


async def _send(stream: ByteSendStream, kind: bytes, content: bytes) -> None:
    await stream.send(kind + len(content).to_bytes(4, "big") + content)


async def _close(stream: ByteSendStream, status: int, line: str) -> None:
    """Send the last words of a look."""
    if line:
        await _send(stream, b"e", f"{line}\n".encode())
    await _send(stream, b"x", str(status).encode())
