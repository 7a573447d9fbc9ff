"""The cell that a session is locked into: three levels, and how a command line is led into each.

``bubblewrap``: namespaces of its own; of the machine the session sees the system, the mounted repositories and its own
directories, all read-only but the last. ``user``: a user of its own, so that file permissions protect other users'
files. ``none``: only the guarantee that everything ends with the daemon. See ``docs/discussions/the-cell.md``.

At level ``user`` the machine has a pool of users for sessions. Each is leased to one session at a time, across all
daemons of the machine.
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
from operator import attrgetter
from pathlib import Path
from typing import Final, Protocol

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cgroups import Bounds, ControlGroup, allowed
from claudeops.engine.cell.system_calls import filter_as_text, keyctl_number
from claudeops.engine.cell.workspace import Workspace

USER_HOMES: Final = Path("/var/lib/claudeops-sessions")
"""Where workspaces lie that users other than the daemon's must be able to enter; only root can make it."""

_GUARDIAN: Final = Path(__file__).with_name("guardian.py")
_SAME_USER: Final = -1
_NO_LOCK: Final = -1
_NO_LIMIT: Final = -1
_USERS: Final = "users"  # cannot be a workspace directory's name, which is hexadecimal

LISTED: Final = "listed"
SHARED: Final = "shared"
"""What a session reaches: what is listed for it, or all that the machine reaches."""

DOCKER_HOST: Final = "DOCKER_HOST"
KUBECONFIG: Final = "KUBECONFIG"
_UNIX: Final = "unix://"

BASH: Final = Path("/bin/bash")

_LIMITS: Final = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_MEMLOCK: 0,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_NICE: 0,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_SIGPENDING: 512,
    resource.RLIMIT_NOFILE: 4096,
}
"""What every session has at most, at each level; a limit that is lower stays."""

FIRST_UID: Final = 60600
UIDS: Final = 64
"""The users for sessions: uids that neither distributions nor systemd assign (systemd.io/UIDS-GIDS)."""

_CLOSED_TO_OTHERS: Final = 0o700
_PASSABLE: Final = 0o711  # but not listable
_HOMES: Final = "homes"


class IsolationLevel(ClosedSet):
    """How strongly a session is locked in; the strongest level comes first."""

    BUBBLEWRAP = "bubblewrap", "namespaces of its own"
    USER = "user", "a user of its own"
    NONE = "none", "nothing: it only ends with the daemon"


class OwnNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A network of the session's own; see ``forwarder.py``."""

    door: int  # descriptor, over which the launcher hands over the sockets that it makes there
    hosts: str  # the text of its ``/etc/hosts``
    name_servers: Sequence[str] = ()  # on it
    authority: str = ""  # that it trusts besides the machine's, as PEM; "": none. See ``headers``
    relayed: tuple[str, ...] = ()  # the hosts to which headers are added


class OwnFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A file system in memory for the session's own directories; see ``own_files.py``."""

    door: int  # descriptor, over which the launcher hands over a descriptor of it
    place: Path  # where it is mounted, for the session alone; an empty directory
    most_bytes: int
    most_files: int


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one session needs of the machine. All paths are absolute."""

    workspace: Workspace
    binary: Path
    repos_dir: Path
    path: str  # its PATH
    shown: Sequence[Path] = ()  # files and sockets that the operator's variables name
    projects: Sequence[str] = ()  # directories of compose projects; their compose files are shown
    bounds: Bounds = msgspec.field(default_factory=Bounds)
    group: ControlGroup | None = (
        None  # control group in which the kernel counts its processes; None: by user, if at all
    )
    look_socket: Path | None = None  # where the daemon listens for its looks; None: it has none
    given: Mapping[Path, Path] = msgspec.field(
        default_factory=dict
    )  # by place in a namespace: what the daemon gives it there
    hidden: Sequence[Path] = ()  # of the machine, whatever shows it: what its filters stand before
    network: OwnNetwork | None = None  # where the cell has one; None: of its own, and nothing is on it
    trusted: Mapping[str, str] = msgspec.field(default_factory=dict)  # its variables that name files of authorities
    files: OwnFiles | None = None  # None: its directories are those of the workspace, on the disk


class SandboxedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """How the command is started: what comes in front of it, and what ends its tree."""

    before: tuple[str, ...]  # the number of the lifeline's descriptor follows it
    binary: str  # replaces the command's first argument
    guarded: bool  # a guardian holds the tree; otherwise a namespace, which waits for a word to go on
    inherited: tuple[int, ...] = ()  # descriptors that ``before`` names, beside the lifeline


class Cell(Protocol):
    """A level of isolation, as it works on this machine."""

    @property
    def level(self) -> IsolationLevel:
        """Return its name."""

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return the directory below which workspaces are made; ``sessions_dir`` is the daemon's default."""

    def acquire_user(self) -> contextlib.AbstractContextManager[int | None]:
        """Acquire a user for the length of one session; ``None`` is the daemon's own. Raises `OSError`."""

    def hand_over(self, workspace: Workspace) -> None:
        """Give the session what it may write, just before its start; raises `OSError`. Accesses the disk."""

    def counts_processes(self) -> bool:
        """Return whether the kernel bounds the processes of a session even without a control group."""

    @property
    def has_network(self) -> bool:
        """Return whether a session has a network of its own, on which only listed addresses stand."""

    @property
    def keeps_tools_apart(self) -> bool:
        """Return whether no tool can read the memory of the CLI, of an MCP server or of another tool."""

    def shell(self, workspace: Workspace) -> str:
        """Return the path, in the cell, of the shell with which the CLI starts tools and MCP servers."""

    def enclose(self, spec: SandboxSpec) -> SandboxedCommand:
        """Return how a command is started in the cell. Accesses the disk."""


class PlainCell(msgspec.Struct, frozen=True, kw_only=True):
    """Level ``none``: the daemon's own user and view of files; a guardian ends the tree when the daemon has gone."""

    level: IsolationLevel = IsolationLevel.NONE
    interpreter: Path | None = None  # of the shell that keeps tools apart; None: bash itself is their shell

    @property
    def has_network(self) -> bool:
        """Return ``False``: it takes namespaces."""
        return False

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return the daemon's default."""
        return sessions_dir

    def acquire_user(self) -> contextlib.AbstractContextManager[int | None]:
        """Acquire nothing."""
        return contextlib.nullcontext(None)

    @property
    def keeps_tools_apart(self) -> bool:
        """Return whether there is a shell that does."""
        return self.interpreter is not None

    def hand_over(self, workspace: Workspace) -> None:
        """Write its shell; the session runs as the daemon's user."""
        workspaces.write_shell(workspace, self.interpreter)

    def shell(self, workspace: Workspace) -> str:
        """Return the shell in the session's directory, or bash."""
        return str(workspace.shell if self.interpreter else BASH)

    def counts_processes(self) -> bool:
        """Return ``False``: the kernel counts by user, and the daemon's user has other processes too."""
        return False

    def enclose(self, spec: SandboxSpec) -> SandboxedCommand:
        """Return the command behind a guardian."""
        return SandboxedCommand(before=guardian(_SAME_USER, _NO_LOCK, spec), binary=str(spec.binary), guarded=True)


