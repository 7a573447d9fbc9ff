"""The walls around a session: for each what is tried at it, and what it promises at each level.

One table for the tests, which try it, and for ``docs/discussions/the-cell.md``, which shows it
(``python -m support.walls`` in ``tests`` prints it).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from claudeops.engine.cell.cell import IsolationLevel
from support.system_call_tries import Tries, by_argument, calls, with_namespaces

FILE_MB: Final = 1
"""The bound on a file of a session that tries."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that holds a secret in memory and environment, and has a file open."""

    pid: int
    address: int  # of the secret in its memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Things:
    """What lies about on the machine for a program to reach."""

    secret: str  # in everything that is not for sessions
    mark: str  # in the arguments of processes, and in the names of files and keys
    listed: tuple[int, int]  # ports of 127.0.0.1 on the session's network: TCP, UDP
    tcp: tuple[tuple[str, int], ...]  # addresses and ports that are not
    udp: tuple[tuple[str, int], ...]
    abstract: str
    own_socket: Path  # the daemon's
    everybodys_socket: Path
    own_files: tuple[Path, ...]  # the daemon's
    everybodys_files: tuple[Path, ...]
    engine: Path  # a socket behind a filter, in a directory that is shown to the session
    credentials: tuple[Path, ...]  # files behind a filter, in the same
    repos: Path
    segment: int  # the key of the daemon's shared memory
    key: int  # the number of the key in the daemon's session keyring
    daemon: Process
    neighbour: Process  # of another session at the same level, as it is seen outside
    stands_before: int  # the pid, outside, of what holds the session: bubblewrap or the guardian
    numbers: Mapping[str, int]  # of system calls


class Promise(Enum):
    """What a wall promises at a level: how the table says it, and what tells apart two that it says alike."""

    CLOSED = ("closed",)
    OPEN = ("**open**",)
    AS_DAEMON = ("**as the daemon**",)  # reached is what the daemon's user may reach
    BUT_FOR_TOOLS = ("**as the daemon**; closed to tools that are kept apart",)
    ABSTRACT = ("**open**; from Linux 6.12 on closed to tools that are kept apart",)
    APART = ("closed", "where the level keeps tools apart")
    APART_BUT_FOR_ROOT = ("closed, but for a daemon that is root", "where the level keeps tools apart")
    BUT_FOR_ROOT = ("closed, but for a daemon that is root",)

    @property
    def said(self) -> str:
        said: str = self.value[0]
        return said

    def lets_through(self, *, outside: bool, is_tool: bool, apart: bool, scoped: bool) -> bool | None:
        """Return whether something is to be reached; ``outside``: whether it is without a cell. None: as it comes.

        ``apart``: the level keeps tools apart. ``scoped``: where it does, the kernel closes abstract sockets too.
        """
        closed_to_it = is_tool and apart
        answers: dict[Promise, bool | None] = {
            Promise.CLOSED: False,
            Promise.OPEN: True,
            Promise.AS_DAEMON: outside,
            Promise.BUT_FOR_TOOLS: outside and not closed_to_it,
            Promise.ABSTRACT: not (closed_to_it and scoped),
            Promise.APART: not apart,
            Promise.APART_BUT_FOR_ROOT: not apart,
            Promise.BUT_FOR_ROOT: None if os.geteuid() == 0 else False,  # root need not have every capability
        }
        return answers[self]


CLOSED, OPEN, AS_DAEMON = Promise.CLOSED, Promise.OPEN, Promise.AS_DAEMON


@dataclass(frozen=True, kw_only=True, slots=True)
class Wall:
    """What is tried at one wall, and what it promises."""

    what: str
    promises: tuple[Promise, Promise, Promise]  # in the order of the levels
    held_by: str
    not_held: str
    tries: Callable[[Things], Tries]
    only_root: bool = False  # outside it takes root to reach this
    of_tools: bool = False  # is tried in the place of a tool alone, which adds it by itself

    def promise(self, level: IsolationLevel) -> Promise:
        return self.promises[list(IsolationLevel).index(level)]


def keys(things: Things) -> Tries:
    add, ask, keyctl = (things.numbers[name] for name in ("add_key", "request_key", "keyctl"))
    return {
        "finding a key of the daemon": ("find_key", keyctl, things.mark, things.secret),
        "reading a key by its number": ("read_key", keyctl, things.key, things.secret),
        "requesting a key": ("request_key", ask, things.mark),
        "leaving a key": ("leave_key", add, f"left-{things.mark}"),
    }


