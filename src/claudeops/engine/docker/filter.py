"""A session's filter before docker's engine: its socket, and the process that answers there."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.domain.gate.docker_grants import DockerChange
from claudeops.domain.gate.granted import Grants
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.filtering.daemon import Filter
from claudeops.engine.process.looks import bound_socket
from claudeops.logs import Logger
from claudeops.tasks import open_tasks

SOCKET: Final = "docker.sock"
_MODULE: Final = "claudeops.engine.docker.process"
_WAITING: Final = 32  # connections that nobody has accepted yet


@asynccontextmanager
async def open_filter(
    engine: Path | None, workspace: Workspace, secrets: tuple[str, ...], grants: Grants, log: Logger
) -> AsyncIterator[Path | None]:
    """Serve a session's filter for the length of the block, where there is an engine; yield where its socket is.

    Raises `OSError`.
    """
    if engine is None:
        yield None
        return
    place = workspace.etc / SOCKET
    listening = await SESSION_FILES.run(
        partial(_listening, workspace), seconds=LOOK_SECONDS, what=f"making {place}", undo=socket.socket.close
    )
    first = {"engine": str(engine), "secrets": secrets}
    opened = Filter(engine="docker", module=_MODULE, first=first, changes=DockerChange, grants=grants, log=log)
    with listening:
        async with open_tasks() as tasks:
            tasks.start_soon(opened.serve, listening)
            try:
                yield place
            finally:
                tasks.cancel_scope.cancel()


def _listening(workspace: Workspace) -> socket.socket:
    """Return the socket of a session. At level `user` it is another user that connects: the way there is passable."""
    workspace.etc.chmod(0o711)
    return bound_socket(workspace.etc / SOCKET, waiting=_WAITING, mode=0o666)
