"""The cell of one look at the network: a program with its libraries, the machine's network, and no files.

Of ``/etc`` it has what names of hosts and ports are looked up in. What shows sockets and interfaces also gets a
``/proc``, read-only and with no processes but its own: ``/proc/net`` is that of the machine's network. So it never says
whose a socket is. The kernel only shows that to a program that could open the files of every process, and with them
every file of the machine.

Where the daemon is root the program is root too, without any capability but the one for ICMP where it needs that, and
outside of a user namespace, because the kernel gives echo requests and the owners of sockets only to the users of the
machine. For another user it runs in a namespace like a session; there ICMP takes ``net.ipv4.ping_group_range``.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.look_cell import NULL, Program, RunBounded, bounded, find_program, shown, trials
from claudeops.policy.programs.network import PROGRAMS
from claudeops.structs import replace

NO_ICMP: Final = (
    "this machine's kernel lets the daemon send no echo requests: its operator can set "
    'sysctl net.ipv4.ping_group_range="0 2147483647"; nc -z -w 3 HOST PORT says whether a port answers'
)
NO_OWNERS: Final = "which process a socket belongs to is not shown: systemctl status and docker ps say what runs"

_ALONE: Final = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")
_NAMES: Final = ("hosts", "resolv.conf", "nsswitch.conf", "services", "protocols", "host.conf", "gai.conf")
# Before glibc 2.34 what looks names up is loaded when it is needed, and ldd does not list it.
_NAME_SERVICES: Final = ("libnss_files.so.2", "libnss_dns.so.2")
_PROC: Final = ("--proc", "/proc", "--remount-ro", "/proc")

_HERE: Final = "127.0.0.1"
_TRIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "ss": ("-s",),
    "netstat": ("-n", "-r"),
    "ip": ("link", "show"),
    "ifconfig": ("-a",),
    "route": ("-n",),
    "arp": ("-n",),
    "bridge": ("link",),
    "hostname": ("-I",),
    "ping": ("-c", "1", _HERE),
    "ping6": ("-c", "1", "::1"),
    "traceroute": ("-n", "-m", "1", "-q", "1", "-w", "1", _HERE),
    "traceroute6": ("-n", "-m", "1", "-q", "1", "-w", "1", "::1"),
    "tracepath": ("-n", "-m", "1", _HERE),
    "mtr": (),
}
"""What each program is tried with at the daemon's start; all of it stays on the machine.

mtr would take two seconds: its helper, which does all that could fail, is started and ends with its empty input.
"""
_SENDS: Final = frozenset({"ping", "ping6", "traceroute", "traceroute6", "tracepath", "mtr"})
"""Programs that send packets of their own making, and read nothing in ``/proc``."""
_KNOCKS: Final = frozenset({"nc", "ncat", "netcat"})
"""Programs that say on standard error whether a port answers; they are tried at one of the daemon's own."""
_HELPERS: Final = {"mtr": "mtr-packet"}
_SHOW_OWNERS: Final = {"ss": "-p", "netstat": "-p"}

_NOT_PERMITTED: Final = re.compile(r"not permitted|permission denied|enough privileges", re.IGNORECASE)
_MOST_SAID: Final = 400  # characters
_TRIED_AT_ONCE: Final = 2


