"""Which levels of isolation this machine offers: asked once per test process, of the product's own probe.

A test does not expect a level by its name; it asks here, or skips with the sentence that an operator would read.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Final

import pytest

from claudeops.engine.cell.cell import Cell, IsolationLevel
from claudeops.engine.cell.levels import HostContext, check_level, choose
from support import cli

PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_ONLY_ROOT: Final = "only root can give sessions another user"


@functools.cache
def unavailable(level: IsolationLevel) -> str | None:
    """Return why sessions cannot have a level on this machine, whatever CLI they run; None where they can."""
    if level is IsolationLevel.USER and os.geteuid() != 0:
        return _ONLY_ROOT
    return check_level(level.value, HostContext(path=PATH))


def needs(level: IsolationLevel) -> None:
    """Skip a test with the sentence of the probe where a level does not work."""
    if (why := unavailable(level)) is not None:
        pytest.skip(why)


def level_with_a_filter() -> str:
    """Return a level at which nothing goes around filters; skips where there is none."""
    for level in (IsolationLevel.USER, IsolationLevel.BUBBLEWRAP):
        if unavailable(level) is None:
            return level.value
    pytest.skip("neither users of their own nor bubblewrap work here")


def strongest(binary: Path | None = None) -> IsolationLevel:
    """Return the level that a daemon takes by itself for a CLI, without one the bundled one."""
    return _taken(binary).level


def workspaces(sessions_dir: Path) -> Path:
    """Return where such a daemon, with the bundled CLI, puts what belongs to its sessions."""
    return _taken(None).workspaces(sessions_dir)


@functools.cache
def _taken(binary: Path | None) -> Cell:
    return choose("auto", HostContext(path=PATH, binaries=(binary or Path(cli.binary()),))).cell
