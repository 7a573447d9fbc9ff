"""The process between the daemon and a CLI that has no PID namespace; when it ends, everything of the session ends.

Run by path, with the bare interpreter (``python -I -S guardian.py UID GID LOCK PROCESSES FILE_BYTES LIMITS DOOR KEYCTL
FILTER LIFELINE ARGV…``): it starts in milliseconds and imports nothing of claudeops. A UID of -1 keeps the daemon's
own. LOCK is the descriptor whose lock reserves the user for this session, or -1: it stays open until this process ends,
so no other session gets the user while this process may still kill that user's processes. PROCESSES and FILE_BYTES are
the bounds that the kernel sets for the session; -1 is no limit. LIMITS are those of every session
(``number=number,…``); one that is lower stays. DOOR is the file by which the session joins a control group, or empty.
KEYCTL is the number of that system call on this kind of machine, FILTER the filter of system calls in base 64, or empty
where there is none for it. The guardian stays outside of all these bounds, so that no session keeps it from its work.

It is the subreaper of its session, so whatever the session starts stays below it, even in a kernel session of its own
and twice forked. The lifeline is a socket that the daemon holds: when that closes, because the session is to end or
because the daemon is gone, every process below is killed. When the CLI ends by itself, what it left is killed too, and
the guardian ends as the CLI did, with the same status or by the same signal.

It reports over the lifeline, a line each: ``started PID`` or ``failed ERRNO``, and at the end ``strays COUNT``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import struct
import sys
import time
from binascii import a2b_base64

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_SECCOMP_MODE_FILTER = 2
_JOIN_SESSION_KEYRING = 1
_KILL_SECONDS = 4.0  # the longest wait for processes that the kernel does not release (a dead file server)
_POLL_SECONDS = 0.005
_NOT_STARTED = 127  # the exit status that shells use for this
_SAME_USER = -1
_NO_LOCK = -1
_NO_LIMIT = -1
_UNKNOWN = -1  # number of a system call
_FIELDS_BEHIND_NAME = 2  # of /proc/<pid>/stat: state, then the parent
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Start the CLI, wait until it ends or the lifeline closes, and leave nothing."""
    user, group, lock, processes, file_bytes = (int(argument) for argument in sys.argv[1:6])
    lifeline = int(sys.argv[10])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The session may have sent us SIGSTOP; the end of the daemon makes us go on, and see the lifeline closed.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    kept = [lifeline] if lock == _NO_LOCK else [lifeline, lock]
    for descriptor in kept:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional only
    # A signal to the whole group is meant for the CLI. Handlers, because the CLI would inherit an ignored signal.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    bounds = (sys.argv[7], processes, file_bytes, sys.argv[6])
    child = _start(sys.argv[11:], user, group, bounds, lifeline)
    _close_streams(*kept, woken, wake)
    _tell(lifeline, f"started {child}")
    status = _wait(child, lifeline, woken)
    strays = _end_everything(user)
    _tell(lifeline, f"strays {strays}")
    _end_as(status)


def _start(argv: list[str], user: int, group: int, bounds: tuple[str, int, int, str], lifeline: int) -> int:
    """Return the CLI's pid once it really runs; ends this process when it cannot be started."""
    reading, writing = os.pipe()  # closed by the exec; if that fails, carries the errno
    guardian, environment = os.getpid(), _environment()
    child = os.fork()
    if child == 0:
        try:
            _bind(*bounds)
            _become(user, group, guardian)
            _own_keyring(int(sys.argv[8]))
            _filter_calls(a2b_base64(sys.argv[9]))
            os.execve(argv[0], argv, environment)  # noqa: S606 - no shell, which is the point
        except OSError as error:
            os.write(writing, str(error.errno).encode())
        os._exit(_NOT_STARTED)
    os.close(writing)
    failure = os.read(reading, 16)
    os.close(reading)
    if failure:
        os.waitpid(child, 0)
        _tell(lifeline, f"failed {failure.decode()}")
        os._exit(_NOT_STARTED)
    return child


def _bind(door: str, processes: int, file_bytes: int, limits: str) -> None:
    """Set the bounds; before the change of users, because the session's user may not."""
    if door:
        with open(door, "w") as file:  # noqa: PTH123 - pathlib would be a slow import
            file.write("0")
    for pair in limits.split(","):
        name, _, most = pair.partition("=")
        _lower(int(name), int(most))
    for limit, wanted in ((resource.RLIMIT_NPROC, processes), (resource.RLIMIT_FSIZE, file_bytes)):
        if wanted != _NO_LIMIT:
            resource.setrlimit(limit, (wanted, wanted))