class NetworkCell(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the command lines of such looks, for one program."""

    bubblewrap: BubblewrapCell
    programs: tuple[Program, ...]  # the program, and what it starts itself
    sends: bool  # its own packets: it gets the right to do so where the daemon has it to give
    as_root: bool  # it is root on the machine, without the rights of root
    memory_mb: int = 1024  # of address space
    cpu_seconds: int = 10
    wall_seconds: float = 90.0  # twenty echo requests take as many seconds, and a route of silent hosts longer

    @property
    def program(self) -> Path:
        """Return where the program is."""
        return self.programs[0].path

    def command(self, look: LookCall) -> tuple[str, ...]:
        """Return a look's command line. Accesses the disk."""
        return bounded(self.launched(look), memory_mb=self.memory_mb, cpu_seconds=self.cpu_seconds)

    def launched(self, look: LookCall) -> tuple[str, ...]:
        """Return the same without bounds. Accesses the disk."""
        rights = ("--cap-drop", "ALL", *(("--cap-add", "CAP_NET_RAW") if self.sends else ())) if self.as_root else ()
        options = (
            *_ALONE,
            *rights,
            *(word for program in self.programs for word in program.mounts()),
            *(word for file in self._files_of_names() for word in shown(file)),
            *(() if self.sends else _PROC),
            *NULL,
            *("--remount-ro", "/", "--chdir", "/"),
            *("--setenv", "PATH", ":".join(dict.fromkeys(str(program.path.parent) for program in self.programs))),
            *("--setenv", "HOME", "/nonexistent", "--setenv", "LC_ALL", "C"),
        )
        return self.bubblewrap.launched(options, (str(self.program), *look.arguments), own_users=not self.as_root)

    def sentence(self, look: LookCall, status: int, said: bytes) -> str:
        """Return what the program says where it fails, on one line; and that it does not show whose sockets are."""
        if status == 0 and look.program not in _KNOCKS:
            return NO_OWNERS if _SHOW_OWNERS.get(look.program) in look.arguments else ""
        lines = said.decode("utf-8", "replace").splitlines()
        name = re.compile(rf"^(?:\S*/)?{re.escape(look.program)}: ")
        line = "; ".join(filter(None, (name.sub("", line).strip() for line in lines)))
        line = "".join(sign if sign.isprintable() else "?" for sign in line)
        return line if len(line) <= _MOST_SAID else f"{line[:_MOST_SAID]}…"

    def _files_of_names(self) -> list[Path]:
        libraries = [library for program in self.programs for library in program.libraries]
        beside = {library.parent for library in libraries if library.name.startswith("libc.so")}
        wanted = [Path("/etc", name) for name in _NAMES]
        wanted += [directory / name for directory in sorted(beside) for name in _NAME_SERVICES]
        return [file for file in wanted if file.is_file() and file not in libraries]


def find_network_cells(
    cell: BubblewrapCell,
    path: str,
    wanted: frozenset[str] = PROGRAMS,
    *,
    goes_on: Callable[[], bool] = lambda: True,
) -> dict[str, NetworkCell | str]:
    """Return the cells of the programs that are installed, after a trial, or the sentence why one does not work.

    Starts processes, and none any more once it does not go on: those programs are not among what it returns.
    """
    if not _has_ipv6():
        wanted = frozenset(name for name in wanted if not name.endswith("6"))
    names = sorted(wanted)
    with ThreadPoolExecutor(_TRIED_AT_ONCE) as threads:
        shares = (names[first::_TRIED_AT_ONCE] for first in range(_TRIED_AT_ONCE))
        tried = dict(chain(*threads.map(partial(_try_all, cell, path, goes_on), shares)))
    return {name: each for name in names if (each := tried.get(name)) is not None}


def _try_all(
    cell: BubblewrapCell, path: str, goes_on: Callable[[], bool], names: Sequence[str]
) -> Sequence[tuple[str, NetworkCell | str | None]]:
    with trials() as run:
        return [(name, _tried(cell, name, path, run)) for name in names if goes_on()]


def _tried(cell: BubblewrapCell, name: str, path: str, run: RunBounded) -> NetworkCell | str | None:
    """Return the cell of a program, or why it does not work; None where it is not installed."""
    programs = []
    for each in filter(None, (name, _HELPERS.get(name))):
        program = find_program(each, path)
        if not isinstance(program, Program):
            return program
        programs.append(program)
    found = NetworkCell(bubblewrap=cell, programs=tuple(programs), sends=name in _SENDS, as_root=os.geteuid() == 0)
    if not (why := _fault(found, name, run)):
        return found
    # In a container root may lack what it has in a user namespace of its own.
    as_others = replace(found, as_root=False)
    return as_others if found.as_root and not _fault(as_others, name, run) else why


def _fault(cell: NetworkCell, name: str, run: RunBounded) -> str:
    """Return why a program does not work in its cell, or ""."""
    last = replace(cell, programs=cell.programs[::-1])
    try:
        with socket.create_server((_HERE, 0)) as here:
            knock = ("-z", "-w", "5", _HERE, str(here.getsockname()[1]))
            arguments = knock if name in _KNOCKS else _TRIALS[name]
            command = last.launched(LookCall(program=name, arguments=arguments))
            run(command, last.memory_mb, last.cpu_seconds)
    except subprocess.CalledProcessError as error:
        said = cell.sentence(LookCall(program=name, arguments=()), error.returncode, str(error.stderr).encode())
        if cell.sends and _NOT_PERMITTED.search(said):
            return NO_ICMP
        return f"{name} does not work in a cell of its own: {said or f'exit status {error.returncode}'}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"{name} does not work in a cell of its own: {error}"
    return ""


def _has_ipv6() -> bool:
    try:
        return bool(Path("/proc/net/if_inet6").read_text(encoding="ascii"))
    except OSError:
        return False