class UserCell(msgspec.Struct, frozen=True, kw_only=True):
    """Level ``user``: each running session has a user that no other running session on this machine has."""

    level: IsolationLevel = IsolationLevel.USER
    homes: Path = USER_HOMES
    interpreter: Path | None = None  # of the shell that keeps tools apart; None: bash itself is their shell
    _locks: dict[int, int] = msgspec.field(default_factory=dict)  # descriptors of the locks on acquired users, by uid

    @property
    def has_network(self) -> bool:
        """Return ``False``: it takes namespaces."""
        return False

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return a directory that users without access to the state directory can reach; one for each daemon."""
        return self.homes / hashlib.sha256(str(sessions_dir).encode()).hexdigest()[:12]

    @contextlib.contextmanager
    def acquire_user(self) -> Iterator[int | None]:
        """Acquire a free user."""
        self.homes.mkdir(mode=0o711, exist_ok=True)
        with lease_user(self.homes / _USERS) as user:
            self._locks[user.uid] = user.lock
            try:
                yield user.uid
            finally:
                del self._locks[user.uid]

    @property
    def keeps_tools_apart(self) -> bool:
        """Return whether there is a shell that does."""
        return self.interpreter is not None

    def shell(self, workspace: Workspace) -> str:
        """Return the shell in the session's directory, or bash."""
        return str(workspace.shell if self.interpreter else BASH)

    def hand_over(self, workspace: Workspace) -> None:
        """Make the session's user the owner of its directories, and the path to them passable; write its shell."""
        workspaces.write_shell(workspace, self.interpreter)
        workspaces.hand_over(workspace, passable=(workspace.root.parent, self.homes))
        if workspace.uid is not None:
            link_home(self.homes, workspace.uid, workspace.home)

    def counts_processes(self) -> bool:
        """Return ``True``: no other process runs as that user."""
        return True

    def enclose(self, spec: SandboxSpec) -> SandboxedCommand:
        """Return the command behind a guardian, which runs as the daemon's user and starts the CLI as the session's."""
        uid = spec.workspace.uid
        if uid is None:
            raise AssertionError("a session at this level is started within acquire_user")
        lock = self._locks[uid]
        return SandboxedCommand(
            before=guardian(uid, lock, spec), binary=str(spec.binary), guarded=True, inherited=(lock,)
        )


def described(cell: Cell) -> str:
    """Return the level of a cell in words: with what the operator has opened in it."""
    shares = cell.level is IsolationLevel.BUBBLEWRAP and not cell.has_network
    return f"{cell.level.value}, network shared" if shares else cell.level.value


def workspace_places(sessions_dir: Path) -> tuple[Path, ...]:
    """Return every directory below which any start of the daemon may have made workspaces, whatever its cell was."""
    return (sessions_dir, UserCell().workspaces(sessions_dir))


