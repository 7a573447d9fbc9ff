"""The daemon's side of a session's filter before docker's engine: its socket, its process and its grants.

The process starts with the session's first connection, and anew with the next one where it has ended.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.domain.docker_api.grants import Change
from claudeops.domain.granted import Grant, Grants
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.docker.process import LINE_BYTES
from claudeops.engine.process.leaders import end_leader, open_leader
from claudeops.engine.process.looks import bound_socket
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import open_tasks

SOCKET: Final = "docker.sock"
_BROKEN: Final = (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.DelimiterNotFound)
_WAITING: Final = 32  # connections that nobody has accepted yet
_AGAIN_SECONDS: Final = 1.0
_NOT_SENT: Final = 0
_TARGET_CHARACTERS: Final = 300


@dataclass(kw_only=True, slots=True)
class DockerFilter:
    """The filter of one session."""

    place: Path  # of its socket
    engine: Path
    secrets: tuple[str, ...]
    grants: Grants
    log: Logger
    _used: dict[int, tuple[Grant, Change]] = field(default_factory=dict)
    _count: int = 0

    async def serve(self, listening: socket.socket) -> None:
        """Run the process whenever the session connects, until cancelled."""
        while True:
            await anyio.wait_readable(listening)
            try:
                await self._run(listening)
            except (OSError, ValueError, *_BROKEN) as error:
                self.log.error(LogEvent.DOCKER_FILTER_ENDED, error=str(error) or type(error).__name__)
            await anyio.sleep(_AGAIN_SECONDS)

    async def _run(self, listening: socket.socket) -> None:
        """Run one process to its end; raises what a broken line raises."""
        ours, theirs = socket.socketpair()
        with theirs:
            stream = await UNIXSocketStream.from_socket(ours)
            async with stream:
                command = (sys.executable, "-I", "-m", "claudeops.engine.docker.process")
                process = await open_leader(command, connection=listening, stdout=theirs.fileno())
                theirs.close()
                try:
                    first = {"engine": str(self.engine), "secrets": self.secrets}
                    await stream.send(json.dumps(first).encode() + b"\n")
                    received = BufferedByteReceiveStream(stream)
                    while True:
                        await self._take(json.loads(await received.receive_until(b"\n", LINE_BYTES)), stream)
                finally:
                    await end_leader(process)

    async def _take(self, line: Mapping[str, object], stream: UNIXSocketStream) -> None:
        match line:
            case {"asked": int(number), "change": dict(given)}:
                answer = {"asked": number, "grant": self._allow(msgspec.convert(given, Change))}
                await stream.send(json.dumps(answer).encode() + b"\n")
            case {"grant": int(number), "status": int(status)}:
                self._ended(number, status)
            case {"dropped": {"target": str(target), "names": list(names)}}:
                self.log.info(
                    LogEvent.DOCKER_PARAMETERS_DROPPED, target=target[:_TARGET_CHARACTERS], names=list(map(str, names))
                )
            case {"failed": str(error)}:
                self.log.error(LogEvent.DOCKER_CONNECTION_BROKEN, error=error[:_TARGET_CHARACTERS])
            case {"refused": dict(refusal)}:
                self.log.info(
                    LogEvent.DOCKER_REQUEST_REFUSED,
                    method=str(refusal.get("method")),
                    target=str(refusal.get("target"))[:_TARGET_CHARACTERS],
                    status=refusal.get("status"),
                    sentence=str(refusal.get("sentence"))[:_TARGET_CHARACTERS],
                )

    def _allow(self, change: Change) -> int:
        """Use a grant; return its number, 0: there is none."""
        grant = self.grants.take(change)
        if grant is None:
            return 0
        self._count += 1
        self._used[self._count] = (grant, change)
        return self._count

    def _ended(self, number: int, status: int) -> None:
        if (used := self._used.pop(number, None)) is None:
            return
        grant, change = used
        if status == _NOT_SENT:
            self.grants.give_back(grant, change)
        self.log.info(
            LogEvent.DOCKER_CHANGED, tool_use_id=grant.call, change=str(change), container=change.id, status=status
        )


@asynccontextmanager
async def open_filter(
    engine: Path | None, workspace: Workspace, secrets: tuple[str, ...], grants: Grants, log: Logger
) -> AsyncIterator[DockerFilter | None]:
    """Serve a session's filter for the length of the block, where there is an engine; raises `OSError`."""
    if engine is None:
        yield None
        return
    place = workspace.etc / SOCKET
    listening = await SESSION_FILES.run(
        partial(_listening, workspace), seconds=LOOK_SECONDS, what=f"making {place}", undo=socket.socket.close
    )
    opened = DockerFilter(place=place, engine=engine, secrets=secrets, grants=grants, log=log)
    with listening:
        async with open_tasks() as tasks:
            tasks.start_soon(opened.serve, listening)
            try:
                yield opened
            finally:
                tasks.cancel_scope.cancel()


def _listening(workspace: Workspace) -> socket.socket:
    """Return the socket of a session. At level `user` it is another user that connects: the way there is passable."""
    workspace.etc.chmod(0o711)
    return bound_socket(workspace.etc / SOCKET, waiting=_WAITING, mode=0o666)
