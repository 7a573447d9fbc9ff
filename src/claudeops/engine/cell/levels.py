"""Which levels of isolation work on this machine: each is tried for real, once per start, with the sessions' CLIs."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from claudeops.engine.cell import tool_shell
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import PYTHON, BubblewrapCell, interpreter
from claudeops.engine.cell.cell import (
    USER_HOMES,
    Cell,
    IsolationLevel,
    OwnFiles,
    OwnNetwork,
    PlainCell,
    SandboxSpec,
    UserCell,
)
from claudeops.engine.cell.cgroups import MIB
from claudeops.engine.cell.own_files import FilesBound, received, sandboxed, way_to
from claudeops.engine.cell.own_network import Network, hosts_file, listing
from claudeops.engine.cell.system_calls import filter_as_text, system_call_numbers
from claudeops.engine.cell.workspace import Workspace
from claudeops.errors import ConfigurationError, ErrorKind
from claudeops.structs import replace

PROBE_SECONDS: Final = 20.0
AUTO: Final = "auto"

C = TypeVar("C", BubblewrapCell, UserCell, PlainCell)

_SHELL: Final = Path("/bin/sh")
_SYSTEMS_PYTHON: Final = Path("/usr/bin/python3")
_HERE: Final = "127.0.0.1"
_PASSED: Final = "this level works"
TRIED_FILES: Final = 64

_INSTALL: Final = "install bubblewrap (Debian: apt-get install bubblewrap)"
_ALLOW: Final = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container its runtime's seccomp profile and masked /proc stand in the way)"
)
_NETWORK: Final = "network"  # in the launcher's and the search's sentences about it
_SHARE: Final = (
    "allow network namespaces (sysctl user.max_net_namespaces; in a container its runtime's seccomp profile), or set "
    "CLAUDEOPS_CELL_NETWORK to shared, with which sessions reach all that the machine reaches"
)
_MACHINES: Final = "run the daemon on x86_64 or aarch64"
_OTHER: Final = "run the daemon as root, or as a user with CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL"

# Every line tests a promise of the level; it only checks permissions and writes nothing outside. A file that root may
# write would be a way out of the namespace, so the script looks where the kernel keeps the dangerous ones.
_IN_NAMESPACE: Final = """
set -eu
: > "$HOME/probe"
fail() { echo "$1" >&2; exit 1; }
[ -x "$1" ] || fail "$1 is not to be seen in it"
[ "$$" -lt 9 ] || fail "its processes are not its own"
[ ! -w / ] || fail "its root directory can be written"
for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger; do
    [ ! -w "$file" ] || fail "$file can be written"
done
[ ! -r /etc/shadow ] || fail "/etc/shadow can be read"
"$4" -I -S "$5" "$6" "$7" "$8" "$9"
: > /tmp/probe  # last: without a namespace it would be everybody's
"""
_AS_USER: Final = """
set -eu
: > "$HOME/probe"
fail() { echo "$1" >&2; exit 1; }
[ -x "$1" ] || fail "$1 cannot be run by user $(id -u): install it where every user can reach it"
[ -x "$2" ] || fail "$2 cannot be entered by user $(id -u): keep the repositories where every user can reach them"
[ ! -r /etc/shadow ] || fail "/etc/shadow can be read"
"""
# Of a file system in memory: it has an end, for what is in files and for their number.
_IN_MEMORY: Final = f"""
set -eu
: > "$HOME/probe"
fail() {{ echo "$1" >&2; exit 1; }}
! head -c {2 * MIB} /dev/zero > "$HOME/large" 2>/dev/null || fail "more can be written than they may hold"
i=0
while [ "$i" -lt {2 * TRIED_FILES} ]; do
    true > "$HOME/$i" 2>/dev/null || break
    i=$((i + 1))
