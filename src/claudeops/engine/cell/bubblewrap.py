"""Level ``bubblewrap``: the command line that puts a session into namespaces, and what it sees there of the machine.

A session sees a list of mounts, and nothing that is not on the list. Their order matters: a mount covers what an
earlier one put at the same place, so they go from the root to the leaves, and what the daemon hides is covered exactly
where a directory above it is shown.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import (
    BASH,
    IsolationLevel,
    OwnFiles,
    SandboxedCommand,
    SandboxSpec,
    file_bytes,
    limits_as_text,
    own_proc,
    processes_by_user,
)
from claudeops.engine.cell.cgroups import ControlGroup
from claudeops.engine.cell.headers import trust
from claudeops.engine.cell.own_network import resolver_file
from claudeops.engine.cell.system_calls import filter_as_text, keyctl_number
from claudeops.engine.cell.workspace import Workspace
from claudeops.files import NEVER_WHOLE, resolve

UID: Final = 1000
"""The uid that a session sees as its own; on the machine it is the daemon's user."""

_SHARED_MEMORY_BYTES: Final = 64 * 1024 * 1024
_BLOCK_BYTES: Final = 1024  # of bash's ulimit

_ALWAYS: Final = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    "--die-with-parent",  # SIGKILL for everything in the namespace as soon as the daemon, or bubblewrap, is gone
    "--new-session",
)
# bubblewrap asks the kernel to be killed with the daemon, but does not check that the daemon still lived when it asked.
# When this shell runs, the request is in force; it waits for a word from the daemon, and without one nothing starts.
_WAIT_FOR_GO: Final = (
    'lifeline=$0; echo ready >&"$lifeline"; read -r go <&"$lifeline" || exit 125; exec {lifeline}>&-; exec "$@"'
)
_COUNTS_BY_NAMESPACE: Final = (5, 14)
"""Since this kernel RLIMIT_NPROC bounds a user's processes in one user namespace; before it, all of that user's."""

_OWN_USER: Final = ("--unshare-user", "--uid", str(UID), "--gid", str(UID))

LAUNCHER: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")))

_COUNTS: Final = {
    # Those of the daemon's user are shared among all that it runs, and one session could take all of them.
    "max_inotify_instances": 32,
    "max_inotify_watches": 65536,
    "max_fanotify_groups": 0,
    # What bubblewrap itself makes: two of users, the second for the change to the session's own; and one of each kind.
    # Where the session's files are in memory, the launcher makes another one of mounts.
    "max_user_namespaces": 2,
    **{f"max_{kind}_namespaces": 1 for kind in ("mnt", "pid", "ipc", "uts", "cgroup", "net")},
    "max_time_namespaces": 0,
}
"""What a session's user namespace allows, by the names of ``/proc/sys/user``."""

_MOUNTS: Final = "max_mnt_namespaces"

