"""The process that becomes bubblewrap: it takes with it what bubblewrap cannot give a session.

Run by path, with the bare interpreter (``python -I -S launcher.py GROUP KEYCTL COUNTS LIMITS FILTER WORDS WORD…``): it
starts in milliseconds and imports nothing of claudeops. The first WORDS words are bubblewrap and its options, what
follows is what runs in it. As it becomes bubblewrap by ``exec``, it is the same process to the daemon, with its
lifeline and its control group.

GROUP is the file by which the session joins a control group, or empty. KEYCTL is the number of that system call on this
kind of machine. COUNTS says what the session's user namespace allows (``name=number,…``, names of ``/proc/sys/user``);
empty: it has none. LIMITS says which resource limits it has (``number=number,…``). FILTER is the filter of system calls
in base 64.

Order: the control group first, so that everything is counted; the keyring outside of all namespaces; then the user
namespace, in which the counts are written while this process may still do so. At its ``exec`` it loses the capabilities
that a new user namespace gives, unless its user is root.

What goes wrong is one line on standard error, and exit status 1, as with bubblewrap itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys
from binascii import a2b_base64

_CLONE_NEWUSER = 0x10000000
_JOIN_SESSION_KEYRING = 1
_NO_KEYRINGS = (errno.ENOSYS, errno.EPERM)
"""The kernel has none, or a filter above this process keeps it and all that it starts from them."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become bubblewrap."""
    group, keyctl, counts, limits, calls, words = sys.argv[1:7]
    options, command = sys.argv[7 : 7 + int(words)], sys.argv[7 + int(words) :]
    step = "its control group"
    try:
        if group:
            _write(group, "0")
        step = "a session keyring of its own"
        _own_keyring(int(keyctl))
        step = "a user namespace with limits of its own"
        if counts:
            _own_users(_pairs(counts))
        step = "resource limits"
        for limit, value in _pairs(limits):
            _lower(int(limit), int(value))
        step = options[0]
        given = _file("options", b"\0".join(os.fsencode(option) for option in options[1:]) + b"\0")
        filtered = _file("filter", a2b_base64(calls))
        os.execv(options[0], [options[0], "--args", str(given), "--seccomp", str(filtered), "--", *command])  # noqa: S606 - no shell
    except OSError as error:
        sys.exit(f"{step}: {error.strerror}")


def _own_keyring(number: int) -> None:
    """Leave the daemon's session keyring, which every program of a session could read, and leave keys in."""
    if _LIBC.syscall(number, _JOIN_SESSION_KEYRING, None) < 0 and ctypes.get_errno() not in _NO_KEYRINGS:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _own_users(counts: list[tuple[str, str]]) -> None:
    """Enter a user namespace of this one user, and say how many of what it may have; it counts for the daemon's too."""
    user, group = os.geteuid(), os.getegid()
    if _LIBC.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _write("/proc/self/setgroups", "deny")  # else nobody but root may write the next line but one
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    for name, most in counts:
        try:
            _write(f"/proc/sys/user/{name}", most)
        except FileNotFoundError:
            continue  # this kernel does not have, or does not count, these


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (pair.partition("=") for pair in text.split(","))]


def _lower(limit: int, value: int) -> None:
    """Set a limit, or leave it where it is lower."""
    soft, hard = (value if held == resource.RLIM_INFINITY else min(value, held) for held in resource.getrlimit(limit))
    resource.setrlimit(limit, (soft, hard))


def _file(name: str, content: bytes) -> int:
    """Return the descriptor of a nameless file that bubblewrap reads from its beginning, and closes."""
    descriptor = os.memfd_create(name, 0)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 - pathlib would be a slow import
        file.write(text)


if __name__ == "__main__":
    main()
