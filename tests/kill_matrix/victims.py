"""Whom a strike may hit: the processes of a daemon's sessions, told apart by what they are."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

_WRAPPERS: Final = frozenset({"bwrap", "launcher.py", "guardian.py"})


class Victims(StrEnum):
    """Who gets SIGKILL."""

    DAEMON = "daemon"
    CLI = "CLI"
    BOTH = "daemon and CLI"
    GUARDIAN = "guardian"  # or bubblewrap, which holds the session where there is no guardian
    GUARDIAN_AND_DAEMON = "daemon and guardian"


@dataclass(frozen=True, slots=True)
class SessionProcess:
    """A process of a session."""

    pid: int
    wraps: bool  # it stands between the daemon and the CLI


def session_processes(daemon: int) -> Sequence[SessionProcess]:
    """Return the guardians, bubblewraps and CLIs below a daemon; empty when it has gone."""
    try:
        below = psutil.Process(daemon).children(recursive=True)
    except psutil.NoSuchProcess:
        return ()
    found = []
    for process in below:
        with contextlib.suppress(psutil.Error):
            arguments = process.cmdline()
            if "--session-id" in arguments:
                wraps = bool(_WRAPPERS & {Path(argument).name for argument in arguments[:6]})
                found.append(SessionProcess(process.pid, wraps))
    return found