def _lower(limit: int, value: int) -> None:
    """Set a limit, or leave it where it is lower."""
    soft, hard = (value if held == resource.RLIM_INFINITY else min(value, held) for held in resource.getrlimit(limit))
    resource.setrlimit(limit, (soft, hard))


def _become(user: int, group: int, guardian: int) -> None:
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if user != _SAME_USER:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    # After the change of users, which clears this setting.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guardian:
        os._exit(_NOT_STARTED)


def _own_keyring(keyctl: int) -> None:
    """Leave the daemon's session keyring, which every program of a session could read, and leave keys in."""
    if keyctl != _UNKNOWN and _LIBC.syscall(keyctl, _JOIN_SESSION_KEYRING, None) < 0:
        error = ctypes.get_errno()
        # The kernel has no keyrings, or a filter above this process keeps it and all that it starts from them.
        if error not in {errno.ENOSYS, errno.EPERM}:
            raise OSError(error, os.strerror(error))


def _filter_calls(instructions: bytes) -> None:
    """Let the kernel refuse system calls from now on, which takes that no program gains privileges any more."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if instructions:
        filtered = struct.pack("HP", len(instructions) // 8, _address(instructions))  # struct sock_fprog
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _address(filtered))


def _environment() -> dict[bytes, bytes]:
    """Return the environment as this process got it: the interpreter may have set a locale in its own copy."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib would be a slow import
        variables = (variable.partition(b"=") for variable in file.read().split(b"\0") if variable)
        return {name: value for name, _, value in variables}


def _close_streams(*kept: int) -> None:
    """Close the CLI's streams: their end of file must be seen when the CLI closes them, not when we end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib would be a slow import
        descriptor = int(entry)
        if descriptor in (0, 1, 2, *kept):
            continue
        try:
            os.close(descriptor)
        except OSError:
            continue  # the descriptor of the listing itself


def _wait(child: int, lifeline: int, woken: int) -> int:
    """Return the CLI's wait status; kill the CLI when the lifeline closes."""
    poll = select.poll()  # unlike ``select`` it takes descriptors above 1023, and the daemon may have given us one
    poll.register(lifeline, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        readable = [descriptor for descriptor, _ in poll.poll()]
        if woken in readable:
            os.read(woken, 4096)
        ended = _reap(child)
        if ended is not None:
            return ended
        if lifeline in readable and _closed(lifeline):
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]


def _closed(lifeline: int) -> bool:
    try:
        return not os.read(lifeline, 64)
    except OSError:  # closed with a line of ours unread
        return True


def _reap(child: int) -> int | None:
    """Reap every child that has ended; return the CLI's status if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _end_everything(user: int) -> int:
    """Kill what is below us or runs as the session's own user, until nothing is left; return how many were killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        _reap(0)
        left = _others(user)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
            killed.add(pid)
        time.sleep(_POLL_SECONDS)
    return len(killed)


def _others(user: int) -> set[int]:
    """Return our descendants and all processes of ``user``, without zombies."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    dead: set[int] = set()
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a thousand entries, and pathlib would be a slow import
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123 - as above
                state, parent = file.read().rpartition(b")")[2].split()[:_FIELDS_BEHIND_NAME]
            if user != _SAME_USER and os.stat(f"/proc/{entry}").st_uid == user:  # noqa: PTH116 - as above
                found.add(pid)
        except (OSError, ValueError):
            continue
        parents[pid] = int(parent)
        if state in {b"Z", b"X"}:
            dead.add(pid)
    ours = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= grown
    return (found | ours) - dead - {os.getpid()}


def _end_as(status: int) -> None:
    """End with the CLI's own status, or by the signal that ended it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _tell(lifeline: int, line: str) -> None:
    try:
        os.write(lifeline, line.encode() + b"\n")
    except OSError:
        return  # the daemon does not listen any more


def _prctl(option: int, value: int, more: int = 0) -> None:
    if _LIBC.prctl(option, value, ctypes.c_void_p(more), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _address(content: bytes) -> int:
    """Return where bytes lie, which the caller keeps alive."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


if __name__ == "__main__":
    main()
