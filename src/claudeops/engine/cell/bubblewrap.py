"""Level ``bubblewrap``: a command line that puts a session into namespaces of its own.

What a session in namespaces sees of the machine: a list of mounts, nothing that is not on it.

Order is everything: a mount covers what an earlier one put at the same place, so they go from the root to the leaves,
and what the daemon hides is covered exactly where a directory above it was shown.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from claudeops.engine.cell.cell import Level, SandboxedCommand, SandboxSpec, file_bytes, processes_by_user
from claudeops.engine.cell.workspace import Workspace

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

SYSTEM: Final = ("/usr", "/nix/store")
MERGED: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into ``/usr`` on most systems, directories of their own on some."""

ETC: Final = (
    *("hosts", "hostname", "resolv.conf", "nsswitch.conf", "host.conf", "gai.conf", "protocols", "services"),
    *("localtime", "timezone", "locale.alias", "locale.conf", "default/locale"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives"),
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf"),
    *("pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust", "crypto-policies"),
    *("ssh/ssh_config", "ssh/ssh_config.d", "ssh/ssh_known_hosts", "krb5.conf"),
    *("bash.bashrc", "profile", "inputrc", "mime.types", "terminfo", "os-release", "debian_version"),
)
"""What programs look up, and nothing else: ``/etc`` also holds passwords, host keys and the daemon's own settings."""

_ROOT: Final = Path("/")
_TMP: Final = Path("/tmp")  # noqa: S108 - the session gets one of its own there
_NEVER_ON_PATH: Final = frozenset(map(Path, ("/", "/etc", "/root", "/home", "/var", "/proc", "/sys", "/dev", "/run")))
_OTHERS_READ: Final = 0o4


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

    def acquire_user(self) -> contextlib.AbstractContextManager[int | None]:
        """Hold nobody: the namespace keeps sessions apart."""
        return contextlib.nullcontext(None)

    def hand_over(self, workspace: Workspace) -> None:
        """Do nothing: it is the daemon's user."""

    def enclose(self, inside: SandboxSpec) -> SandboxedCommand:
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
        return SandboxedCommand(before=before, binary=str(inside.binary.resolve()), guarded=False)

    def counts_processes(self) -> bool:
        """Say whether the kernel bounds the processes of a session without a control group.

        It does so in a user namespace, which has nobody else's processes. Not for root: whoever is that on the machine
        has no such bound, in whatever namespace and without any capability.
        """
        own_users = "--unshare-user" in self.variant
        return own_users and os.geteuid() != 0 and _kernel() >= _COUNTS_BY_NAMESPACE

    def _limits(self, inside: SandboxSpec) -> str:
        """Return the beginning of the shell's script; in the namespace, for there the kernel counts anew."""
        limits = ["-c 0"]
        if (size := file_bytes(inside)) is not None:
            limits.append(f"-f {size // _BLOCK_BYTES}")
        if inside.group is None and self.counts_processes() and (processes := processes_by_user(inside)) is not None:
            limits.append(f"-u {processes}")
        return f"ulimit {' '.join(limits)} || exit 125; "


class Kind(Enum):
    """What is put at a place."""

    READ_ONLY = "--ro-bind"
    WRITABLE = "--bind"
    LINK = "--symlink"
    EMPTY = "--tmpfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """One place in the session's view."""

    place: Path
    kind: Kind
    source: Path  # on the machine; for a link: where it leads; for an empty directory: the place

    @property
    def reveals(self) -> bool:
        """Whether things below the place are those that are there on the machine."""
        return self.kind is Kind.READ_ONLY and self.source == self.place

    def arguments(self) -> tuple[str, ...]:
        """Return it as bubblewrap takes it."""
        if self.kind is Kind.EMPTY:
            return (self.kind.value, str(self.place))
        return (self.kind.value, str(self.source), str(self.place))


def system_mounts() -> tuple[Mount, ...]:
    """Return what every session sees: programs, libraries, and what those look up."""
    found = [_shown(Path(name)) for name in SYSTEM if Path(name).is_dir()]
    for name in MERGED:
        place = Path(name)
        if place.is_symlink():
            found.append(Mount(place, Kind.LINK, place.readlink()))
        elif place.is_dir():
            found.append(_shown(place))
    found += [
        Mount(place, Kind.READ_ONLY, place.resolve()) for name in ETC if _for_everybody(place := Path("/etc", name))
    ]
    return tuple(found)


def session_mounts(inside: SandboxSpec, *, hidden: Sequence[Path], nothing: Path) -> tuple[Mount, ...]:
    """Return what one session sees beside the system, root first.

    ``hidden``: resolved paths of the daemon that must not be seen, whatever is shown above them. ``nothing`` is an
    empty file.
    """
    workspace = inside.workspace
    own = (workspace.home, workspace.workdir, workspace.tmpdir, workspace.state_dir)
    wanted = [
        *system_mounts(),
        *(Mount(directory, Kind.WRITABLE, directory) for directory in own),
        *(Mount(Path(place), Kind.WRITABLE, workspace.tmpdir) for place in (_TMP, "/var/tmp")),  # noqa: S108
        *(Mount(Path("/etc", name), Kind.READ_ONLY, workspace.etc / name) for name in ("passwd", "group")),
        *_both(inside.repos_dir),
        *(mount for path in _program(inside.binary) for mount in _both(path)),
    ]
    for path in (*_on_path(inside.path), *inside.shown):
        if path.exists() and _may_be_shown(path.resolve(), hidden):
            wanted += _both(path)
    return tuple(_covered(_without_repetition(wanted), hidden, nothing))


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


def _shown(path: Path) -> Mount:
    return Mount(path, Kind.READ_ONLY, path)


def _both(path: Path) -> tuple[Mount, ...]:
    """Return a path where it really is, and under the name it was given if that leads there by links."""
    real = path.resolve()
    return (_shown(real),) if real == path else (_shown(real), Mount(path, Kind.READ_ONLY, real))


def _for_everybody(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS_READ)
    except OSError:
        return False


def _program(binary: Path) -> tuple[Path, ...]:
    """Return what belongs to a program: itself, or the package that a script of Node's stands in."""
    real = binary.resolve()
    steps = real.parts
    if "node_modules" not in steps:
        return (binary,)
    below = len(steps) - 1 - steps[::-1].index("node_modules")
    depth = below + (3 if steps[below + 1].startswith("@") else 2)
    return (binary, Path(*steps[:depth]))


def _on_path(path: str) -> tuple[Path, ...]:
    """Return the directories of PATH, each with the libraries beside it: programs look for them there."""
    found: list[Path] = []
    for entry in path.split(":"):
        directory = Path(entry)
        if not directory.is_absolute() or directory.resolve() in _NEVER_ON_PATH:
            continue
        found.append(directory)
        if directory.name in {"bin", "sbin"} and directory.parent not in _NEVER_ON_PATH:
            found += [directory.parent / name for name in ("lib", "lib64", "libexec")]
    return tuple(found)


def _may_be_shown(path: Path, hidden: Sequence[Path]) -> bool:
    """Say whether a path neither is nor holds nor lies in anything that is hidden."""
    return path not in _NEVER_ON_PATH and not any(
        path == other or path.is_relative_to(other) or other.is_relative_to(path) for other in hidden
    )


def _without_repetition(wanted: Iterable[Mount]) -> list[Mount]:
    """Return one mount a place, root first; left out is what another one shows already, or leads to by a link."""
    chosen: dict[Path, Mount] = {}
    for mount in wanted:
        chosen.setdefault(mount.place, mount)
    kept: dict[Path, Mount] = {}
    for place, mount in sorted(chosen.items(), key=lambda item: (len(item[0].parts), item[0])):
        above = _above(place, kept)
        if above is not None and (above.kind is Kind.LINK or (above.reveals and mount.reveals)):
            continue
        if above is not None and above.reveals and mount.source == place.resolve() and mount.kind is Kind.READ_ONLY:
            continue
        kept[place] = mount
    return list(kept.values())


def _covered(mounts: Iterable[Mount], hidden: Sequence[Path], nothing: Path) -> list[Mount]:
    """Return the mounts with a cover over everything hidden that one of them would reveal."""
    chosen = {mount.place: mount for mount in mounts}
    for path in sorted(hidden, key=lambda hide: (len(hide.parts), hide)):
        above = _above(path, chosen)
        if above is None or not above.reveals or path in chosen:
            continue
        if path.is_dir():
            chosen[path] = Mount(path, Kind.EMPTY, path)
        elif path.exists():
            chosen[path] = Mount(path, Kind.READ_ONLY, nothing)
    return sorted(chosen.values(), key=lambda mount: (len(mount.place.parts), mount.place))


def _above(place: Path, mounts: dict[Path, Mount]) -> Mount | None:
    """Return the nearest mount above a place."""
    return next((mounts[parent] for parent in place.parents if parent in mounts), None)
