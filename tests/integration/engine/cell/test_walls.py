"""What stands around a session, where `test_what_is_reached.py` sees only what several walls hold together."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from claudeops.engine.cell import bubblewrap as cell_code
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT, interpreter
from claudeops.engine.cell.cell import Cell, IsolationLevel, SandboxSpec
from claudeops.engine.cell.levels import HostContext, check_level, try_level
from claudeops.engine.cell.system_calls import keyctl_number, system_call_numbers
from support.levels import PATH, needs

PYTHON = LOOK_CLIENT[0]
NUMBERS = system_call_numbers(os.uname().machine) if keyctl_number() >= 0 else {}

pytestmark = pytest.mark.skipif(not NUMBERS, reason="there is no table of system calls for this kind of machine")


@cache
def cell_of(level: IsolationLevel) -> Cell:
    found = try_level(level, HostContext(path=PATH))
    assert not isinstance(found, str), found
    return found


def run(level: IsolationLevel, root: Path, code: str, *arguments: str) -> str:
    """Return what a program of Python prints in a session's place."""
    needs(level)
    cell = cell_of(level)
    root.mkdir(exist_ok=True)
    with ExitStack() as held:
        uid = held.enter_context(cell.acquire_user())
        place = cell.workspaces(root) if uid is not None else root
        workspace = workspaces.make(place / "session", template_home=None, uid=uid)
        cell.hand_over(workspace)
        repos = root / "repos"
        repos.mkdir(exist_ok=True)
        program = Path(PYTHON) if uid is None else Path("/usr/bin/python3")
        spec = SandboxSpec(workspace=workspace, binary=program, repos_dir=repos, path=PATH, shown=interpreter())
        enclosed = cell.enclose(spec)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b"go\n")
            done = subprocess.run(
                [*enclosed.before, str(theirs.fileno()), enclosed.binary, "-I", "-S", "-c", code, *arguments],
                env={"HOME": str(workspace.home), "PATH": PATH},
                cwd=workspace.workdir,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=(*enclosed.inherited, theirs.fileno()),
                check=False,
                text=True,
            )
    assert done.returncode == 0, done.stderr
    return done.stdout


KEYS = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
KEYCTL, ADD = {keyctl_number()}, {NUMBERS.get("add_key", -1)}
def found(name):
    ctypes.set_errno(0)
    return libc.syscall(KEYCTL, 10, ctypes.c_int(-3), b"user", name, ctypes.c_int(0)) > 0
def leave(name):
    return libc.syscall(ADD, b"user", name, b"secret", ctypes.c_size_t(6), ctypes.c_int(-3)) > 0
"""


EVERYTHING = "BgAAAAAA/38="  # a filter of one instruction: return, allowed


def launched(look: list[str]) -> list[str]:
    """Return a command behind the launcher, with every system call allowed."""
    needs(IsolationLevel.BUBBLEWRAP)
    view = [str(word) for place in ("/usr", "/lib", "/lib64", "/bin") for word in ("--ro-bind-try", place, place)]
    python = str(Path(PYTHON).parent.parent)
    bwrap = next(str(Path(place, "bwrap")) for place in PATH.split(":") if Path(place, "bwrap").exists())
    words = [bwrap, "--unshare-user", *view, "--ro-bind", python, python, "--proc", "/proc", "--dev", "/dev"]
    program = str(Path(cell_code.__file__).with_name("launcher.py"))
    front = [PYTHON, "-I", "-S", program, "", str(keyctl_number()), "max_time_namespaces=0", "4=0", EVERYTHING, "", ""]
    return [*front, str(len(words)), *words, *look]


def guarded(look: list[str]) -> list[str]:
    """Return a command behind the guardian, with every system call allowed; its lifeline is descriptor 9."""
    program = str(Path(cell_code.__file__).with_name("guardian.py"))
    nobodys = ["-1"] * 5  # user, group, lock, and two bounds
    return [PYTHON, "-I", "-S", program, *nobodys, "4=0", "", str(keyctl_number()), EVERYTHING, "9", *look]


@pytest.mark.parametrize("behind", [launched, guarded])
def test_a_key_of_the_daemon_is_not_in_a_sessions_keyring_and_a_key_of_a_session_is_not_in_anothers(
    behind: Callable[[list[str]], list[str]],
) -> None:
    """The filter refuses the call as well; here it lets all calls pass, so that the keyring is seen by itself."""
    seen = 'print(found(b"of-the-daemon"), found(b"of-a-session"), leave(b"of-a-session"))'
    program = f"""