SYSTEM: Final = tuple(map(Path, ("/usr", "/nix/store")))
MERGED: Final = tuple(map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")))
"""Links into ``/usr`` on most systems, directories of their own on some."""

_ETC: Final = Path("/etc")
_OF_LIBRARIES: Final = frozenset(
    {
        *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives"),
        *("ssl/openssl.cnf", "pki/tls/openssl.cnf", "crypto-policies"),
    }
)
_IN_ETC: Final = tuple(
    _ETC / name
    for name in (
        *("hosts", "hostname", "resolv.conf", "nsswitch.conf", "host.conf", "gai.conf", "protocols", "services"),
        *("localtime", "timezone", "locale.alias", "locale.conf", "default/locale"),
        *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives"),
        *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf"),
        *("pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust", "crypto-policies"),
        *("ssh/ssh_config", "ssh/ssh_config.d", "ssh/ssh_known_hosts", "krb5.conf"),
        *("bash.bashrc", "profile", "inputrc", "mime.types", "terminfo", "os-release", "debian_version"),
    )
)
"""What programs look up in ``/etc``, and no more: it also holds passwords, host keys and the daemon's settings."""

_HOSTS: Final = Path("/etc/hosts")
_RESOLVER: Final = Path("/etc/resolv.conf")
_BY_MACHINE: Final = (_HOSTS, _RESOLVER)
_LOOK: Final = Path("/run/claudeops/look")
_LOOK_CLIENT: Final = Path(__file__).with_name("look_client.py")
DOCKER_SOCKET: Final = Path("/run/claudeops/docker.sock")
"""Where a session finds its filter before docker's engine."""

_TOOL_SHELL: Final = Path("/run/claudeops/bash")  # the CLI knows a shell by its name
AGENT_SOCKET: Final = Path("/run/claudeops/ssh-agent.sock")
"""Where a session finds the agent with its keys: its ``SSH_AUTH_SOCK``."""

KUBECONFIG_FILE: Final = Path("/run/claudeops/kubeconfig")
"""Where a session finds the kubeconfig of its filter before clusters."""

PYTHON: Final = Path(sys.executable).resolve()
"""The daemon's own interpreter, for programs of ours in a session."""

LOOK_CLIENT: Final = (str(PYTHON), "-I", "-S", str(_LOOK))
"""The words in front of the id of a look, in a session that has looks."""

LOGS: Final = ("/var/log", "/run/log/journal", "/etc/machine-id")
"""Logs; the journal is found by the machine's id. What only some users may read stays closed to others here too."""

_COMPOSE: Final = ("compose*.yml", "compose*.yaml", "docker-compose*.yml", "docker-compose*.yaml")
_MOST_PROJECTS: Final = 200  # directories of compose projects whose files are shown

_TMP: Final = Path("/tmp")  # noqa: S108 - the session gets one of its own there
_OTHERS_READ: Final = 0o4
_SHORT_BYTES: Final = 128 * 1024


class BubblewrapCell(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions in namespaces: processes, users, mounts, and the network unless the operator has it shared."""

    program: str  # path of bwrap
    hidden: tuple[Path, ...] = ()  # of the daemon: state, results, database, configuration
    level: IsolationLevel = IsolationLevel.BUBBLEWRAP
    interpreter: Path | None = None  # of the shell that keeps tools apart; None: bash itself is their shell
    has_network: bool = True  # of a session's own; False: it has the machine's
    no_files: str = "it was not tried"  # why a session's files cannot be in memory; "": they can

    def workspaces(self, sessions_dir: Path) -> Path:
        """Return the daemon's default: in a namespace it does not matter where the directories lie on the machine."""
        return sessions_dir

    def acquire_user(self) -> contextlib.AbstractContextManager[int | None]:
        """Acquire nothing: the namespace keeps sessions apart."""
        return contextlib.nullcontext(None)

    @property
    def keeps_tools_apart(self) -> bool:
        """Return whether there is a shell that does."""
        return self.interpreter is not None

    def hand_over(self, workspace: Workspace) -> None:
        """Write its shell; the session runs as the daemon's user."""
        workspaces.write_shell(workspace, self.interpreter)

    def shell(self, workspace: Workspace) -> str:  # noqa: ARG002 - it is at the same place in every session
        """Return the place of the shell in the session's view, or bash."""
        return str(_TOOL_SHELL if self.interpreter else BASH)

    def enclose(self, spec: SandboxSpec) -> SandboxedCommand:
        """Return bubblewrap with all that the session may see."""
        return self.enclosed(spec)[0]

    def enclosed(self, spec: SandboxSpec) -> tuple[SandboxedCommand, tuple[Mount, ...]]:
        """Return the same, and what the session sees: to find that out takes milliseconds. Accesses the disk."""
        nothing, own = spec.workspace.etc / "nothing", spec.network if self.has_network else None
        if own is not None:
            spec.workspace.hosts.write_text(own.hosts, encoding="ascii")
            spec.workspace.resolver.write_text(resolver_file(own.name_servers, _text_in(_RESOLVER)), encoding="utf-8")
            if own.authority:
                trust.write(spec.workspace.etc, own.authority, spec.trusted)
        mounts = self.mounts(spec)
        options = (
            *_ALWAYS,
            *(("--unshare-net",) if self.has_network and own is None else ()),
            *_shown_by(mounts),
            *own_proc(nothing),
            *("--dev", "/dev", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108
            *_sealed(mounts),
            *("--chdir", str(spec.workspace.workdir)),
        )
        command = (str(BASH), "-c", self._limits(spec) + _WAIT_FOR_GO)
        door = None if own is None else own.door
        before = self.launched(options, command, group=spec.group, door=door, files=spec.files)
        doors = (door, None if spec.files is None else spec.files.door)
        binary, inherited = str(spec.binary.resolve()), tuple(each for each in doors if each is not None)
        return SandboxedCommand(before=before, binary=binary, guarded=False, inherited=inherited), mounts

    def launched(
        self,
        options: Sequence[str],
        command: Sequence[str],
        *,
        group: ControlGroup | None = None,
        own_users: bool = True,
        door: int | None = None,
        files: OwnFiles | None = None,
    ) -> tuple[str, ...]:
        """Return the command line that becomes bubblewrap with these options, and with users of its own.

        Without ``own_users``, which only root can do, what runs is root on the machine: the options have to take its
        capabilities away. ``door`` is the descriptor over which a network of its own is made; without it that is left
        to the options. ``files``, which takes users of its own, are made in memory.
        """
        if files is not None and not own_users:
            raise AssertionError("without users of its own, files in memory would be mounted on the machine")
        counts = _COUNTS if files is None else {**_COUNTS, _MOUNTS: _COUNTS[_MOUNTS] + 1}
        words = (self.program, *(_OWN_USER if own_users else ()), *options)
        return (
            *LAUNCHER,
            "" if group is None else str(group.door),
            str(keyctl_number()),
            ",".join(f"{name}={most}" for name, most in counts.items()) if own_users else "",
            limits_as_text(),
            filter_as_text(),
            "" if door is None else str(door),
            "" if files is None else f"{files.door},{files.most_bytes},{files.most_files},{files.place}",
            *(str(len(words)), *words),
            *command,
        )

    def bare(self, options: Sequence[str], command: Sequence[str], *, calls: int) -> tuple[str, ...]:
        """Return the command line of bubblewrap itself, for a program of ours for which a session waits.

        The launcher takes longer to start than all the rest. Such a program does without what it gives: limits on what
        the kernel counts by user, and a keyring; the filter of system calls, which is in the descriptor ``calls``,
        refuses it all keyrings.
        """
        return (self.program, *_OWN_USER, *options, "--seccomp", str(calls), "--", *command)

    def mounts(self, spec: SandboxSpec) -> tuple[Mount, ...]:
        """Return everything that a session sees. Accesses the disk."""
        hidden = tuple(path.resolve() for path in (*self.hidden, *spec.hidden))
        nothing = spec.workspace.etc / "nothing"
        return session_mounts(spec, hidden=hidden, nothing=nothing, has_shell=self.interpreter is not None)

    def counts_processes(self) -> bool:
        """Return whether the kernel bounds the processes of a session without a control group.

        It does so in a user namespace, which has no other processes. Not if the daemon is root: root on the machine
        has no such bound, in any namespace and even without capabilities.
        """
        return os.geteuid() != 0 and _kernel() >= _COUNTS_BY_NAMESPACE

    def _limits(self, spec: SandboxSpec) -> str:
        """Return the first line of the shell's script, which runs in the namespace, where the kernel counts from 0."""
        limits = ["-c 0"]
        if (size := file_bytes(spec)) is not None:
            limits.append(f"-f {size // _BLOCK_BYTES}")
        if spec.group is None and self.counts_processes() and (processes := processes_by_user(spec)) is not None:
            limits.append(f"-u {processes}")
        return f"ulimit {' '.join(limits)} || exit 125; "


class MountKind(Enum):
    """What is mounted at a place."""

    READ_ONLY = "--ro-bind"
    WRITABLE = "--bind"
    LINK = "--symlink"
    EMPTY = "--tmpfs"


class Mount(msgspec.Struct, frozen=True):
    """One place in the session's view."""

    place: Path
    kind: MountKind
    source: Path  # on the machine; for a link its target; for an empty directory the place itself

    @property
    def reveals(self) -> bool:
        """Whether the files below the place are those at the same place on the machine."""
        return self.kind is MountKind.READ_ONLY and self.source == self.place

    def arguments(self) -> tuple[str, ...]:
        """Return bubblewrap's arguments for the mount."""
        if self.kind is MountKind.EMPTY:
            return (self.kind.value, str(self.place))
        return (self.kind.value, str(self.source), str(self.place))


def interpreter() -> tuple[Path, ...]:
    """Return the directories of the daemon's own interpreter, for programs of ours in a session."""
    return _on_path(str(PYTHON.parent))


def program_mounts() -> tuple[Mount, ...]:
    """Return programs and libraries, with what these need to start, and nothing else of the machine."""
    return tuple(
        mount
        for mount in system_mounts()
        if not mount.place.is_relative_to(_ETC) or str(mount.place.relative_to(_ETC)) in _OF_LIBRARIES
    )


def system_mounts() -> tuple[Mount, ...]:
    """Return what every session sees: programs, libraries, and the files that they look up."""
    found = [_shown(place) for place in SYSTEM if place.is_dir()]
    for place in MERGED:
        if place.is_symlink():
            found.append(Mount(place, MountKind.LINK, place.readlink()))
        elif place.is_dir():
            found.append(_shown(place))
    found += [Mount(place, MountKind.READ_ONLY, resolve(place)) for place in _IN_ETC if _for_everybody(place)]
    return tuple(found)


def _text_in(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a machine without such a file asks no server
        return ""


def session_mounts(
    spec: SandboxSpec, *, hidden: Sequence[Path], nothing: Path, has_shell: bool = False
) -> tuple[Mount, ...]:
    """Return everything that one session sees, root first.

    ``hidden``: resolved paths of the daemon that must stay hidden, even if a directory above them is shown.
    ``nothing``: an empty file that covers hidden files. ``has_shell``: there is one in its directory for its tools.
    """
    workspace = spec.workspace
    held = workspace if spec.files is None else Workspace(spec.files.place)
    own = () if spec.network is None else ((_HOSTS, workspace.hosts), (_RESOLVER, workspace.resolver))
    wanted = [Mount(place, MountKind.READ_ONLY, source) for place, source in own]
    if spec.network is not None and spec.network.authority:
        everything, more = (workspace.etc / place.name for place in (trust.ALL, trust.MORE))
        wanted += [Mount(trust.ALL, MountKind.READ_ONLY, everything), Mount(trust.MORE, MountKind.READ_ONLY, more)]
        wanted += [Mount(place, MountKind.READ_ONLY, everything) for place in trust.covered()]
    wanted += [
        *system_mounts(),
        *(Mount(place, MountKind.WRITABLE, source) for place, source in zip(workspace.own, held.own, strict=True)),
        *(Mount(Path(place), MountKind.WRITABLE, held.tmpdir) for place in (_TMP, "/var/tmp")),  # noqa: S108
        *(Mount(Path("/etc", name), MountKind.READ_ONLY, workspace.etc / name) for name in ("passwd", "group")),
        *(mount for path in (spec.repos_dir, *_program(spec.binary)) for mount in _both(path, resolve(path))),
    ]
    programs = _on_path(spec.path)
    if spec.look_socket is not None:
        wanted += [Mount(_LOOK, MountKind.READ_ONLY, _LOOK_CLIENT)]
        wanted += [Mount(_LOOK.with_suffix(".sock"), MountKind.READ_ONLY, spec.look_socket)]
    wanted += [Mount(place, MountKind.READ_ONLY, source) for place, source in spec.given.items()]
    if has_shell:
        wanted += [Mount(_TOOL_SHELL, MountKind.READ_ONLY, workspace.shell)]
    if has_shell or spec.look_socket is not None:
        programs += interpreter()
    logs = (place for name in LOGS if _for_everybody(place := Path(name)))
    for path in (*programs, *spec.shown, *logs, *_compose_files(spec.projects)):
        if path.exists() and _may_be_shown(found := resolve(path), hidden):
            wanted += _both(path, found)
    return tuple(_covered(_without_repetition(wanted), hidden, nothing))


def _compose_files(projects: Iterable[str]) -> Iterator[Path]:
    """Yield the compose files in directories, and nothing that lies beside them: there are secrets and data."""
    for project in islice(projects, _MOST_PROJECTS):
        for pattern in _COMPOSE:
            try:
                found = sorted(Path(project).glob(pattern))
            except OSError:
                continue
            yield from (path for path in found if not path.is_symlink() and path.is_file())


def _shown_by(mounts: Iterable[Mount]) -> Iterator[str]:
    """Yield the launcher's arguments that show what mounts say; short files of /etc are copied.

    bubblewrap reads the list of all mounts at each mount, so that seventy take three times as long as forty. What
    leads to other machines stays mounted: the machine may write it anew, into the same file, while a session runs.
    """
    mounted: dict[str, Mount] = {}
    for mount in mounts:
        place = str(mount.place)
        is_of_etc = place.startswith(f"{_ETC}/") and mount.place not in _BY_MACHINE
        may_be_copied = is_of_etc and mount.kind is MountKind.READ_ONLY and _above(place, mounted) is None
        if may_be_copied and _is_short(mount.source):
            yield from ("--copy", str(mount.source), place)
        else:
            yield from mount.arguments()
            mounted[place] = mount


def _is_short(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _SHORT_BYTES


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _sealed(mounts: Sequence[Mount]) -> tuple[str, ...]:
    """Return the arguments that make bubblewrap's own directories read-only, or a session could fill memory there."""
    made = [Path("/"), Path("/dev"), *(mount.place for mount in mounts if mount.kind is MountKind.EMPTY)]
    return tuple(argument for place in made for argument in ("--remount-ro", str(place)))


def _shown(path: Path) -> Mount:
    return Mount(path, MountKind.READ_ONLY, path)


def _both(path: Path, found: Path) -> tuple[Mount, ...]:
    """Return mounts for a path at its real place, and also under its own name if that leads there by links."""
    return (_shown(found),) if found is path else (_shown(found), Mount(path, MountKind.READ_ONLY, found))


def _for_everybody(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS_READ)
    except OSError:
        return False


def _program(binary: Path) -> tuple[Path, ...]:
    """Return the files of a program: itself, and for a Node script its package too."""
    real = binary.resolve()
    steps = real.parts
    if "node_modules" not in steps:
        return (binary,)
    below = len(steps) - 1 - steps[::-1].index("node_modules")
    depth = below + (3 if steps[below + 1].startswith("@") else 2)
    return (binary, Path(*steps[:depth]))


def _on_path(path: str) -> tuple[Path, ...]:
    """Return the directories of PATH, each with the library directories beside it, which programs need."""
    found: list[Path] = []
    for entry in path.split(":"):
        directory = Path(entry)
        if not directory.is_absolute() or resolve(directory) in NEVER_WHOLE:
            continue
        found.append(directory)
        if directory.name in {"bin", "sbin"} and directory.parent not in NEVER_WHOLE:
            found += [directory.parent / name for name in ("lib", "lib64", "libexec")]
    return tuple(found)


def _may_be_shown(path: Path, hidden: Sequence[Path]) -> bool:
    """Return whether a path neither is, nor contains, nor lies in anything that is hidden."""
    place, others = _with_slash(path), map(_with_slash, hidden)
    return path not in NEVER_WHOLE and not any(place.startswith(other) or other.startswith(place) for other in others)


def _with_slash(path: Path) -> str:
    """Return a directory's path as everything in it begins; the root has its slash already."""
    return f"{path}".rstrip("/") + "/"


def _without_repetition(wanted: Iterable[Mount]) -> list[Mount]:
    """Return one mount per place, root first, without those that another mount or a link shows already."""
    chosen: dict[str, Mount] = {}
    for mount in wanted:
        chosen.setdefault(str(mount.place), mount)
    kept: dict[str, Mount] = {}
    for place, mount in sorted(chosen.items(), key=lambda item: _from_root(item[1])):
        above = _above(place, kept)
        if above is not None and (above.kind is MountKind.LINK or (above.reveals and mount.reveals)):
            continue
        is_below = above is not None and above.reveals and mount.kind is MountKind.READ_ONLY
        if is_below and mount.source == resolve(mount.place):
            continue
        kept[place] = mount
    return list(kept.values())


def _covered(mounts: Iterable[Mount], hidden: Sequence[Path], nothing: Path) -> list[Mount]:
    """Return the mounts with a cover over everything hidden that one of them would reveal."""
    chosen = {str(mount.place): mount for mount in mounts}
    for path in sorted(hidden, key=lambda hide: (len(hide.parts), hide)):
        place = str(path)
        above = _above(place, chosen)
        if above is None or not above.reveals or place in chosen:
            continue
        if path.is_dir():
            chosen[place] = Mount(path, MountKind.EMPTY, path)
        elif path.exists():
            chosen[place] = Mount(path, MountKind.READ_ONLY, nothing)
    return sorted(chosen.values(), key=_from_root)


def _from_root(mount: Mount) -> tuple[int, list[str]]:
    parts = str(mount.place).split("/")
    return len(parts), parts


def _above(place: str, mounts: Mapping[str, Mount]) -> Mount | None:
    """Return the nearest mount above a place."""
    while place not in {"", "/"}:
        place = place.rpartition("/")[0] or "/"
        if (mount := mounts.get(place)) is not None:
            return mount
    return None
