"""What a machine, a daemon and another session have that is not for a session; and runs of what tries to reach it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from anyio.from_thread import start_blocking_portal

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import PYTHON, interpreter
from claudeops.engine.cell.cell import USER_HOMES, Cell, IsolationLevel, OwnNetwork, SandboxSpec
from claudeops.engine.cell.cgroups import Bounds
from claudeops.engine.cell.forwarder import open_network
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.own_network import Network, hosts_file
from claudeops.engine.cell.system_calls import system_call_numbers
from claudeops.engine.cell.workspace import Workspace
from claudeops.structs import replace
from support import reaching
from support.levels import PATH
from support.waiting import PATIENCE_SECONDS
from support.walls import FILE_MB, WALLS, WITHIN_ALONE, Process, Things

PROGRAM: Final = Path(reaching.__file__).read_text(encoding="utf-8")
HERE: Final = "127.0.0.1"
SYSTEMS_PYTHON: Final = Path("/usr/bin/python3")  # another user may not reach that of a virtual environment

Found = Mapping[str, Mapping[str, str]]
"""By place (``cli``, ``tool``) and name: ``reached``, or why not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """What the same program reached in a session's place, and outside."""

    within: Found
    outside: Found
    tried: Mapping[str, tuple[str, ...]]  # names, by wall
    keeps_tools_apart: bool


def what_is_reached(level: IsolationLevel) -> Reached:
    """Try everything at a level that works here, and outside; the level is tried first, as a daemon does."""
    with ExitStack() as held:
        place = held.enter_context(_place())
        things = _plant(held, place)
        hidden = (place / "state", place / "results", place / "config", things.repos / "infra" / "state")
        cell = try_level(level, HostContext(path=PATH, hidden=hidden, repos_dir=things.repos))
        assert not isinstance(cell, str), cell
        sessions = cell.workspaces(place / "state" / "sessions")
        held.callback(shutil.rmtree, sessions, ignore_errors=True)
        neighbour, before = held.enter_context(_neighbour(cell, sessions / f"neighbour-{things.mark}", things))
        theirs = sessions / f"neighbour-{things.mark}" / "home" / f"of-{things.mark}"
        things = replace(things, neighbour=neighbour, own_files=(*things.own_files, theirs))
        outside = _outside(place, replace(things, stands_before=before))
        return Reached(
            within=_within(cell, sessions / "000001", things),
            outside=outside,
            tried={wall: tuple(tries) for wall, tries in _tries(things).items()},
            keeps_tools_apart=cell.keeps_tools_apart,
        )


# --- what is planted -------------------------------------------------------------------------------------


@contextmanager
def _place() -> Iterator[Path]:
    """Make a directory that every user can pass: what is closed in it is closed by itself."""
    if os.geteuid() == 0:
        USER_HOMES.mkdir(mode=0o711, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tests-", dir=USER_HOMES if os.geteuid() == 0 else None) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def _plant(held: ExitStack, place: Path) -> Things:
    """Put everything in its place until ``held`` is left; the neighbour is not there yet."""
    secret, mark = f"planted-{secrets.token_hex(8)}", f"mark-{secrets.token_hex(8)}"
    own = [
        *(place / "state" / "claudeops.db", place / "config" / "environment", place / "results" / "000007.json"),
        *(place / "tier3" / "id_tier3", place / "repos" / "infra" / "state" / "of-a-repository.db"),
    ]
    for path in own:
        path.parent.mkdir(mode=0o700, parents=True)
        path.write_text(secret, encoding="utf-8")
        path.chmod(0o600)
    shown = place / "shown"
    shown.mkdir()
    credentials = (shown / "kubeconfig", shown / "token")
    for path in credentials:
        path.write_text(secret, encoding="utf-8")
        path.chmod(0o600)
    for directory in (shown, place / "repos", place / "repos" / "infra"):
        directory.chmod(0o755)
    everybodys = [Path(directory, mark) for directory in ("/tmp", "/var/tmp", "/dev/shm", place)]  # noqa: S108
    for path in everybodys:
        path.write_text(secret, encoding="utf-8")
        path.chmod(0o644)
        held.callback(path.unlink, missing_ok=True)
    listed = (_greeting(held, HERE), _answering(held, HERE))
    _listening(held, f"\0{mark}")
    return Things(
        secret=secret,
        mark=mark,
        listed=listed,
        tcp=tuple((address, _greeting(held, address)) for address in _addresses()),
        udp=tuple((address, _answering(held, address)) for address in _addresses()),
        abstract=mark,
        own_socket=_socket_file(held, place / "state" / "daemon.sock", 0o600),
        everybodys_socket=_socket_file(held, place / "everybody.sock", 0o666),
        own_files=tuple(own),
        everybodys_files=tuple(everybodys),
        engine=_socket_file(held, shown / "engine.sock", 0o600),
        credentials=credentials,
        repos=place / "repos",
        segment=_segment(held, secret),
        key=0,
        daemon=_daemon(held, place / "state", secret, mark),
        neighbour=Process(0, 0),
        stands_before=0,
        numbers=system_call_numbers(os.uname().machine),
    )


def _addresses() -> list[str]:
    """Return addresses of this machine, of loopback and of one other interface, if it has any."""
    others = {
        family: next(
            (
                each.address
                for name, addresses in psutil.net_if_addrs().items()
                for each in addresses
                if name != "lo" and each.family == family and "%" not in each.address
            ),
            None,
        )
        for family in (socket.AF_INET, socket.AF_INET6)
    }
    return [each for each in (HERE, "127.0.0.2", "::1", *others.values()) if each and _is_ours(each)]


def _is_ours(address: str) -> bool:
    try:
        _bound(address, socket.SOCK_DGRAM).close()
    except OSError:
        return False  # no IPv6
    return True


def _bound(address: str, kind: socket.SocketKind) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    try:
        made.bind((address, 0))
    except OSError:
        made.close()
        raise
    return made


def _greeting(held: ExitStack, address: str) -> int:
    """Say something to whoever connects; return the port."""
    listener = _bound(address, socket.SOCK_STREAM)
    listener.listen()

    def greet() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"hello")

    _serve(held, listener, greet)
    return int(listener.getsockname()[1])


