"""The directories that a session lives in: home, configuration, working directory, temporary files, state."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio.to_thread

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Workspace:
    """A session's own directories; nothing in them outlives the session."""

    root: Path

    @property
    def home(self) -> Path:
        """``HOME``; the CLI keeps its configuration and its transcript below it."""
        return self.root / "home"

    @property
    def workdir(self) -> Path:
        """The working directory, the only place where a session may write."""
        return self.root / "work"

    @property
    def tmpdir(self) -> Path:
        """``TMPDIR``."""
        return self.root / "tmp"

    @property
    def state_dir(self) -> Path:
        """The child's ``CLAUDEOPS_STATE_DIR``: a legacy handoff file would lie here."""
        return self.root / "state"


async def create(root: Path, *, template_home: Path | None) -> Workspace:
    """Make a workspace at ``root``, its home a copy of ``template_home`` if given; raises `OSError`.

    What an earlier run left at ``root`` (a crash before its removal) is removed first.
    """
    return await anyio.to_thread.run_sync(_create, root, template_home)


async def remove(root: Path) -> OSError | None:
    """Remove a workspace; return what went wrong, if anything. A root that does not exist is removed."""
    return await anyio.to_thread.run_sync(_remove, root)


def _create(root: Path, template_home: Path | None) -> Workspace:
    if root.exists():
        shutil.rmtree(root)
    workspace = Workspace(root)
    root.mkdir(parents=True, mode=0o700)
    for directory in (workspace.workdir, workspace.tmpdir, workspace.state_dir):
        directory.mkdir(mode=0o700)
    if template_home is None:
        workspace.home.mkdir(mode=0o700)
    else:
        # Links are copied as links: what lies outside the operator's directory is not pulled in.
        shutil.copytree(template_home, workspace.home, symlinks=True)
    return workspace


def _remove(root: Path) -> OSError | None:
    try:
        shutil.rmtree(root)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None
