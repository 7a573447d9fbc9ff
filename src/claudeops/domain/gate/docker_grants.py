"""What the gate has allowed of docker, and whether a request to its engine is that.

A grant is for one tool call and ends with it. It lets a container be changed once; a service of a compose project may
have several containers, and each of them once.
"""

from __future__ import annotations

import posixpath
from typing import Final

import msgspec

from claudeops.structs import replace

VERBS: Final = ("restart", "start", "stop", "unpause")
EXEC: Final = "exec"

_PROJECT: Final = "com.docker.compose.project"
_SERVICE: Final = "com.docker.compose.service"
_NUMBER: Final = "com.docker.compose.container-number"
_DIRECTORY: Final = "com.docker.compose.project.working_dir"
LABELS: Final = (_PROJECT, _SERVICE, _NUMBER, _DIRECTORY)
"""By which compose, and a grant, find the containers of a service."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """A command that runs in a container."""

    command: tuple[str, ...]
    user: str = ""  # empty: the container's own
    directory: str = ""  # likewise
    environment: tuple[str, ...] = ()
    takes_input: bool = False


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A change that an allowed command makes."""

    call: str  # the tool_use_id
    verb: str  # one of `VERBS`, or `EXEC`
    container: str = ""  # as the command names it; empty: it names a service
    service: str = ""  # of a compose project
    number: str = ""  # of the container among those of the service; empty: any
    project: str = ""  # by its name; empty: by its directory
    directory: str = ""  # of the project, absolute
    signal: str = ""
    execution: Execution | None = None  # of `EXEC`


class DockerChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a request would make, once the engine has said which container it means."""

    verb: str
    named: str  # as the request names the container
    id: str  # whole
    name: str  # of the container, without the slash in front of it
    labels: dict[str, str] = msgspec.field(default_factory=dict)  # of `LABELS`
    signal: str = ""
    execution: Execution | None = None

    def __str__(self) -> str:
        """Return it as a person would name it."""
        command = "" if self.execution is None else f": {' '.join(self.execution.command)}"
        return f"{self.verb} {self.name}{command}"


def fits(grant: Grant, change: DockerChange) -> bool:
    """Return whether a change is what was granted."""
    if (grant.verb, grant.signal) != (change.verb, change.signal) or not _runs(grant.execution, change.execution):
        return False
    if grant.container:
        return grant.container in {change.named, change.name}
    label = change.labels.get
    number = not grant.number or grant.number == label(_NUMBER)
    project = (
        grant.project == label(_PROJECT)
        if grant.project
        else bool(grant.directory) and posixpath.normpath(grant.directory) == posixpath.normpath(label(_DIRECTORY, ""))
    )
    return bool(grant.service) and grant.service == label(_SERVICE) and number and project


def _runs(granted: Execution | None, asked: Execution | None) -> bool:
    """Return whether a command is the one that was granted, which need not take the input that it may take."""
    if granted is None or asked is None:
        return granted is asked
    return asked == granted or (granted.takes_input and replace(asked, takes_input=True) == granted)