def _answering(held: ExitStack, address: str) -> int:
    """Answer datagrams with themselves; return the port."""
    own = _bound(address, socket.SOCK_DGRAM)

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                content, client = own.recvfrom(99)
                if not client:  # shut down
                    return
                own.sendto(content, client)

    _serve(held, own, answer)
    return int(own.getsockname()[1])


def _serve(held: ExitStack, own: socket.socket, serve: object) -> None:
    """Run what serves a socket on a thread, which ends when the socket is shut down."""
    assert callable(serve)
    held.enter_context(own)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    held.callback(thread.join, PATIENCE_SECONDS)

    def shut() -> None:
        with contextlib.suppress(OSError):  # of datagrams: not connected, and awake all the same
            own.shutdown(socket.SHUT_RDWR)

    held.callback(shut)


def _listening(held: ExitStack, name: str) -> None:
    own = held.enter_context(socket.socket(socket.AF_UNIX))
    own.bind(name)
    own.listen()


def _socket_file(held: ExitStack, path: Path, mode: int) -> Path:
    _listening(held, str(path))
    path.chmod(mode)
    return path


def _segment(held: ExitStack, secret: str) -> int:
    """Make a segment of shared memory with a secret in it; return its key."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    key = secrets.randbits(30) | 1
    segment = libc.shmget(key, 4096, 0o1000 | 0o2000 | 0o600)  # IPC_CREAT | IPC_EXCL
    assert segment >= 0, os.strerror(ctypes.get_errno())
    held.callback(libc.shmctl, segment, 0, None)  # IPC_RMID
    place = libc.shmat(segment, None, 0)
    ctypes.memmove(place, secret.encode(), len(secret))
    libc.shmdt(ctypes.c_void_p(place))
    return key


def _daemon(held: ExitStack, home: Path, secret: str, mark: str) -> Process:
    """Start a process that holds the secret, as a daemon does."""
    place = home / mark
    place.mkdir()
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, "hold", mark]
    environment = {"HOME": str(home), reaching.SECRET: secret}
    process = subprocess.Popen(
        command, env=environment, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    held.callback(_end, process)
    return _said(process)


def _said(process: subprocess.Popen[str]) -> Process:
    assert process.stdout is not None
    return Process(*map(int, process.stdout.readline().split()))


def _end(process: subprocess.Popen[str]) -> None:
    """End a process by the end of its standard input, and close what is open to it."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait(timeout=PATIENCE_SECONDS)


# --- sessions --------------------------------------------------------------------------------------------


