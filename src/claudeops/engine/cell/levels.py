"""Which levels of isolation work on this machine: each is tried for real, once per start, with the sessions' CLIs."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT, BubblewrapCell, interpreter
from claudeops.engine.cell.cell import USER_HOMES, Cell, Level, PlainCell, SandboxSpec, UserCell
from claudeops.engine.cell.system_calls import filter_as_text, system_call_numbers
from claudeops.errors import ConfigurationError, ErrorKind

PROBE_SECONDS: Final = 20.0
AUTO: Final = "auto"

_SHELL: Final = Path("/bin/sh")
_PASSED: Final = "this level works"

_INSTALL: Final = "install bubblewrap (Debian: apt-get install bubblewrap)"
_ALLOW: Final = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container its runtime's seccomp profile and masked /proc stand in the way)"
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
"$3" -I -S "$4" "$5"
: > /tmp/probe  # last: without a namespace it would be everybody's
echo "this level works"
"""
_AS_USER: Final = """
set -eu
: > "$HOME/probe"
fail() { echo "$1" >&2; exit 1; }
[ -x "$1" ] || fail "$1 cannot be run by user $(id -u): install it where every user can reach it"
[ -x "$2" ] || fail "$2 cannot be entered by user $(id -u): keep the repositories where every user can reach them"
[ ! -r /etc/shadow ] || fail "/etc/shadow can be read"
echo "this level works"
"""
_HOLES: Final = Path(__file__).with_name("holes.py")
_PLAIN: Final = 'echo "this level works"'


@dataclass(frozen=True, kw_only=True, slots=True)
class HostContext:
    """What the levels are tried with on this machine."""

    path: str  # PATH on which bwrap is searched
    binaries: tuple[Path, ...] = ()  # the CLIs that sessions run
    repos_dir: Path = Path("/usr/share")
    hidden: tuple[Path, ...] = ()  # paths of the daemon that no session may see


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """The level that sessions will have."""

    cell: Cell
    passed_over: Mapping[Level, str]  # stronger levels, each with the sentence why it does not work


def choose(isolation: str, surroundings: HostContext) -> Selected:
    """Return the strongest level that works, or the one that ``isolation`` names.

    Raises `ConfigurationError`, with the reason and the remedy, if there is none. Starts processes.
    """
    passed_over: dict[Level, str] = {}
    for level in Level:
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
    found = try_level(Level(level), surroundings)
    return f"{found}." if isinstance(found, str) else None


def try_level(level: Level, surroundings: HostContext) -> Cell | str:
    """Return a cell of a level that was tried; or why there is none and the remedy, without a full stop."""
    match level:
        case Level.BUBBLEWRAP:
            return _bubblewrap(surroundings)
        case Level.USER:
            return _user(surroundings)
        case Level.NONE:
            return _plain(surroundings)


def _bubblewrap(surroundings: HostContext) -> Cell | str:
    program = shutil.which("bwrap", path=surroundings.path)
    if program is None:
        return f"there is no bwrap on PATH: {_INSTALL}"
    if not filter_as_text():
        machine = os.uname().machine
        return f"bubblewrap is not used here, because there is no filter of system calls for {machine}: {_MACHINES}"
    cell = BubblewrapCell(program=program, hidden=surroundings.hidden)
    with tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory:
        said = _try(cell, Path(directory) / "session", surroundings, _IN_NAMESPACE, holes=True)
    return cell if said is None else f"bubblewrap does not work here ({said}): {_ALLOW}"


def _user(surroundings: HostContext) -> Cell | str:
    cell = UserCell()
    directory = cell.workspaces(Path(f"/probe-of-{os.getpid()}-{secrets.token_hex(4)}"))
    try:
        with cell.acquire_user() as uid:
            said = _try(cell, directory / "session", surroundings, _AS_USER, uid=uid)
    except OSError as error:
        said = f"{error.strerror}: {error.filename or USER_HOMES}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return cell if said is None else f"another user for the sessions does not work here ({said}): {_OTHER}"


def _plain(surroundings: HostContext) -> Cell | str:
    cell = PlainCell()
    with tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory:
        said = _try(cell, Path(directory) / "session", surroundings, _PLAIN)
    return cell if said is None else f"no session can be started ({said}): mend that, it is no matter of settings"


def _try(
    cell: Cell,
    root: Path,
    surroundings: HostContext,
    script: str,
    *,
    uid: int | None = None,
    holes: bool = False,  # the script looks for them with a program of ours
) -> str | None:
    """Run a script in the place of a session, once for each CLI; return what went wrong, in a few words."""
    for binary in surroundings.binaries or (_SHELL,):
        if (said := _try_with(cell, root, surroundings, script, binary=binary, uid=uid, holes=holes)) is not None:
            return said
    return None


def _try_with(
    cell: Cell, root: Path, surroundings: HostContext, script: str, *, binary: Path, uid: int | None, holes: bool
) -> str | None:
    workspace = workspaces.make(root, template_home=None, uid=uid)
    cell.hand_over(workspace)
    sandbox = SandboxSpec(
        workspace=workspace,
        binary=binary,
        repos_dir=surroundings.repos_dir,
        path=surroundings.path,
        shown=(*interpreter(), _HOLES) if holes else (),
    )
    sandboxed = cell.enclose(sandbox)
    # A missing directory is not the level's fault, and another check reports it.
    repos = surroundings.repos_dir if surroundings.repos_dir.is_dir() else Path("/")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"go\n")
        try:
            done = subprocess.run(  # noqa: S603 - a script of ours, in the cell that is tried
                [
                    *sandboxed.before,
                    str(theirs.fileno()),
                    str(_SHELL),
                    "-c",
                    script,
                    "sh",
                    sandboxed.binary,
                    str(repos),
                    *(() if not holes else (LOOK_CLIENT[0], str(_HOLES), _numbers())),
                ],
                env={"HOME": str(workspace.home), "PATH": "/usr/bin:/bin"},
                cwd=workspace.workdir,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                process_group=0,  # Ctrl-C at the terminal is for us: a level that it kills would count as broken
                pass_fds=(*sandboxed.inherited, theirs.fileno()),
                timeout=PROBE_SECONDS,
                check=False,
                text=True,
                errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode == 0 and _PASSED in done.stdout:
        return None
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"exit status {done.returncode}"


def _numbers() -> str:
    return ",".join(f"{name}={number}" for name, number in system_call_numbers(os.uname().machine).items())