import socket, subprocess
if libc.syscall(KEYCTL, 1, None) < 0:  # a keyring of this program's own: the test leaves nothing
    sys.exit(77)
print(leave(b"of-the-daemon"), found(b"of-the-daemon"))
sys.stdout.flush()
for _ in range(2):
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), 9)
    subprocess.run({behind([PYTHON, "-I", "-S", "-c", KEYS + seen])!r}, check=True, pass_fds=[9])
print(found(b"of-a-session"))
"""
    done = subprocess.run([PYTHON, "-I", "-S", "-c", KEYS + program], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this machine keeps programs from keyrings")
    assert done.stdout.splitlines() == ["True True", "False False True", "False False True", "False"], done.stderr


VIEW = """
import os
read = lambda path: open(path, "rb").read()
words = read("/proc/1/cmdline").split(b"\\0")
print(words[1:words.index(b"/bin/bash")], read("/proc/keys"), read("/proc/cmdline"))
print(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:4])
print(len(read("/proc/meminfo")) > 0, len(read("/proc/stat")) > 0, len(read("/proc/loadavg")) > 0)
"""


def test_a_session_reads_neither_the_daemons_paths_nor_the_keys_of_the_machine(tmp_path: Path) -> None:
    places, descriptors, machine = run(IsolationLevel.BUBBLEWRAP, tmp_path, VIEW).splitlines()
    assert re.sub(r"\d+", "N", places) == "[b'--args', b'N', b'--seccomp', b'N', b'--'] b'' b''"
    assert descriptors == "[0, 1, 2, 3]"  # and the one of the listing
    assert machine == "True True True"


COPIES = """
import errno, os
print(open("/etc/passwd").read().count(":") > 0, oct(os.stat("/etc/passwd").st_mode))
tried = []
copy = "/etc/passwd"
for change in (lambda: open(copy, "a"), lambda: os.unlink(copy), lambda: os.chmod(copy, 0o666)):
    try:
        change()
    except OSError as error:
        tried.append(errno.errorcode[error.errno])
print(tried)
"""


def test_a_session_changes_nothing_of_what_it_has_a_copy_of(tmp_path: Path) -> None:
    lines = run(IsolationLevel.BUBBLEWRAP, tmp_path, COPIES).splitlines()
    assert lines == ["True 0o100444", "['EACCES', 'EROFS', 'EROFS']"]


PROC = """
import os
seen, writable = 0, []
for place, _, names in os.walk("/proc"):
    for name in names:
        seen += 1
        path = os.path.join(place, name)
        if not os.path.islink(path) and os.access(path, os.W_OK):
            writable.append(path)
print(seen > 1000, writable[:5])
"""


def test_a_session_writes_nothing_in_proc_not_even_of_its_own(tmp_path: Path) -> None:
    """Its user is the daemon's, root here: root may write files of the kernel's."""
    assert run(IsolationLevel.BUBBLEWRAP, tmp_path, PROC) == "True []\n"


def test_where_the_kernel_makes_no_namespaces_the_level_says_so_and_is_passed_over(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    limited = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    code = (
        "from claudeops.engine.cell.levels import HostContext, check_level\n"
        f"print(check_level('bubblewrap', HostContext(path={PATH!r})))"
    )
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", limited, "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "a user namespace with limits of its own: No space left on device" in done.stdout, done.stderr
    assert check_level("bubblewrap", HostContext(path=PATH)) is None
