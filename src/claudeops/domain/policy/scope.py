"""Where a session lives: the directories and switches that its tool calls are judged against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def as_written(path: str) -> str:
    """Return the path itself: the resolver where no file system may be asked."""
    return path


def usual_program(name: str) -> str:
    """Return where most programs lie: the resolver where no file system may be asked."""
    return f"/usr/bin/{name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What is true for one session. Paths are absolute."""

    repos_dir: str  # the operator's infrastructure as files: read, and deployed from
    workdir: str  # the session's own directory: its first working directory, writable from tier 2 up
    tmpdir: str  # the session's own temporary directory, writable from tier 2 up
    home: str  # the session's home: its files with a leading dot are nobody's to read
    handoff: str = ""  # the file by which a session of an older prompt asks for the next tier; "" = there is none
    dry_run: bool = False
    forbidden_paths: tuple[str, ...] = ()  # state, results, database: never read nor written
    resolve: Callable[[str], str] = as_written  # follows symlinks of the local file system (os.path.realpath)
    program: Callable[[str], str | None] = usual_program  # where a program is on the session's ``PATH``; None: nowhere