@contextmanager
def _started(
    cell: Cell,
    root: Path,
    things: Things,
    words: Sequence[str],
    *,
    network: OwnNetwork | None = None,
    keyed: Sequence[str] = (),
    environment: Mapping[str, str],
) -> Iterator[tuple[subprocess.Popen[str], Workspace]]:
    """Start this program in a session's place."""
    with ExitStack() as held:
        uid = held.enter_context(cell.acquire_user())
        workspace = workspaces.make(root, template_home=None, uid=uid)
        cell.hand_over(workspace)
        spec = SandboxSpec(
            workspace=workspace,
            binary=PYTHON if uid is None else SYSTEMS_PYTHON,
            repos_dir=things.repos,
            path=PATH,
            shown=(*interpreter(), things.engine.parent),
            hidden=(things.engine, *things.credentials),
            bounds=Bounds(file_mb=FILE_MB),
            network=network,
        )
        enclosed = cell.enclose(spec)
        ours, theirs = map(held.enter_context, socket.socketpair())
        ours.sendall(b"go\n")
        process = subprocess.Popen(
            [*keyed, *enclosed.before, str(theirs.fileno()), enclosed.binary, "-I", "-S", "-c", PROGRAM]
            + [cell.shell(workspace) if word == SHELL else word for word in words],
            env={"HOME": str(workspace.home), "PATH": PATH, **environment},
            cwd=workspace.workdir,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(*enclosed.inherited, theirs.fileno()),
        )
        held.callback(_end, process)
        yield process, workspace


SHELL: Final = "the shell of the cell"


@contextmanager
def _neighbour(cell: Cell, root: Path, things: Things) -> Iterator[tuple[Process, int]]:
    """Run another session at the same level; yield its process as it is seen outside, and what holds it."""
    with _started(cell, root, things, ["hold", things.mark], environment={reaching.SECRET: things.secret}) as (
        process,
        _,
    ):
        said = _said(process)
        above = psutil.Process(process.pid)
        pid = next(each.pid for each in [*above.children(recursive=True), above] if _own_pid(each.pid) == said.pid)
        yield replace(said, pid=pid), process.pid


def _own_pid(pid: int) -> int:
    """Return the pid of a process in its innermost namespace."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])


def _keyed(things: Things) -> list[str]:
    """Return what gives a command a session keyring with a key of the daemon's."""
    numbers = [str(things.numbers[name]) for name in ("add_key", "keyctl")]
    return [sys.executable, "-I", "-S", "-c", PROGRAM, "keyed", *numbers, things.mark, things.secret]


OWN_SECRETS: Final = {
    reaching.SECRET: f"of-the-cli-{secrets.token_hex(8)}",
    reaching.SERVERS: f"of-the-server-{secrets.token_hex(8)}",
}


def _within(cell: Cell, root: Path, things: Things) -> Found:
    """Try everything in a session's place."""
    network = Network(tcp=((HERE, things.listed[0]),), udp=((HERE, things.listed[1]),))
    with ExitStack() as held:
        own = None
        if cell.has_network:
            portal = held.enter_context(start_blocking_portal())
            opened = held.enter_context(portal.wrap_async_context_manager(open_network(network, lambda _: None)))
            own = OwnNetwork(door=opened.door, hosts=hosts_file(network))
        process, _ = held.enter_context(
            _started(cell, root, things, ["cli", SHELL], network=own, keyed=_keyed(things), environment=OWN_SECRETS)
        )
        return _answer(process, replace(things, stands_before=process.pid))


def _outside(place: Path, things: Things) -> Found:
    """Try everything as the daemon's user, in no cell, with a descriptor of the daemon's left open."""
    home = place / "outside"
    home.mkdir()
    command = [*_keyed(things), sys.executable, "-I", "-S", "-c", PROGRAM, "cli", "/bin/bash"]
    with (home / "left-open").open("w") as left_open:
        process = subprocess.Popen(
            command,
            env={"HOME": str(home), "PATH": PATH, **OWN_SECRETS},
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[left_open.fileno()],
        )
    try:
        return _answer(process, things, without=WITHIN_ALONE)
    finally:
        _end(process)


def _tries(things: Things) -> dict[str, Mapping[str, Sequence[object]]]:
    """Return what is tried, by wall and name."""
    return {wall.what: wall.tries(things) for wall in WALLS}


def _answer(process: subprocess.Popen[str], things: Things, *, without: AbstractSet[str] = frozenset()) -> Found:
    """Give a program what to try, and return what it found."""
    assert process.stdout is not None
    things = replace(things, key=int(process.stdout.readline()))
    tries = {name: act for each in _tries(things).values() for name, act in each.items() if act and name not in without}
    given = json.dumps({"tries": tries, "readv": things.numbers["process_vm_readv"]})
    said, _ = process.communicate(given, timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    found: Found = json.loads(said)
    return found
