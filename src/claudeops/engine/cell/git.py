"""The cell of one call of git: git with its libraries, the objects and references of one repository, and nothing else.

A repository may be written by anybody. Its configuration and attributes name programs that git runs, links among git's
data files make it print foreign files, and alternates and submodules lead to other repositories. None of that is here:
the repository's directory is put together from ``HEAD``, ``objects``, ``refs``, ``packed-refs`` and ``shallow`` of the
real one. There is no configuration, no reflog, no index, no working tree and therefore no file of it, no shell, no
second program, no network, no ``/proc``, no ``/etc``; a link that leads out of these leads nowhere.

What a repository can still do is lie about itself, and waste what the bounds leave it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import Cell
from claudeops.engine.cell.look_cell import NULL, LookRefusedError, Program, bounded, find_program, run_trial

ABSENT: Final = "there is no git on PATH"
VERSION: Final = ("version",)
"""The arguments that need no repository."""

_ALONE: Final = (
    *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    "--die-with-parent",
)
_ENVIRONMENT: Final = {
    "PATH": "/nonexistent",  # git starts itself for some subcommands; not here
    "GIT_EXEC_PATH": "/nonexistent",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
# A text of 100 MB costs 2 GB when its lines are compared; above this size git takes it for binary.
_SETTINGS: Final = ("--no-pager", "-c", "core.bigFileThreshold=16m")

_NEEDED: Final = (("HEAD", stat.S_ISREG), ("objects", stat.S_ISDIR), ("refs", stat.S_ISDIR))
_WHERE_PRESENT: Final = ("packed-refs", "shallow")
_MOST_BYTES: Final = 64 * 1024  # of a file that is read here
_FORMAT: Final = re.compile(rb"(?im)^[^#;\n]*\b(?:objectformat\s*=\s*\"?sha256|refstorage\s*=)")

NO_REPOSITORY: Final = "this directory is in no repository that may be looked at"
_ODD: Final = "its repository is not an ordinary one: {} is a link, a pipe or missing"

# By what git says of itself, in small letters; a repository can choose among them, and no more than that: it can make
# git say whatever a link of its own leads to.
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


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a repository are. All paths are real ones."""

    top: Path  # of the working tree; for a bare repository the repository itself
    directory: Path  # where git runs
    head: Path  # the directory that holds ``HEAD``
    common: Path  # the directory that holds the rest: another one for a linked working tree


