"""What a session is locked into: which of three levels, and how a command line is led into it.

``bubblewrap``: namespaces of its own; of the machine it sees the system, the mounted repositories and its own
directories, read-only but for the last. ``user``: a user of its own, so that files of others are protected by their
permissions. ``none``: only that everything ends with the daemon. See ``docs/discussions/the-cell.md``.

The machine's users that sessions run as at level ``user``: lent to one session at a time, whoever's daemon it is.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cgroups import Bounds, Group, allowed
from claudeops.engine.cell.workspace import Workspace

USER_HOMES: Final = Path("/var/lib/claudeops-sessions")
"""Where workspaces lie that other users than the daemon's must be able to enter; only root can make it."""

_GUARDIAN: Final = Path(__file__).with_name("guardian.py")
_SAME_USER: Final = -1
_NO_LOCK: Final = -1
_NO_LIMIT: Final = -1
_USERS: Final = "users"  # no workspace's name, which are all hexadecimal

FIRST_UID: Final = 60600
UIDS: Final = 64
"""The users of sessions: numbers that neither distributions nor systemd give to anybody (systemd.io/UIDS-GIDS)."""

_CLOSED_TO_OTHERS: Final = 0o700
_PASSED: Final = 0o711  # not listed
_HOMES: Final = "homes"


class Level(StrEnum):
    """How strongly a session is locked in, the strongest first."""

    BUBBLEWRAP = "bubblewrap"  # namespaces of its own
    USER = "user"  # a user of its own
    NONE = "none"  # it only ends with the daemon


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxSpec:
    """What one session needs of the machine. All paths are absolute."""

    workspace: Workspace
    binary: Path
    repos_dir: Path
    path: str  # its PATH
    shown: Sequence[Path] = ()  # files and sockets that the operator's variables name
    bounds: Bounds = field(default_factory=Bounds)
    group: Group | None = None  # in which the kernel counts its processes; None: by user, if at all


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxedCommand:
    """How the command is started: what stands in front of it, and who ends its tree."""

    before: tuple[str, ...]  # behind it comes the number of the lifeline's descriptor
    binary: str  # instead of the command's first argument
    guarded: bool  # a guardian holds the tree; else a namespace does, once it is told to go on
    inherited: tuple[int, ...] = ()  # descriptors that ``before`` names, beside the lifeline