done
[ "$i" -lt {TRIED_FILES} ] || fail "more files can be made than there may be"
"""
_HOLES: Final = Path(__file__).with_name("holes.py")
_PLAIN: Final = "set -eu"
# Of a tool, in the shell of tools: whether it reads what it must not know of the process that started it.
_APART: Final = "its tools are apart"
_CLOSING: Final = f"""
echo "{_PASSED}"
tool=$("$3" -c 'cat "/proc/$0/environ" >/dev/null 2>&1 && echo reads; echo runs' "$$")
[ "$tool" != runs ] || echo "{_APART}"
"""


class HostContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the levels are tried with on this machine."""

    path: str  # PATH on which bwrap is searched
    binaries: tuple[Path, ...] = ()  # the CLIs that sessions run
    repos_dir: Path = Path("/usr/share")
    hidden: tuple[Path, ...] = ()  # paths of the daemon that no session may see
    shares_network: bool = False  # sessions have the machine's


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The level that sessions will have."""

    cell: Cell
    passed_over: Mapping[IsolationLevel, str]  # stronger levels, each with the sentence why it does not work


def choose(isolation: str, surroundings: HostContext) -> Selected:
    """Return the strongest level that works, or the one that ``isolation`` names.

    Raises `ConfigurationError`, with the reason and the remedy, if there is none. Starts processes.
    """
    passed_over: dict[IsolationLevel, str] = {}
    for level in IsolationLevel:
        if isolation not in {AUTO, level.value}:
            continue
        found = try_level(level, surroundings)
        if not isinstance(found, str):
            return Selected(cell=found, passed_over=passed_over)
        if isolation != AUTO:
            raise ConfigurationError(
                f"CLAUDEOPS_ISOLATION is {isolation}, but {found}; or set it to auto.",
                kind=ErrorKind.RUNTIME,
                target="CLAUDEOPS_ISOLATION",
            )
        passed_over[level] = found
    raise ConfigurationError(
        f"No level of isolation works here: {'; '.join(passed_over.values())}.",
        kind=ErrorKind.RUNTIME,
        target="CLAUDEOPS_ISOLATION",
    )


def check_level(level: str, surroundings: HostContext) -> str | None:
    """Return ``None`` if a level works here, else the sentence why not, with the remedy."""
    found = try_level(IsolationLevel(level), surroundings)
    return f"{found}." if isinstance(found, str) else None


def try_level(level: IsolationLevel, surroundings: HostContext) -> Cell | str:
    """Return a cell of a level that was tried; or why there is none and the remedy, without a full stop."""
    match level:
        case IsolationLevel.BUBBLEWRAP:
            return _bubblewrap(surroundings)
        case IsolationLevel.USER:
            return _user(surroundings)
        case IsolationLevel.NONE:
            return _plain(surroundings)


def _bubblewrap(surroundings: HostContext) -> Cell | str:
    program = shutil.which("bwrap", path=surroundings.path)
    if program is None:
        return f"there is no bwrap on PATH: {_INSTALL}"
    if not filter_as_text():
        machine = os.uname().machine
        return f"bubblewrap is not used here, because there is no filter of system calls for {machine}: {_MACHINES}"
    cell = BubblewrapCell(
        program=program,
        hidden=surroundings.hidden,
        interpreter=_of_tools(PYTHON),
        has_network=not surroundings.shares_network,
    )
    # Two trials at once: each waits for processes most of the time.
    with tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory, ThreadPoolExecutor(1) as beside:
        no_files = beside.submit(_fault_of_memory, cell, Path(directory) / "memory", surroundings)
        fault, cell = _tried(cell, Path(directory) / "session", surroundings, _IN_NAMESPACE)
        if fault is None:
            return replace(cell, no_files=no_files.result())
    return f"bubblewrap does not work here ({fault}): {_SHARE if _NETWORK in fault else _ALLOW}"


def _fault_of_memory(cell: BubblewrapCell, root: Path, surroundings: HostContext) -> str:
    """Return why the files of sessions cannot be in memory, or "" if they can."""
    workspace = Workspace(root.resolve())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        bound = FilesBound(most_bytes=MIB, most_files=TRIED_FILES)
        files = sandboxed(bound, workspace, door=theirs.fileno())
        script = _IN_MEMORY + _CLOSING
        _, fault = _run(cell, root, surroundings, script, binary=_SHELL, uid=None, files=files)
        if fault is not None:
            return fault
        try:
            descriptor = received(ours)
        except OSError as error:
            return error.strerror or str(error)
    try:
        return _fault_of_way(Workspace(way_to(descriptor)).home / "probe", workspace)
    finally:
        os.close(descriptor)


def _fault_of_way(left: Path, workspace: Workspace) -> str:
    """Look for what a session has left in memory, with another process of ours, and at its place on the disk."""
    looked = subprocess.run([str(_SHELL), "-c", '[ -f "$0" ]', str(left)], check=False, timeout=PROBE_SECONDS)  # noqa: S603 - a script of ours
    if looked.returncode != 0:
        return "what they leave cannot be read"
    return "" if not any(workspace.memory.iterdir()) else "others see them"


def _user(surroundings: HostContext) -> Cell | str:
    # Another user may not reach the daemon's own interpreter, which may lie in a home.
    cell = UserCell(interpreter=_of_tools(next(filter(Path.is_file, (_SYSTEMS_PYTHON, PYTHON)))))
    directory = cell.workspaces(Path(f"/probe-of-{os.getpid()}-{secrets.token_hex(4)}"))
    fault: str | None
    try:
        with cell.acquire_user() as uid:
            fault, cell = _tried(cell, directory / "session", surroundings, _AS_USER, uid=uid)
    except OSError as error:
        fault = f"{error.strerror}: {error.filename or USER_HOMES}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return cell if fault is None else f"another user for the sessions does not work here ({fault}): {_OTHER}"


def _plain(surroundings: HostContext) -> Cell | str:
    cell = PlainCell(interpreter=_of_tools(PYTHON))
    with tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory:
        fault, cell = _tried(cell, Path(directory) / "session", surroundings, _PLAIN)
    return cell if fault is None else f"no session can be started ({fault}): mend that, it is no matter of settings"


def _of_tools(interpreter: Path) -> Path | None:
    """Return what runs the shell of tools; None where the kernel could not keep them apart."""
    return interpreter if tool_shell.holds() else None


def _tried(
    cell: C, root: Path, surroundings: HostContext, script: str, *, uid: int | None = None
) -> tuple[str | None, C]:
    """Run a script in the place of a session, once for each CLI; return what went wrong, and the cell as it works."""
    for binary in surroundings.binaries or (_SHELL,):
        printed, fault = _run(cell, root, surroundings, script + _CLOSING, binary=binary, uid=uid)
        if fault is not None:
            return fault, cell
        if _APART not in printed:
            cell = replace(cell, interpreter=None)
    return None, cell


def _run(
    cell: Cell,
    root: Path,
    surroundings: HostContext,
    script: str,
    *,
    binary: Path,
    uid: int | None,
    files: OwnFiles | None = None,
) -> tuple[str, str | None]:
    """Return what a script prints, and what went wrong, in a few words."""
    workspace = workspaces.make(root, template_home=None, uid=uid)
    cell.hand_over(workspace)
    if files is not None:
        files.place.mkdir()
    # A missing directory is not the level's fault, and another check reports it.
    repos = surroundings.repos_dir if surroundings.repos_dir.is_dir() else Path("/")
    ours, theirs = socket.socketpair()
    with ours, theirs, _network_to_try(cell) as (network, tries):
        sandbox = SandboxSpec(
            workspace=workspace,
            binary=binary,
            repos_dir=surroundings.repos_dir,
            path=surroundings.path,
            shown=(*interpreter(), _HOLES),
            network=network,
            files=files,
        )
        enclosed = cell.enclose(sandbox)
        holes = (str(PYTHON), str(_HOLES), _numbers(), *tries)
        given = (enclosed.binary, str(repos), cell.shell(workspace), *holes)
        ours.sendall(b"go\n")
        command = (*enclosed.before, str(theirs.fileno()), str(_SHELL), "-c", script, "sh", *given)
        return _played(command, workspace, (*enclosed.inherited, theirs.fileno()))


def _played(command: Sequence[str], workspace: Workspace, inherited: Sequence[int]) -> tuple[str, str | None]:
    """Run a command that plays a session; return what it prints, and what went wrong."""
    try:
        done = subprocess.run(  # noqa: S603 - a script of ours, in the cell that is tried
            command,
            env={"HOME": str(workspace.home), "PATH": "/usr/bin:/bin"},
            cwd=workspace.workdir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            process_group=0,  # Ctrl-C at the terminal is for us: a level that it kills would count as broken
            pass_fds=inherited,
            timeout=PROBE_SECONDS,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode == 0 and _PASSED in done.stdout:
        return done.stdout, None
    said = done.stderr.strip().splitlines()
    return "", said[-1] if said else f"exit status {done.returncode}"


@contextmanager
def _network_to_try(cell: Cell) -> Iterator[tuple[OwnNetwork | None, tuple[str, str, str]]]:
    """Yield a network on which one port is listed; and that port, one of the machine's, and an abstract socket's name.

    Nothing takes the listed port's socket: the kernel accepts connections for it all the same.
    """
    if not cell.has_network:
        yield None, ("", "", "")
        return
    with ExitStack() as held:
        ours, theirs = map(held.enter_context, socket.socketpair())
        listed, unlisted = (held.enter_context(socket.create_server((_HERE, 0))) for _ in range(2))
        abstract = held.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("")  # the kernel gives it a name: unix(7), "Autobind feature"
        abstract.listen()
        network = Network(tcp=((_HERE, listed.getsockname()[1]),))
        ours.sendall(listing(network))
        ports = (str(server.getsockname()[1]) for server in (listed, unlisted))
        name = abstract.getsockname()[1:].decode("ascii")
        yield OwnNetwork(door=theirs.fileno(), hosts=hosts_file(network)), (*ports, name)


def _numbers() -> str:
    machine = os.uname().machine
    return ",".join(f"{name}={number}" for name, number in system_call_numbers(machine).items())