class GitCell(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the command lines of such calls."""

    bubblewrap: BubblewrapCell
    git: Program
    memory_mb: int = 1024  # of address space
    cpu_seconds: int = 10
    wall_seconds: float = 20.0

    @property
    def program(self) -> Path:
        """Return where git is."""
        return self.git.path

    def command(self, look: LookCall) -> tuple[str, ...]:
        """Return a look's command line; raises `LookRefusedError` and `OSError`. Accesses the disk."""
        mounts: tuple[str, ...] = ()
        environment, directory = dict(_ENVIRONMENT), "/"
        if look.arguments != VERSION:
            if look.where is None:
                raise LookRefusedError(NO_REPOSITORY)
            repository = find_repository(Path(look.where.directory), Path(look.where.root))
            mounts, directory = _mounts(repository), str(repository.directory)
            environment |= {"GIT_DIR": str(repository.top / ".git"), "GIT_WORK_TREE": str(repository.top)}
        options = (
            *_ALONE,
            *self.git.mounts(),
            *NULL,
            *mounts,
            *("--remount-ro", "/", "--chdir", directory),
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
        )
        launched = self.bubblewrap.launched(options, (str(self.git.path), *_SETTINGS, *look.arguments))
        return bounded(launched, memory_mb=self.memory_mb, cpu_seconds=self.cpu_seconds)

    def sentence(self, _look: LookCall, status: int, said: bytes) -> str:
        """Return what is said about an exit status; a git that fails in silence only answers no."""
        if status == 0 or not said:
            return ""
        said = said.lower()
        found = (sentence for words, sentence in _SENTENCES if re.search(words, said))
        return next(found, f"it failed (status {status})")


def find_git_cell(cell: Cell, path: str) -> GitCell | str:
    """Return the cell for calls of git, after a trial; or the sentence why there is none. Starts processes."""
    if not isinstance(cell, BubblewrapCell):
        return "git needs a cell of its own, and bubblewrap does not work here"
    git = find_program("git", path) or ABSENT
    if isinstance(git, str):
        return git
    found = GitCell(bubblewrap=cell, git=git)
    try:
        run_trial(found.command(LookCall(program="git", arguments=VERSION)))
    except (OSError, subprocess.SubprocessError) as error:
        return f"git does not work in a cell of its own: {error}"
    return found


def find_repository(directory: Path, root: Path) -> Repository:
    """Find the repository that holds a directory, below ``root``; raises `LookRefusedError` and `OSError`."""
    try:
        place, within = directory.resolve(strict=True), root.resolve(strict=True)
    except OSError as error:
        raise LookRefusedError(NO_REPOSITORY) from error
    if not place.is_relative_to(within) or not place.is_dir():
        raise LookRefusedError(NO_REPOSITORY)
    for top in (place, *(parent for parent in place.parents if parent.is_relative_to(within))):
        entry = top / ".git"
        mode = _mode(entry)
        if stat.S_ISDIR(mode):
            return _checked(Repository(top=top, directory=place, head=entry, common=entry))
        if stat.S_ISREG(mode):
            head = _named(entry, b"gitdir: ", within)
            linked = stat.S_ISREG(_mode(head / "commondir"))
            common = _named(head / "commondir", b"", within) if linked else head
            return _checked(Repository(top=top, directory=place, head=head, common=common))
        if mode:
            raise LookRefusedError(_ODD.format(".git"))
    if _mode(place / "HEAD"):
        return _checked(Repository(top=place, directory=place, head=place, common=place))
    raise LookRefusedError(NO_REPOSITORY)


def _checked(repository: Repository) -> Repository:
    """Return the repository, of which nothing is a link: bubblewrap would follow it."""
    for name, fits in _NEEDED:
        if not fits(_mode(_part(repository, name))):
            raise LookRefusedError(_ODD.format(name))
    for name in _WHERE_PRESENT:
        if (mode := _mode(_part(repository, name))) and not stat.S_ISREG(mode):
            raise LookRefusedError(_ODD.format(name))
    config = repository.common / "config"
    if _mode(config) and _FORMAT.search(_content(config)):
        raise LookRefusedError("its repository has a format that is not read here: sha256, or references in a table")
    return repository


def _mounts(repository: Repository) -> tuple[str, ...]:
    """Return the arguments that put the repository together, at its own place."""
    place = repository.top / ".git"
    parts = [name for name, _ in _NEEDED] + [name for name in _WHERE_PRESENT if _mode(_part(repository, name))]
    return (
        *("--dir", str(repository.directory), "--dir", str(place)),
        *(word for name in parts for word in ("--ro-bind", str(_part(repository, name)), str(place / name))),
    )


def _part(repository: Repository, name: str) -> Path:
    return (repository.head if name == "HEAD" else repository.common) / name


def _mode(path: Path) -> int:
    """Return the mode of what is at a path, which may be a link; 0 where there is nothing."""
    try:
        return path.lstat().st_mode
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return 0
        raise


def _named(file: Path, prefix: bytes, within: Path) -> Path:
    """Return the directory that one of git's files names; raises `LookRefusedError` unless it is below ``within``."""
    content = _content(file).rstrip(b"\n")
    try:
        found = (file.parent / os.fsdecode(content.removeprefix(prefix))).resolve(strict=True)
    except (OSError, ValueError) as error:
        raise LookRefusedError(NO_REPOSITORY) from error
    if not content.startswith(prefix) or not found.is_relative_to(within):
        raise LookRefusedError(NO_REPOSITORY)
    return found


def _content(path: Path) -> bytes:
    """Return what a small ordinary file holds; raises `LookRefusedError` for anything else there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise LookRefusedError(_ODD.format(path.name)) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise LookRefusedError(_ODD.format(path.name))
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