def looks_into(whose: str, process: Process, things: Things) -> Tries:
    """Return tries to look into a process."""
    pid, address, secret, mark = process.pid, process.address, things.secret, things.mark
    return {
        f"memory of {whose}": ("memory", pid, address, secret),
        f"environment of {whose}": ("read", f"/proc/{pid}/environ", secret),
        f"place of {whose}": ("place_of", pid, mark),
        f"descriptors of {whose}": ("opened", pid, mark),
    }


def files_by_processes(things: Things) -> Tries:
    """Return tries to reach a file of the daemon's by the roots of processes."""
    file = things.own_files[0]
    return {f"root of {each}": ("read", f"/proc/{each}/root{file}", things.secret) for each in (1, "self")}


def closed_files() -> list[Path]:
    """Return files of the machine that only root may read, as far as the test's user can tell."""
    wanted = [Path("/etc", name) for name in ("shadow", "gshadow", "sudoers")] + [Path("/proc/kcore")]
    wanted += sorted(Path("/etc/ssh").glob("ssh_host_*_key"))
    wanted = [path for path in wanted if path.exists() and not path.stat().st_mode & 0o004]
    home = Path("/root")  # others may not even pass it
    return wanted + (sorted(filter(Path.is_file, home.iterdir()))[:2] if os.access(home, os.R_OK) else [])


def devices() -> list[str]:
    """Return some devices of the machine that only root may open."""
    names = ("mem", "port", "loop0", "vda", "sda", "nvme0n1", "kvm", "console", "loop-control")
    found = [Path("/dev", name) for name in names]
    return [str(path) for path in found if path.exists() and not path.stat().st_mode & 0o006]


WITHIN_ALONE: Final = frozenset({"sockets of other families"})
"""What is tried in a cell alone: outside the kernel would load what it needs for it."""

PERHAPS: Final = frozenset(
    {
        *("root of 1", "environment of process 1", "setting kernel/modprobe", "sysrq", "sysfs", "control groups"),
        *("devices", "sockets vsock", "socket of Docker"),
    }
)
"""What not every machine has, and what some keep even from root."""