class Cell(Protocol):
    """One level, as it works on this machine."""

    @property
    def level(self) -> Level:
        """Return its name."""

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return the directory below which workspaces are made; ``sessions_dir`` is the daemon's own choice."""

    def acquire_user(self) -> contextlib.AbstractContextManager[int | None]:
        """Hold a user for one session, for as long as it lasts; ``None`` is the daemon's own. Raises `OSError`."""

    def hand_over(self, workspace: Workspace) -> None:
        """Give the session what it may write, just before its start; raises `OSError`. Looks at files."""

    def counts_processes(self) -> bool:
        """Say whether the kernel bounds the processes of a session also without a control group."""

    def enclose(self, inside: SandboxSpec) -> SandboxedCommand:
        """Return how a command is started in it. Looks at files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainCell:
    """Level ``none``: the daemon's own user and view; a guardian ends the tree when the daemon is gone."""

    level: Level = Level.NONE

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return the daemon's own choice."""
        return sessions_dir

    def acquire_user(self) -> contextlib.AbstractContextManager[int | None]:
        """Hold nobody."""
        return contextlib.nullcontext(None)

    def hand_over(self, workspace: Workspace) -> None:
        """Do nothing: it is the daemon's user."""

    def counts_processes(self) -> bool:
        """Deny it: the kernel counts by user, and this one has other processes too."""
        return False

    def enclose(self, inside: SandboxSpec) -> SandboxedCommand:
        """Return the guardian in front of it."""
        return SandboxedCommand(before=guardian(_SAME_USER, _NO_LOCK, inside), binary=str(inside.binary), guarded=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class UserCell:
    """Level ``user``: for each running session a user that no other running session of this machine has."""

    level: Level = Level.USER
    homes: Path = USER_HOMES
    _locks: dict[int, int] = field(default_factory=dict)  # of the users that are held, by their numbers

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return a directory that users without rights in the state directory can reach; one for each daemon."""
        return self.homes / hashlib.sha256(str(sessions_dir).encode()).hexdigest()[:12]

    @contextlib.contextmanager
    def acquire_user(self) -> Iterator[int | None]:
        """Hold a user that is free."""
        self.homes.mkdir(mode=0o711, exist_ok=True)
        with lease_user(self.homes / _USERS) as user:
            self._locks[user.uid] = user.lock
            try:
                yield user.uid
            finally:
                del self._locks[user.uid]

    def hand_over(self, workspace: Workspace) -> None:
        """Make its user the owner of the session's directories, and the way to them passable."""
        workspaces.hand_over(workspace, passable=(workspace.root.parent, self.homes))
        if workspace.uid is not None:
            settle(self.homes, workspace.uid, workspace.home)

    def counts_processes(self) -> bool:
        """Affirm it: nobody else is that user."""
        return True

    def enclose(self, inside: SandboxSpec) -> SandboxedCommand:
        """Return the guardian in front of it, which stays the daemon's user and starts the CLI as the session's."""
        uid = inside.workspace.uid
        if uid is None:
            raise AssertionError("a session at this level is started in a acquire_user")
        lock = self._locks[uid]
        return SandboxedCommand(
            before=guardian(uid, lock, inside), binary=str(inside.binary), guarded=True, inherited=(lock,)
        )


def workspace_places(sessions_dir: Path) -> tuple[Path, ...]:
    """Return every directory below which an earlier start may have made workspaces: it may have had another cell."""
    return (sessions_dir, UserCell().workspaces(sessions_dir))


def named_in(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files, directories and sockets that variables name: ``/path``, ``/path:/path``, ``unix:///path``."""
    found: list[Path] = []
    for value in environment.values():
        steps = [value.removeprefix("unix://")] if value.startswith("unix://") else value.split(":")
        found += [Path(step) for step in steps if step.startswith("/") and step.strip("/")]
    return tuple(found)


def guardian(uid: int, lock: int, inside: SandboxSpec) -> tuple[str, ...]:
    """Return the command line of a guardian up to its lifeline; the group has the user's number."""
    by_user = uid != _SAME_USER and inside.group is None
    limits = (processes_by_user(inside) if by_user else None, file_bytes(inside))
    return (
        *(sys.executable, "-I", "-S", str(_GUARDIAN), str(uid), str(uid), str(lock)),
        *(str(_NO_LIMIT if limit is None else limit) for limit in limits),
        "" if inside.group is None else str(inside.group.door),
    )


def processes_by_user(inside: SandboxSpec) -> int | None:
    """Return how many processes a user may have who has only this session."""
    wanted = inside.bounds.processes
    return None if wanted is None else allowed(resource.RLIMIT_NPROC, wanted)


def file_bytes(inside: SandboxSpec) -> int | None:
    """Return the size that any file of a session may have."""
    wanted = inside.bounds.file_bytes
    return None if wanted is None else allowed(resource.RLIMIT_FSIZE, wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionUser:
    """A user that is lent out."""

    uid: int
    lock: int  # descriptor: whoever has it open holds the user


@contextlib.contextmanager
def lease_user(directory: Path) -> Iterator[SessionUser]:
    """Lend a user that nobody on this machine has; raises `OSError`, also when all are taken. ``directory`` is root's.

    The guardian of a session kills every process of its user, so no two sessions may share one, though they be of two
    daemons. The lock is the kernel's: it ends with the last process that has it open, which is the guardian where the
    daemon was killed. A user who still has processes, for their guardian was killed too, is passed over.
    """
    directory.mkdir(mode=_CLOSED_TO_OTHERS, exist_ok=True)
    busy = _with_processes()
    for uid in range(FIRST_UID, FIRST_UID + UIDS):
        if uid in busy:
            continue
        lock = os.open(directory / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if _locked(lock):
                yield SessionUser(uid=uid, lock=lock)
                return
        finally:
            os.close(lock)
    raise OSError(errno.EBUSY, f"all {UIDS} users for sessions are taken on this machine", str(directory))


def listed_home(directory: Path, uid: int) -> Path:
    """Return what the machine's list of users has to say that the home of a session's user is.

    Not every program asks the environment: ``ssh`` looks there, and does not run for a user who is on no list.
    """
    return directory / _HOMES / str(uid)


def settle(directory: Path, uid: int, home: Path) -> None:
    """Let a user's home be that of the session which has the user now; raises `OSError`."""
    listed = listed_home(directory, uid)
    listed.parent.mkdir(mode=_PASSED, exist_ok=True)
    fresh = listed.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(home)
    fresh.replace(listed)


def unlisted(directory: Path) -> int:
    """Return how many of the users are on no list of this machine, or have another home there."""
    return sum(_home(uid) != str(listed_home(directory, uid)) for uid in range(FIRST_UID, FIRST_UID + UIDS))


def _home(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _with_processes() -> AbstractSet[int]:
    """Return the owners of all processes."""
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # gone meanwhile
                    found.add(entry.stat().st_uid)
    return found
