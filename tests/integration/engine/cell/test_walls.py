"""What stands around a session beside its view of files: keyring, limits, system calls; and outside it does not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT, interpreter
from claudeops.engine.cell.cell import Cell, Level, SandboxSpec
from claudeops.engine.cell.levels import HostContext, check_level, try_level
from claudeops.engine.cell.system_calls import keyctl_number, system_call_numbers
from support.levels import PATH, needs

PYTHON = LOOK_CLIENT[0]
NUMBERS = system_call_numbers(os.uname().machine) if keyctl_number() >= 0 else {}

pytestmark = pytest.mark.skipif(not NUMBERS, reason="there is no table of system calls for this kind of machine")

CALLS = """
import ctypes, errno, json, os, sys
libc, found = ctypes.CDLL(None, use_errno=True), {}
for name, (number, words) in json.loads(sys.argv[1]).items():
    child = os.fork()
    if child == 0:  # each in a process of its own: what works must not spoil the next
        ctypes.set_errno(0)
        worked = libc.syscall(number, *[ctypes.c_long(word) for word in words]) >= 0
        os._exit(0 if worked else min(ctypes.get_errno(), 255))
    found[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(found))
"""

# In forms that the kernel refuses for another reason, or that change nothing but the process that asks.
HARMLESS: dict[str, Sequence[int]] = {
    "keyctl": (0, -3, 0),  # KEYCTL_GET_KEYRING_ID of the session's
    "ptrace": (0, 0, 0, 0),  # PTRACE_TRACEME
    "process_vm_readv": (os.getpid(), 0, 0, 0, 0, 0),
    "kcmp": (1, 1, 99, 0, 0),
    "userfaultfd": (-1,),
    "io_uring_setup": (0, 0),
    "bpf": (-1, 0, 0),
    "setns": (-1, 0),
    "fsconfig": (-1, 0, 0, 0, 0),
    "personality": (0x0040000,),
    "unshare": (0x04000000,),  # of host names
    "add_key": (0, 0, 0, 0, -3),
    "mount_setattr": (-1, 0, 0, 0, 0),
    "mbind": (0, 0, 99, 0, 0, 0),
    "clone3": (0, 0),
}


@cache
def cell_of(level: Level) -> Cell:
    found = try_level(level, HostContext(path=PATH))
    assert not isinstance(found, str), found
    return found


def run(level: Level, root: Path, code: str, *arguments: str) -> str:
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


def outside(code: str, *arguments: str) -> str:
    """Return what the same program prints without a cell."""
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("level", list(Level))
def test_system_calls_that_no_session_needs_are_refused_at_every_level(tmp_path: Path, level: Level) -> None:
    asked = json.dumps({name: (NUMBERS[name], words) for name, words in HARMLESS.items()})
    within, without = json.loads(run(level, tmp_path, CALLS, asked)), json.loads(outside(CALLS, asked))
    assert set(within.values()) <= {1, 38}, within  # EPERM, ENOSYS
    reached = {name for name, error in without.items() if error not in {1, 38}}
    if os.geteuid() == 0:
        assert reached >= {"keyctl", "ptrace", "setns", "unshare", "personality", "clone3"}, without


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


def test_a_key_of_the_daemon_is_not_in_a_sessions_keyring_and_a_key_of_a_session_is_not_in_anothers() -> None:
    """The filter refuses the call as well; here it lets all calls pass, so that the keyring is seen by itself."""
    needs(Level.BUBBLEWRAP)
    launcher = Path(sys.modules["claudeops.engine.cell.bubblewrap"].__file__ or "").with_name("launcher.py")
    everything = "BgAAAAAA/38="  # one instruction: return, allowed
    view = [str(word) for place in ("/usr", "/lib", "/lib64", "/bin") for word in ("--ro-bind-try", place, place)]
    python = str(Path(PYTHON).parent.parent)
    words = ["bwrap", "--unshare-user", *view, "--ro-bind", python, python, "--proc", "/proc", "--dev", "/dev"]
    words[0] = next(str(Path(place, "bwrap")) for place in PATH.split(":") if Path(place, "bwrap").exists())
    seen = 'print(found(b"of-the-daemon"), found(b"of-a-session"), leave(b"of-a-session"))'
    look = [PYTHON, "-I", "-S", "-c", KEYS + seen]
    launched = [
        PYTHON,
        "-I",
        "-S",
        str(launcher),
        "",
        str(keyctl_number()),
        "max_time_namespaces=0",
        "4=0",
        everything,
        "",
    ]
    program = f"""
import subprocess
if libc.syscall(KEYCTL, 1, None) < 0:  # a keyring of this program's own: the test leaves nothing
    sys.exit(77)
print(leave(b"of-the-daemon"), found(b"of-the-daemon"))
sys.stdout.flush()
for _ in range(2):
    subprocess.run({[*launched, str(len(words)), *words, *look]!r}, check=True)
print(found(b"of-a-session"))
"""
    done = subprocess.run([PYTHON, "-I", "-S", "-c", KEYS + program], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this machine keeps programs from keyrings")
    assert done.stdout.splitlines() == ["True True", "False False True", "False False True", "False"], done.stderr


WATCHES = """
import ctypes, errno
libc, made = ctypes.CDLL(None, use_errno=True), 0
while libc.inotify_init1(0) >= 0:
    made += 1
print(made, ctypes.get_errno() == errno.EMFILE)
"""


def test_one_session_cannot_take_all_the_watches_of_the_daemons_user(tmp_path: Path) -> None:
    made, is_full = run(Level.BUBBLEWRAP, tmp_path, WATCHES).split()
    assert (0 < int(made) <= 32, is_full) == (True, "True")


VIEW = """
import os
read = lambda path: open(path, "rb").read()
words = read("/proc/1/cmdline").split(b"\\0")
print(words[1:words.index(b"/bin/bash")], read("/proc/keys"), read("/proc/cmdline"))
print(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:4])
print(len(read("/proc/meminfo")) > 0, len(read("/proc/stat")) > 0, len(read("/proc/loadavg")) > 0)
"""


def test_a_session_reads_neither_the_daemons_paths_nor_the_keys_of_the_machine(tmp_path: Path) -> None:
    places, descriptors, machine = run(Level.BUBBLEWRAP, tmp_path, VIEW).splitlines()
    assert places == "[b'--args', b'3', b'--seccomp', b'4', b'--'] b'' b''"
    assert descriptors == "[0, 1, 2, 3]"  # and the one of the listing
    assert machine == "True True True"


def test_where_the_kernel_makes_no_namespaces_the_level_says_so_and_is_passed_over(tmp_path: Path) -> None:
    needs(Level.BUBBLEWRAP)
    limited = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    code = (
        "from claudeops.engine.cell.levels import HostContext, check_level\n"
        f"print(check_level('bubblewrap', HostContext(path={PATH!r})))"
    )
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", limited, "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "a user namespace with limits of its own: No space left on device" in done.stdout, done.stderr
    assert check_level("bubblewrap", HostContext(path=PATH)) is None
