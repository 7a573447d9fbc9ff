"""Level ``bubblewrap``: a command line that puts a session into namespaces of its own."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claudeops.engine.cell import Enclosed, Level, file_bytes, processes_by_user
from claudeops.engine.cell_mounts import Kind, session_mounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from claudeops.engine.cell import Inside
    from claudeops.engine.cell_mounts import Mount
    from claudeops.engine.workspace import Workspace

UID: Final = 1000
"""Who a session is in its own eyes; on the machine it is the daemon's user."""

_SHARED_MEMORY_BYTES: Final = 64 * 1024 * 1024
_BLOCK_BYTES: Final = 1024  # of bash's ulimit

_ALWAYS: Final = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    "--die-with-parent",  # SIGKILL for everything inside as soon as the daemon, or bubblewrap, is gone
    "--new-session",
)
# bubblewrap asks the kernel to be ended with the daemon, but not whether the daemon was still there when it asked. By
# the time that this shell runs the request stands, so it waits for a word from the daemon: without one, nothing starts.
_WHEN_TOLD: Final = (
    'lifeline=$0; echo ready >&"$lifeline"; read -r go <&"$lifeline" || exit 125; exec {lifeline}>&-; exec "$@"'
)
# Outside, where the kernel's tree of control groups is: everything that comes after it is counted.
_IN_GROUP: Final = ("/bin/sh", "-c", 'echo 0 > "$0" || exit 125; exec "$@"')

_COUNTS_BY_NAMESPACE: Final = (5, 14)
"""From this kernel on such a bound is for a user's processes in one user namespace; before it, for all of them."""

_OWN_USERS: Final = ("--unshare-user", "--uid", str(UID), "--gid", str(UID))

VARIANTS: Final[tuple[tuple[str, ...], ...]] = (
    (*_OWN_USERS, "--disable-userns"),  # nobody inside can make namespaces, and with them capabilities
    _OWN_USERS,  # bubblewrap before 0.8 cannot forbid that
    ("--cap-drop", "ALL"),  # root, where user namespaces are switched off
)
"""What differs between machines, the strongest first; the probe says which works."""

_NOT_OF_PROC: Final = frozenset({"self", "thread-self", "net", "mounts"})
"""Links into the session's own processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BubblewrapCell:
    """Sessions in namespaces: processes, users, mounts; the network is shared, for the meter and the services."""

    program: str  # path of bwrap
    variant: tuple[str, ...]  # one of `VARIANTS`
    hidden: tuple[Path, ...] = ()  # of the daemon: state, results, database, configuration
    level: Level = Level.BUBBLEWRAP

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return the daemon's own choice: where a session's directories lie on the machine does not matter here."""
        return sessions_dir

    def tenancy(self) -> contextlib.AbstractContextManager[int | None]:
        """Hold nobody: the namespace keeps sessions apart."""
        return contextlib.nullcontext(None)

    def hand_over(self, workspace: Workspace) -> None:
        """Do nothing: it is the daemon's user."""

    def enclose(self, inside: Inside) -> Enclosed:
        """Return bubblewrap with all that the session may see."""
        nothing = inside.workspace.etc / "nothing"
        hidden = tuple(path.resolve() for path in self.hidden)
        mounts = session_mounts(inside, hidden=hidden, nothing=nothing)
        before = (
            *(() if inside.group is None else (*_IN_GROUP, str(inside.group.door))),
            *(self.program, *_ALWAYS, *self.variant),
            *(argument for mount in mounts for argument in mount.arguments()),
            *("--proc", "/proc", *_proc_covers(nothing)),
            *("--dev", "/dev", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108
            *_sealed(mounts),
            *("--chdir", str(inside.workspace.workdir), "--", "/bin/bash", "-c", self._limits(inside) + _WHEN_TOLD),
        )
        return Enclosed(before=before, binary=str(inside.binary.resolve()), guarded=False)

    def counts_processes(self) -> bool:
        """Say whether the kernel bounds the processes of a session without a control group.

        It does so in a user namespace, which has nobody else's processes. Not for root: whoever is that on the machine
        has no such bound, in whatever namespace and without any capability.
        """
        own_users = "--unshare-user" in self.variant
        return own_users and os.geteuid() != 0 and _kernel() >= _COUNTS_BY_NAMESPACE

    def _limits(self, inside: Inside) -> str:
        """Return the beginning of the shell's script; in the namespace, for there the kernel counts anew."""
        limits = ["-c 0"]
        if (size := file_bytes(inside)) is not None:
            limits.append(f"-f {size // _BLOCK_BYTES}")
        if inside.group is None and self.counts_processes() and (processes := processes_by_user(inside)) is not None:
            limits.append(f"-u {processes}")
        return f"ulimit {' '.join(limits)} || exit 125; "


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _proc_covers(nothing: Path) -> tuple[str, ...]:
    """Return read-only covers for everything in ``/proc`` that is not a process.

    Files there that belong to root can be written by whoever is root on the machine, with no capability at all, and
    such is a session's user where the daemon is root: ``/proc/sys/kernel/core_pattern`` names a program that the
    kernel starts outside of every namespace. bubblewrap 0.8 covers directories that are writable themselves, and
    ``/proc/sys`` is not, though the files in it are.
    """
    covers: list[str] = []
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name.isdigit() or entry.name in _NOT_OF_PROC or entry.is_symlink():
            continue
        if entry.is_dir():
            covers += ["--ro-bind", str(entry), str(entry)]
        elif _changes_or_tells_too_much(entry):
            covers += ["--ro-bind", str(nothing), str(entry)]
    return tuple(covers)


def _changes_or_tells_too_much(entry: Path) -> bool:
    """Say whether a file is writable for its owner, or meant for its owner alone."""
    mode = entry.stat().st_mode
    return bool(mode & 0o222) or not mode & 0o004


def _sealed(mounts: Sequence[Mount]) -> tuple[str, ...]:
    """Return what makes the places that bubblewrap made read-only: else a session could fill the memory there."""
    made = [Path("/"), Path("/dev"), *(mount.place for mount in mounts if mount.kind is Kind.EMPTY)]
    return tuple(argument for place in made for argument in ("--remount-ro", str(place)))