KERNELS_FILES: Final = ("kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "net/core/somaxconn")

SYSFS: Final = ("kernel/mm/transparent_hugepage/enabled", "power/state", "kernel/uevent_helper")

WALLS: Final = (
    Wall(
        what="addresses and ports that are listed for the session",
        promises=(OPEN, OPEN, OPEN),
        held_by="the forwarder connects outside",
        not_held="what such a place does with what it is told",
        tries=lambda things: {
            "listed TCP": ("stream", "127.0.0.1", things.listed[0]),
            "listed UDP": ("datagram", "127.0.0.1", things.listed[1]),
        },
    ),
    Wall(
        what="other ports of the machine, on loopback and its other addresses, TCP and UDP",
        promises=(CLOSED, OPEN, OPEN),
        held_by="a network namespace",
        not_held="sockets that are files",
        tries=lambda things: {
            **{f"TCP {address}": ("stream", address, port) for address, port in things.tcp},
            **{f"UDP {address}": ("datagram", address, port) for address, port in things.udp},
        },
    ),
    Wall(
        what="abstract sockets of the machine",
        promises=(CLOSED, Promise.ABSTRACT, Promise.ABSTRACT),
        held_by="a network namespace; Landlock",
        not_held="at `user` and `none`: the CLI itself, which runs no command",
        tries=lambda things: {"abstract socket": ("socket_file", f"@{things.abstract}")},
    ),
    Wall(
        what="changing the network, sending packets of one's own making",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="no capability",
        not_held="servers on the session's own loopback",
        tries=lambda _: {"changing the network": ("change_network",), "packets of one's own": ("packets",)},
        only_root=True,
    ),
    Wall(
        what="the daemon's own sockets that are files",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="the view of files; permissions",
        not_held="what the operator names for the tier",
        tries=lambda things: {
            "socket of the daemon": ("socket_file", str(things.own_socket)),
            "socket of Docker": ("socket_file", "/run/docker.sock"),
        },
    ),
    Wall(
        what="what filters stand before, wherever it is shown: Docker's socket, kubeconfigs, their keys and tokens",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="covers within the view of files; permissions",
        not_held="what a filter lets through",
        tries=lambda things: {
            "socket behind a filter": ("socket_file", str(things.engine)),
            **{f"{path.name} behind a filter": ("read", str(path), things.secret) for path in things.credentials},
        },
    ),
    Wall(
        what="sockets and files for everybody, in `/tmp`, `/dev/shm` and elsewhere",
        promises=(CLOSED, OPEN, OPEN),
        held_by="the view of files",
        not_held="`/usr`, the logs that everybody may read, what the tier's settings name",
        tries=lambda things: {
            "everybody's socket": ("socket_file", str(things.everybodys_socket)),
            **{f"everybody's {path.parent}": ("read", str(path), things.secret) for path in things.everybodys_files},
        },
    ),
    Wall(
        what="the daemon's state, database, settings and results, homes of tiers and of other sessions",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="the view of files, covers within it; permissions",
        not_held="at `user`: what the operator has opened to every user",
        tries=lambda things: {
            **{f"file {path.name}": ("read", str(path), things.secret) for path in things.own_files},
            **files_by_processes(things),
        },
    ),
    Wall(
        what="the machine's passwords, host keys, root's files, memory as a file",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="the view of files; permissions",
        not_held="",
        tries=lambda _: {
            **{f"file {path}": ("read", str(path)) for path in closed_files()},
            "environment of process 1": ("environment_of_another", "1", "SECRET_OF_THE_"),
        },
        only_root=True,
    ),
    Wall(
        what="changing programs, settings of the system, repositories",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="read-only mounts; permissions",
        not_held="at `user`: what every user may write",
        tries=lambda things: {
            f"writing {place}": ("writable", place)
            for place in (str(things.repos), "/", "/usr/bin", "/etc", "/etc/passwd", "/var/lib")
        },
        only_root=True,
    ),
    Wall(
        what="settings of the kernel, control groups, devices",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="a read-only `/proc`, no `/sys`, a `/dev` of its own; permissions",
        not_held="",
        tries=lambda _: {
            **{f"setting {name}": ("writable", f"/proc/sys/{name}") for name in KERNELS_FILES},
            "sysrq": ("writable", "/proc/sysrq-trigger"),
            "sysfs": ("writable", *(f"/sys/{name}" for name in SYSFS)),
            "control groups": ("writable", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/pids/tasks"),
            "devices": ("device", *devices()),
        },
        only_root=True,
    ),
    Wall(
        what="what tells about the kernel and its boot (`cmdline`, `kallsyms`, `interrupts`)",
        promises=(CLOSED, OPEN, OPEN),
        held_by="covers in `/proc`",
        not_held="`meminfo`, `stat`, `loadavg` and their like; places of mounts in `mountinfo`",
        tries=lambda _: {f"/proc/{name}": ("read", f"/proc/{name}") for name in ("cmdline", "kallsyms", "interrupts")},
    ),
    Wall(
        what="keys of the daemon, and keys left for the next session",
        promises=(CLOSED, CLOSED, CLOSED),
        held_by="a session keyring of its own, and the filter of system calls",
        not_held="",
        tries=keys,
    ),
    Wall(
        what="names of the daemon's keys, in `/proc/keys`",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="covers in `/proc`; permissions",
        not_held="",
        tries=lambda things: {"names of keys": ("read", "/proc/keys", things.mark)},
    ),
    Wall(
        what="`ptrace` and its kin, bpf, io_uring, `userfaultfd`, mounts, modules, clocks and the rest of the list",
        promises=(CLOSED, CLOSED, CLOSED),
        held_by="the filter of system calls",
        not_held="the same by files: see memory, below",
        tries=lambda things: calls(things.numbers),
    ),
    Wall(
        what="namespaces of one's own",
        promises=(CLOSED, CLOSED, CLOSED),
        held_by="the filter of system calls; at `bubblewrap` also limits of the user namespace",
        not_held="",
        tries=lambda things: with_namespaces(things.numbers),
    ),
    Wall(
        what="other families of sockets (vsock), 32-bit calls, typing into a terminal",
        promises=(CLOSED, CLOSED, CLOSED),
        held_by="the filter of system calls",
        not_held="unix, inet, inet6, netlink",
        tries=lambda things: by_argument(things.numbers),
    ),
    Wall(
        what="memory, environment and descriptors of the daemon and of other sessions",
        promises=(CLOSED, CLOSED, Promise.BUT_FOR_TOOLS),
        held_by="a namespace of processes; another user; Landlock",
        not_held="",
        tries=lambda things: {
            **looks_into("the daemon", things.daemon, things),
            **looks_into("another session", things.neighbour, things),
        },
    ),
    Wall(
        what="which processes the machine runs, with their arguments",
        promises=(CLOSED, OPEN, OPEN),
        held_by="a namespace of processes",
        not_held="",
        tries=lambda things: {"arguments of the daemon": ("arguments", things.daemon.pid, things.mark)},
    ),
    Wall(
        what="signals to the daemon, to other sessions, and to what holds the session",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="a namespace of processes; another user",
        not_held="",
        tries=lambda things: {
            "signals to the daemon": ("hear", things.daemon.pid, things.mark),
            "signals to another session": ("hear", things.neighbour.pid, things.mark),
            "signals to what holds the session": ("hear", things.stands_before, ""),
        },
    ),
    Wall(
        what="shared memory of the daemon",
        promises=(CLOSED, CLOSED, AS_DAEMON),
        held_by="a namespace of its own; permissions",
        not_held="",
        tries=lambda things: {"shared memory": ("shared_memory", things.segment, things.secret)},
    ),
    Wall(
        what="a tool that looks into the CLI or an MCP server: memory, environment, map, place, descriptors",
        promises=(Promise.APART, Promise.APART, Promise.APART_BUT_FOR_ROOT),
        held_by="Landlock",
        not_held="[kernels without Landlock](#tools-are-kept-apart)",
        tries=lambda _: {
            f"{look} of {whose}": ()
            for whose in ("the CLI", "a server")
            for look in ("memory", "environment", "map", "place", "descriptors")
        },
        of_tools=True,
    ),
    Wall(
        what="the same by `process_vm_readv`",
        promises=(CLOSED, CLOSED, CLOSED),
        held_by="the filter of system calls",
        not_held="",
        tries=lambda _: {f"memory by call of {whose}": () for whose in ("the CLI", "a server")},
        of_tools=True,
    ),
    Wall(
        what="a tool's signals to the CLI and to MCP servers",
        promises=(OPEN, OPEN, OPEN),
        held_by="nothing: a tool ends what an earlier one left",
        not_held="a tool can end its own session",
        tries=lambda _: {f"signals of {whose}": () for whose in ("the CLI", "a server")},
        of_tools=True,
    ),
    Wall(
        what="descriptors that the daemon has open",
        promises=(CLOSED, CLOSED, CLOSED),
        held_by="they are closed before the session starts",
        not_held="",
        tries=lambda _: {"descriptors left open": ("descriptors",)},
    ),
    Wall(
        what="all the inotify instances of the daemon's user",
        promises=(CLOSED, OPEN, OPEN),
        held_by="limits of the user namespace",
        not_held="at `user` they are the session's own user's",
        tries=lambda _: {"inotify": ("watches", 40)},
    ),
    Wall(
        what="a file larger than the bound, also one without a name",
        promises=(CLOSED, CLOSED, Promise.BUT_FOR_ROOT),
        held_by="a resource limit",
        not_held="many files: their memory, or a look every second",
        tries=lambda _: {"a large file": ("big_nameless_file", "~", (FILE_MB + 1) * 1024 * 1024)},
    ),
    Wall(
        what="core files, locked memory",
        promises=(CLOSED, CLOSED, Promise.BUT_FOR_ROOT),
        held_by="resource limits",
        not_held="memory: a control group, or a look every second",
        tries=lambda _: {"core files": ("core_files",), "locked memory": ("lock_memory", 4096)},
    ),
    Wall(
        what="precedence over other processes, more descriptors than a session may have",
        promises=(CLOSED, CLOSED, Promise.BUT_FOR_ROOT),
        held_by="resource limits",
        not_held="",
        tries=lambda _: {
            "precedence": ("nicer",),
            "real time": ("real_time",),
            "descriptors": ("many_descriptors", 4097),
        },
        only_root=True,
    ),
)


def table() -> str:
    """Return the walls as a table for the document."""
    head = ("what is tried", *(f"`{level.value}`" for level in IsolationLevel), "held by", "not held")
    rows = [head, ("---",) * len(head)]
    rows += [(wall.what, *(promise.said for promise in wall.promises), wall.held_by, wall.not_held) for wall in WALLS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    sys.stdout.write(table())