def named_in(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths that the values of variables name: ``/path``, ``/path:/path`` or ``unix:///path``."""
    found: list[Path] = []
    for value in environment.values():
        steps = [value.removeprefix(_UNIX)] if value.startswith(_UNIX) else value.split(":")
        found += [Path(step) for step in steps if step.startswith("/") and step.strip("/")]
    return tuple(found)


def docker_engine(environment: Mapping[str, str]) -> Path | None:
    """Return the engine's socket on this machine that a tier's variables name, or None."""
    named = environment.get(DOCKER_HOST, "")
    return Path(named.removeprefix(_UNIX)) if named.startswith(f"{_UNIX}/") else None


def filtered_engine(environment: Mapping[str, str], cell: Cell) -> Path | None:
    """Return the engine's socket that sessions reach through the filter alone; at level `none` they go around it."""
    return None if cell.level is IsolationLevel.NONE else docker_engine(environment)


def guardian(uid: int, lock: int, spec: SandboxSpec) -> tuple[str, ...]:
    """Return the command line of a guardian up to its lifeline; the group's id is the user's."""
    by_user = uid != _SAME_USER and spec.group is None
    limits = (processes_by_user(spec) if by_user else None, file_bytes(spec))
    return (
        *(sys.executable, "-I", "-S", str(_GUARDIAN), str(uid), str(uid), str(lock)),
        *(str(_NO_LIMIT if limit is None else limit) for limit in limits),
        limits_as_text(),
        "" if spec.group is None else str(spec.group.door),
        *(str(keyctl_number()), filter_as_text()),
    )


def limits_as_text() -> str:
    """Return the limits of every session, as launcher and guardian take them."""
    return ",".join(f"{limit}={most}" for limit, most in _LIMITS.items())


def processes_by_user(spec: SandboxSpec) -> int | None:
    """Return the bound on a session's processes, for a user that has only this session."""
    wanted = spec.bounds.processes
    return None if wanted is None else allowed(resource.RLIMIT_NPROC, wanted)


def file_bytes(spec: SandboxSpec) -> int | None:
    """Return the size in bytes that a single file of a session may have."""
    wanted = spec.bounds.file_bytes
    return None if wanted is None else allowed(resource.RLIMIT_FSIZE, wanted)


class SessionUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user that is leased to a session."""

    uid: int
    lock: int  # descriptor; the lease lasts while any process has it open


@contextlib.contextmanager
def lease_user(directory: Path) -> Iterator[SessionUser]:
    """Lease a user that no session on this machine has; raises `OSError`, also when all are taken.

    The guardian of a session kills every process of its user, so no two sessions may share one, not even sessions of
    different daemons. The kernel holds the lock: it ends with the last process that has it open, which is the guardian
    if the daemon was killed. A user that still has processes, because their guardian was killed too, is skipped.
    ``directory`` belongs to root.
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
    """Return the home that the machine's user database must have for a session's user.

    Not every program asks the environment: ``ssh`` looks in the user database, and refuses to run for an unknown user.
    """
    return directory / _HOMES / str(uid)


def link_home(directory: Path, uid: int, home: Path) -> None:
    """Point a user's listed home at the home of the session that has the user now; raises `OSError`."""
    listed = listed_home(directory, uid)
    listed.parent.mkdir(mode=_PASSABLE, exist_ok=True)
    fresh = listed.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(home)
    fresh.replace(listed)


def unlisted(directory: Path) -> int:
    """Return how many of the users for sessions are not in the machine's user database, or have another home there."""
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
    """Return the uids of all processes."""
    found: set[int] = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # gone meanwhile
                    found.add(entry.stat().st_uid)
    return found


# --- /proc ---------------------------------------------------------------------------------------------


_TELLS_TOO_MUCH: Final = frozenset(
    {
        *("keys", "key-users", "cmdline", "config.gz", "kallsyms", "kcore", "kmsg"),
        *("interrupts", "iomem", "ioports", "locks", "mtrr", "pagetypeinfo", "slabinfo", "vmallocinfo", "zoneinfo"),
        *("latency_stats", "sched_debug", "sysrq-trigger", "timer_list"),
    }
)
"""Of ``/proc``; what programs need to look at the machine (``meminfo``, ``stat``, ``loadavg``, ``modules``…) stays."""


def own_proc(nothing: Path) -> tuple[str, ...]:
    """Return the options for the session's ``/proc``: read-only, with covers for files that tell too much.

    Root on the machine can write root's files there even without capabilities, and a session's user is root if the
    daemon is: ``/proc/sys/kernel/core_pattern`` names a program that the kernel starts outside of every namespace.
    One mount that is read-only costs less than one for each directory: bubblewrap's time grows with their square.
    """
    covers: list[str] = []
    with os.scandir("/proc") as listed:
        entries = [entry for entry in listed if not entry.name.isdigit()]  # most are processes
    for entry in sorted(entries, key=attrgetter("name")):
        if entry.is_file(follow_symlinks=False) and _tells_too_much(entry):
            covers += ["--ro-bind", str(nothing), entry.path]
    return ("--proc", "/proc", *covers, "--remount-ro", "/proc")


def _tells_too_much(entry: os.DirEntry[str]) -> bool:
    """Return whether a file is not readable by everybody, or about the kernel and other users' keys."""
    return not entry.stat().st_mode & 0o004 or entry.name in _TELLS_TOO_MUCH
